// Livetime for C: open a run, go through its events and fragments, nothing is copied; and the calls
// of the link cards' driver package, over models of the cards; and listen to the timing daemon.
//
// Generated from the sources of livetime-capi; changes are made there. The guide is
// docs/c-library.md, examples are examples/read_run.c, read_links.c and
// listen_timing.c of the crate.

#ifndef LIVETIME_H
#define LIVETIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Pages that one call takes or gives at most.
#define LIVETIME_LINK_PAGES_MAX 32

// What a call came to.
typedef enum {
    // Done.
    LIVETIME_STATUS_OK = 0,
    // There is no further event or fragment, or no such one.
    LIVETIME_STATUS_END = 1,
    // A pointer is null, a path or a value is not usable, or a child made by `fork` uses what is its
    // parent's.
    LIVETIME_STATUS_ERROR_ARGUMENT = 2,
    // The file cannot be read; or the timing daemon is not there, or does not answer.
    LIVETIME_STATUS_ERROR_IO = 3,
    // The file is not a run file.
    LIVETIME_STATUS_ERROR_FORMAT = 4,
    // What was asked for is there and damaged.
    LIVETIME_STATUS_ERROR_DAMAGED = 5,
    // A bug of this library; the handle can only be closed.
    LIVETIME_STATUS_ERROR_INTERNAL = 6,
    // The timing daemon refuses: the user may not do this or come at all, a value is not one that
    // it takes, or all that it has of something, as places for clients, is taken.
    LIVETIME_STATUS_ERROR_REFUSED = 7,
} livetime_status;

// What the cards are loaded with.
typedef enum {
    // Four channels; addresses and results by register.
    LIVETIME_FIRMWARE_SINGLE_CYCLE = 0,
    // Three channels; addresses and results in blocks of memory.
    LIVETIME_FIRMWARE_DMA_PROTOCOL = 1,
} livetime_firmware;

// Cards, their memory, their data sources, and the library over them.
typedef struct livetime_links livetime_links;

// An open run.
typedef struct livetime_run livetime_run;

// A listener of the timing daemon. Used by one thread at a time, of the process that opened it.
typedef struct livetime_timing_listener livetime_timing_listener;

// What a run file says about itself.
typedef struct {
    // Run number.
    uint32_t number;
    // Whether the run was closed in order: the files that are there have end-of-run records that are
    // their own and not made by a recovery. Of files that are not there `events_missing` and
    // `livetime_damage_at` tell.
    bool closed;
    // Start of the run [ns of TAI since 1970]; 0 if not known.
    uint64_t started_tai_ns;
    // Events of the run by its end-of-run records, those included that are known to be in files
    // that are not there; 0 without one.
    uint64_t events_stored;
    // Events known to be missing; right once all events were read.
    uint64_t events_missing;
    // Ranges of the files that were passed over as damaged so far, and files that are not there or
    // cannot be read.
    uint64_t damaged_ranges;
    // Bytes of the file.
    uint64_t file_bytes;
} livetime_run_info;

// An event. Pointers are valid until the next call with the same run other than
// `livetime_next_fragment`, `livetime_info_of` and `livetime_damage_at`.
typedef struct {
    // Trigger number, the key of the event in its run.
    uint64_t trigger;
    // Nanoseconds from the start of the run to the Level-1 accept of the trigger.
    uint64_t triggered_at_ns;
    // Level-2 decision after prescale, bits 63:0 first.
    uint64_t decision[2];
    // Run number.
    uint32_t run;
    // Why the filter kept it.
    uint16_t filter_reason;
    // Streams that it belongs to, one bit each.
    uint16_t streams;
    // Number of fragments.
    uint32_t fragment_count;
    // Number of sources that are missing; 0 for a complete event.
    uint32_t missing_count;
    // Their ids.
    const uint32_t *missing;
    // All words of the event, its header included.
    const uint32_t *words;
    // Number of them.
    size_t word_count;
} livetime_event;

// A fragment of an event. The pointer is valid as long as the event's.
typedef struct {
    // Id of the source: sub-detector in bits 31:16, module in bits 15:0.
    uint32_t source;
    // What the receiver found, 0 for a good fragment.
    uint32_t status;
    // Its words as received, header and trailer included.
    const uint32_t *words;
    // Number of them.
    size_t word_count;
} livetime_fragment;

// A range of a file that was passed over, or a file that is not there or cannot be read. The text
// is valid until the next call with the same run.
typedef struct {
    // Where it starts.
    uint64_t offset;
    // How long it is.
    uint64_t bytes;
    // Why, in words; of a run in several files with the name of the file before them.
    const char *reason;
} livetime_damage;

