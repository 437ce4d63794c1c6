// Livetime run files for C: open a run, go through its events and fragments, nothing is copied.
//
// Generated from the sources of livetime-capi; changes are made there. The guide is
// docs/c-library.md, an example examples/read_run.c of the crate.

#ifndef LIVETIME_H
#define LIVETIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a call came to.
typedef enum {
    // Done.
    LIVETIME_STATUS_OK = 0,
    // There is no further event or fragment, or no such one.
    LIVETIME_STATUS_END = 1,
    // A pointer is null or a path is not usable.
    LIVETIME_STATUS_ERROR_ARGUMENT = 2,
    // The file cannot be read.
    LIVETIME_STATUS_ERROR_IO = 3,
    // The file is not a run file.
    LIVETIME_STATUS_ERROR_FORMAT = 4,
    // What was asked for is there and damaged.
    LIVETIME_STATUS_ERROR_DAMAGED = 5,
    // A bug of this library; the handle can only be closed.
    LIVETIME_STATUS_ERROR_INTERNAL = 6,
} livetime_status;

// An open run.
typedef struct livetime_run livetime_run;

// What a run file says about itself.
typedef struct {
    // Run number.
    uint32_t number;
    // Whether the run was closed in order: the file has an end-of-run record that is its own and
    // not made by a recovery.
    bool closed;
    // Start of the run [ns of TAI since 1970]; 0 if not known.
    uint64_t started_tai_ns;
    // Events in the file by its end-of-run record; 0 without one.
    uint64_t events_stored;
    // Events known to be missing; right once all events were read.
    uint64_t events_missing;
    // Ranges of the file that were passed over as damaged so far.
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

// A range of the file that was passed over. The text is valid until the next call with the same
// run.
typedef struct {
    // Where it starts.
    uint64_t offset;
    // How long it is.
    uint64_t bytes;
    // Why, in words.
    const char *reason;
} livetime_damage;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as `0.1.0`.
const char *livetime_version(void);

// What the last call of this thread that failed said, in words; empty before the first. Valid
// until the next call of this thread that fails.
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

// Takes up what was written since the run was opened; `livetime_next_event` then goes on.
//
// # Safety
// `run` is null or open.
livetime_status livetime_refresh(livetime_run *run);

// Fills in one of the ranges of the file that were passed over so far, counted from 0;
// `LIVETIME_STATUS_END` behind the last. At most 1024 of them are kept.
//
// # Safety
// `run` is null or open, `damage` null or valid for writing.
livetime_status livetime_damage_at(livetime_run *run, size_t index, livetime_damage *damage);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIVETIME_H */
