/* Reads test blocks from every channel of the cards and checks them:
 *
 *     read_links CARDS single|dma BLOCKS
 *
 * The shape is that of the field's own test programs: memory, pages in, then flush and pages out in
 * turn over the channels; a page goes back as soon as it was read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "livetime.h"

#define PAGE_BYTES 1024u
#define PAGES 15u
#define WORDS 300u /* of a block: two pages */
#define CHANNELS_MAX 16u

static int failed(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, livetime_last_error());
    return 1;
}

/* Gives one page back. */
static int give_back(livetime_links *links, uint32_t channel, uint32_t address)
{
    livetime_page_batch batch = {0};
    uint32_t taken = 0;

    batch.channel = channel;
    batch.count = 1;
    batch.addresses[0] = address;
    return livetime_links_pages_in(links, &batch, &taken) != LIVETIME_STATUS_OK || taken != 1;
}

int main(int argc, char **argv)
{
    livetime_links_config config = {0};
    livetime_links *links = NULL;
    livetime_link_channel info;
    livetime_pages_filled filled;
    uint32_t channels[CHANNELS_MAX], count = 0;
    uint32_t position[CHANNELS_MAX] = {0};
    uint64_t fragments = 0, words = 0, bad_words = 0, bad_status = 0, expected;

    if (argc != 4) {
        fprintf(stderr, "usage: read_links CARDS single|dma BLOCKS\n");
        return 2;
    }
    config.cards = (uint32_t)strtoul(argv[1], NULL, 10);
    config.firmware = strcmp(argv[2], "dma") == 0 ? LIVETIME_FIRMWARE_DMA_PROTOCOL
                                                  : LIVETIME_FIRMWARE_SINGLE_CYCLE;
    config.page_bytes = PAGE_BYTES;
    config.start_word = 0xB0F00000u;
    config.end_word = 0xE0F00000u;
    expected = strtoull(argv[3], NULL, 10);

    if (livetime_links_open(&config, &links) != LIVETIME_STATUS_OK)
        return failed("cannot open the cards");
    while (livetime_links_channel_at(links, count, &info) == LIVETIME_STATUS_OK)
        channels[count++] = info.channel;
    if (livetime_links_init(links, channels, count) != LIVETIME_STATUS_OK)
        return failed("cannot enable the channels");

    for (uint32_t i = 0; i < count; i++) {
        livetime_page_batch batch = {0};
        uint32_t card = channels[i] / 4, segment, address, taken;

        if (livetime_links_link_reset(links, channels[i]) != LIVETIME_STATUS_OK)
            return failed("cannot reset the link");
        if (livetime_links_segment_allocate(links, card, (uint64_t)PAGES * PAGE_BYTES, "pages",
                                            &segment) != LIVETIME_STATUS_OK)
            return failed("no memory");
        if (livetime_links_segment_address(links, card, segment, &address) != LIVETIME_STATUS_OK)
            return failed("no address");
        batch.channel = channels[i];
        batch.count = PAGES;
        for (uint32_t page = 0; page < PAGES; page++)
            batch.addresses[page] = address + page * PAGE_BYTES;
        if (livetime_links_pages_in(links, &batch, &taken) != LIVETIME_STATUS_OK || taken != PAGES)
            return failed("pages were not taken");
        if (livetime_links_connect_source(links, channels[i], 1, WORDS, expected) !=
            LIVETIME_STATUS_OK)
            return failed("no data source");
    }
    expected *= count;

    while (fragments < expected) {
        if (livetime_links_flush(links) != LIVETIME_STATUS_OK)
            return failed("flush");
        for (uint32_t i = 0; i < count; i++) {
            if (livetime_links_pages_out(links, channels[i], &filled) != LIVETIME_STATUS_OK)
                return failed("pages out");
            for (uint32_t page = 0; page < filled.count; page++) {
                const uint32_t *data = NULL;

                if (livetime_links_data_at(links, filled.addresses[page], filled.words[page],
                                           &data) != LIVETIME_STATUS_OK)
                    return failed("no such memory");
                /* Pattern 1, a walking one, starts anew in each block. */
                for (uint32_t word = 0; word < filled.words[page]; word++)
                    bad_words += data[word] != 1u << (position[i]++ % 32);
                words += filled.words[page];
                if (!filled.more_to_come[page]) {
                    fragments += 1;
                    bad_words += position[i] != WORDS;
                    bad_status += filled.end_words[page] != 0xE0F00000u;
                    position[i] = 0;
                }
                if (give_back(links, channels[i], filled.addresses[page]))
                    return failed("page not taken back");
            }
        }
    }
    livetime_links_close(links);
    printf("channels %" PRIu32 ", fragments %" PRIu64 ", words %" PRIu64 "\n", count, fragments,
           words);
    printf("bad words %" PRIu64 ", bad fragments %" PRIu64 "\n", bad_words, bad_status);
    return bad_words != 0 || bad_status != 0;
}