// How cards are opened and initialised.
typedef struct {
    // Cards, 1 to 4. Channels are numbered 4 x card + channel of the card.
    uint32_t cards;
    // Their firmware, a `livetime_firmware`.
    uint32_t firmware;
    // Bytes of a page: 256, 1024, 2048, 4096, 16384 or 65536.
    uint32_t page_bytes;
    // Swap the bytes of each word.
    bool swap_bytes;
    // Swap the words of each pair. The bus takes two words at a time: of an odd number the last
    // lies one word further, behind the words that are counted.
    bool swap_words;
    // The start control word, 0xB0F00000.
    uint32_t start_word;
    // The end control word, 0xE0F00000. It differs from the other one above bit 3, where a card
    // tells them apart.
    uint32_t end_word;
} livetime_links_config;

// Free pages for a channel.
typedef struct {
    // The channel.
    uint32_t channel;
    // Pages in `addresses`.
    uint32_t count;
    // Their bus addresses.
    uint32_t addresses[LIVETIME_LINK_PAGES_MAX];
} livetime_page_batch;

// Filled pages of a channel, oldest first.
typedef struct {
    // The channel.
    uint32_t channel;
    // Pages in the arrays.
    uint32_t count;
    // Their bus addresses.
    uint32_t addresses[LIVETIME_LINK_PAGES_MAX];
    // Data words in each.
    uint32_t words[LIVETIME_LINK_PAGES_MAX];
    // Status of each; docs/formats/slink.md names the bits. The page of a good fragment has 0; of
    // one that is longer than a page, every page but the last has `no_end` (0x20000000), every
    // page but the first `no_begin` (0x80000000), and those between have both (0xA0000000).
    uint32_t status[LIVETIME_LINK_PAGES_MAX];
    // Start control words as received, error bits included; 0 where there was none.
    uint32_t start_words[LIVETIME_LINK_PAGES_MAX];
    // End control words as received, error bits included; 0 where there was none.
    uint32_t end_words[LIVETIME_LINK_PAGES_MAX];
    // The fragment goes on in the next page.
    bool more_to_come[LIVETIME_LINK_PAGES_MAX];
} livetime_pages_filled;

// What is known of a channel.
typedef struct {
    // Its number.
    uint32_t channel;
    // Its card.
    uint32_t card;
    // It was enabled.
    bool enabled;
    // LDOWN#.
    bool link_down;
    // URESET# is driven.
    bool resetting;
    // XOFF is asked.
    bool xoff;
    // Free slots of the request FIFO.
    uint32_t request_free;
    // Pages taken so far.
    uint64_t pages_in;
    // Pages given out so far.
    uint64_t pages_out;
    // Pages given back unfilled by `livetime_links_reset` so far. What `pages_in` counts and
    // neither of the two is with the library.
    uint64_t pages_returned;
} livetime_link_channel;

// What a listener is to hear; all zero is every message, waiting asleep.
typedef struct {
    // Event ID.
    uint64_t id;
    // Bits of the ID that are compared.
    uint64_t mask;
    // Deadline of the record minus time of the message, in nanoseconds.
    int64_t offset_ns;
    // Slots of the ring, a power of two from 2 to 65536; 0 is 4096.
    uint32_t slots;
    // Whether to poll without pause instead of sleeping.
    bool spin;
} livetime_timing_filter;

// What a record of the timing daemon says.
typedef struct {
    // 1 a message; 2 a gap (`id` records lost, numbers `param` to `deadline_ns`); 3 the daemon was
    // restarted and is in `epoch` now, or, where `id` is 1, has ended the subscription, and it was
    // made anew.
    uint32_t kind;
    // Flags: 1 late, 2 early, 4 conflict, 8 delayed, 16 delivered late, 32 deferred.
    uint32_t flags;
    // Sequence number of the record.
    uint64_t sequence;
    // Event ID.
    uint64_t id;
    // Parameter.
    uint64_t param;
    // When the action was due, TAI nanoseconds.
    uint64_t deadline_ns;
    // When it was executed, or the gap or the restart noticed, TAI nanoseconds.
    uint64_t executed_ns;
    // From the execution to the entry into the ring, in nanoseconds.
    uint32_t enqueue_delay_ns;
    // The message's fraction field.
    uint32_t tef;
    // Which start of the daemon it is of.
    uint32_t epoch;
    // The condition, as the daemon numbers them.
    uint32_t condition;
} livetime_timing_record;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as `0.1.0`.
const char *livetime_version(void);

// What the last call of this thread that failed said, in words; empty before the first. While the
// thread ends it may be empty: in destructors of its thread-specific data and, of the main thread,
// in what `atexit` calls and in destructors of libraries. Valid until the next call of this thread
// that fails.
const char *livetime_last_error(void);

// Opens a run directory such as `runs/000042`, or its `events.mcap`, and sets `*run`.
//
// The run need not be finished: of a file that is being written, or was cut off, what is complete
// is read. On an error `*run` is null.
//
// # Safety
// `path` is a C string or null, `run` valid for writing or null.
livetime_status livetime_open(const char *path, livetime_run **run);

// Closes a run; everything that it handed out is invalid then. Null is allowed.
//
// # Safety
// `run` is null or comes from `livetime_open` and was not closed.
void livetime_close(livetime_run *run);

// Fills in what is known about the run so far.
//
// # Safety
// `run` is null or open, `info` null or valid for writing.
livetime_status livetime_info_of(livetime_run *run, livetime_run_info *info);

// Goes to the next event that is whole, in the order of the file, and fills it in;
// `LIVETIME_STATUS_END` after the last. Damaged events are passed over and listed.
//
// # Safety
// `run` is null or open, `event` null or valid for writing.
livetime_status livetime_next_event(livetime_run *run, livetime_event *event);

// Goes to the event of a trigger and fills it in; `LIVETIME_STATUS_END` if there is none. The
// order of `livetime_next_event` goes on where it was.
//
// # Safety
// `run` is null or open, `event` null or valid for writing.
livetime_status livetime_find_event(livetime_run *run, uint64_t trigger, livetime_event *event);

// Fills in the next fragment of the event that was handed out last; `LIVETIME_STATUS_END` after
// the last.
//
// # Safety
// `run` is null or open, `fragment` null or valid for writing.
livetime_status livetime_next_fragment(livetime_run *run, livetime_fragment *fragment);

// Starts again at the first event.
//
// # Safety
// `run` is null or open.
livetime_status livetime_rewind(livetime_run *run);

// Takes up what was written since the run was opened; `livetime_next_event` then goes on. The files
// are looked for where they were when the run was opened, whatever the working directory is now.
// That one of them was cut or replaced is `LIVETIME_STATUS_ERROR_IO`, and the run as it was.
//
// # Safety
// `run` is null or open.
livetime_status livetime_refresh(livetime_run *run);

// Fills in one of the ranges of the files that were passed over so far, counted from 0, and behind
// them the files that are not there or cannot be read; `LIVETIME_STATUS_END` behind the last. At
// most 1024 ranges of each file are kept.
//
// # Safety
// `run` is null or open, `damage` null or valid for writing.
livetime_status livetime_damage_at(livetime_run *run, size_t index, livetime_damage *damage);

// Opens the library on models of receiver cards and sets `*links`; all channels are disabled. On
// an error `*links` is null. Links may be used by any thread, by one at a time; those of several
// calls of this function know nothing of each other.
//
// # Safety
// `config` is null or valid for reading, `links` null or valid for writing.
livetime_status livetime_links_open(const livetime_links_config *config, livetime_links **links);

// Closes the library; its memory is gone then. Null is allowed.
//
// # Safety
// `links` is null or comes from `livetime_links_open` and was not closed.
void livetime_links_close(livetime_links *links);

// Enables these channels, at most 64 numbers, and disables the others.
//
// # Safety
// `links` is null or open, `channels` null or valid for reading `count` numbers.
livetime_status livetime_links_init(livetime_links *links, const uint32_t *channels, size_t count);

// Resets a card: the links of all its channels; pages given and not posted are the caller's again.
//
// # Safety
// `links` is null or open.
livetime_status livetime_links_reset(livetime_links *links, uint32_t card);

// Resets the link of a channel and waits until it is up.
//
// # Safety
// `links` is null or open.
livetime_status livetime_links_link_reset(livetime_links *links, uint32_t channel);

// Reserves memory of a card, in whole pages in a row, and sets `*segment`.
//
// # Safety
// `links` is null or open, `name` a C string or null, `segment` null or valid for writing.
livetime_status livetime_links_segment_allocate(livetime_links *links,
                                                uint32_t card,
                                                uint64_t bytes,
                                                const char *name,
                                                uint32_t *segment);

// Gives memory of a card back; refused while one of its pages is with a channel.
//
// # Safety
// `links` is null or open.
livetime_status livetime_links_segment_free(livetime_links *links, uint32_t card, uint32_t segment);

// Sets `*address` to the bus address of a segment; its pages follow one another from there.
//
// # Safety
// `links` is null or open, `address` null or valid for writing.
livetime_status livetime_links_segment_address(livetime_links *links,
                                               uint32_t card,
                                               uint32_t segment,
                                               uint32_t *address);

// Sets `*data` to where `words` words at a bus address lie in this process; valid until the next
// call with the same links.
//
// # Safety
// `links` is null or open, `data` null or valid for writing.
livetime_status livetime_links_data_at(livetime_links *links,
                                       uint32_t address,
                                       size_t words,
                                       const uint32_t **data);

// Gives free pages to a channel and sets `*taken` to how many were taken, from the first on; they
// are posted by the next `livetime_links_flush`. A page is taken if it starts in a segment of the
// card and is with none of its channels. The first that is not ends the call with
// `LIVETIME_STATUS_ERROR_ARGUMENT`; `*taken` pages before it are taken all the same. Fewer are
// also taken when 32 wait already: the others stay with the caller, and that is no error.
//
// # Safety
// `links` is null or open, `pages` null or valid for reading, `taken` null or valid for writing.
livetime_status livetime_links_pages_in(livetime_links *links,
                                        const livetime_page_batch *pages,
                                        uint32_t *taken);

// Exchanges pages with the cards: posts those given, takes those filled.
//
// # Safety
// `links` is null or open.
livetime_status livetime_links_flush(livetime_links *links);

// Fills in the filled pages of a channel, which are the caller's then.
//
// # Safety
// `links` is null or open, `pages` null or valid for writing.
livetime_status livetime_links_pages_out(livetime_links *links,
                                         uint32_t channel,
                                         livetime_pages_filled *pages);

// Sets `*free` to how many more pages the next `livetime_links_flush` can post at a channel: free
// slots of its request FIFO, less the pages that wait already. `livetime_links_pages_in` takes
// more, up to 32 that wait until there are slots.
//
// # Safety
// `links` is null or open, `free` null or valid for writing.
livetime_status livetime_links_in_free(livetime_links *links, uint32_t channel, uint32_t *free);

// Fills in what is known of the channel at `index`, counted from 0 over the channels that there
// are; `LIVETIME_STATUS_END` behind the last.
//
// # Safety
// `links` is null or open, `channel` null or valid for writing.
livetime_status livetime_links_channel_at(livetime_links *links,
                                          size_t index,
                                          livetime_link_channel *channel);

// Puts a SLIDAS data source at a channel: pattern 1, 2, 3, 4 or 8, words of a block, blocks in
// all. It sends at each `livetime_links_flush` as far as the card has pages.
//
// # Safety
// `links` is null or open.
livetime_status livetime_links_connect_source(livetime_links *links,
                                              uint32_t channel,
                                              uint32_t pattern,
                                              uint32_t words,
                                              uint64_t blocks);

// Connects to the timing daemon and listens, and sets `*listener`. `address` is the path of its
// socket, `session`, `system` or `bus:ADDRESS`; null is the usual one. On an error `*listener` is
// null. Waits at most 20 s for the connection, and for each answer of the daemon. The listener
// connects again by itself when the daemon is restarted. It is of the process that opened it: a
// child made by `fork` may close its copy, which the parent's does not notice, and do nothing else
// with it. Once a process has called this function, children that it forks are refused with
// `LIVETIME_STATUS_ERROR_ARGUMENT`, unless they call `exec`: fork before the first call.
//
// # Safety
// `address` is a C string or null, `filter` null or valid for reading, `listener` null or valid
// for writing.
livetime_status livetime_timing_open(const char *address,
                                     const livetime_timing_filter *filter,
                                     livetime_timing_listener **listener);

// Ends listening. Null is allowed.
//
// # Safety
// `listener` is null or comes from `livetime_timing_open` and was not closed.
void livetime_timing_close(livetime_timing_listener *listener);

// Waits at most `timeout_ms` milliseconds (negative: for ever) for the next record and writes it
// to `*record`; `LIVETIME_STATUS_END` when there was none. A daemon that is gone is looked for
// meanwhile, and after the call.
//
// # Safety
// `listener` is null or open, `record` null or valid for writing.
livetime_status livetime_timing_next(livetime_timing_listener *listener,
                                     int64_t timeout_ms,
                                     livetime_timing_record *record);

// Injects a timing message that is due `lead_ns` nanoseconds from now. More than 2^32 ns ahead
// it is executed at once and flagged early, by the rules of the hardware; a lead that ends after
// the last time of 64 bits is refused. Waits at most 20 s for each of two answers of the daemon.
//
// # Safety
// `listener` is null or open.
livetime_status livetime_timing_inject(livetime_timing_listener *listener,
                                       uint64_t id,
                                       uint64_t param,
                                       uint64_t lead_ns);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIVETIME_H */
