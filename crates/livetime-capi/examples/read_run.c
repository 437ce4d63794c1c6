/* Prints what is in a run: read_run runs/000042
 *
 * Shows the whole way: open, events, fragments, what was damaged, close. */
#include <inttypes.h>
#include <stdio.h>

#include "livetime.h"

static int failed(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, livetime_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    livetime_run *run = NULL;
    livetime_run_info info;
    livetime_event event;
    livetime_fragment fragment;
    livetime_damage damage;
    livetime_status status;
    uint64_t events = 0, incomplete = 0, fragments = 0, flagged = 0, words = 0, sum = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: read_run RUN\n");
        return 2;
    }
    if (livetime_open(argv[1], &run) != LIVETIME_STATUS_OK)
        return failed("cannot open the run");

    while ((status = livetime_next_event(run, &event)) == LIVETIME_STATUS_OK) {
        events += 1;
        incomplete += event.missing_count > 0;
        while (livetime_next_fragment(run, &fragment) == LIVETIME_STATUS_OK) {
            fragments += 1;
            flagged += fragment.status != 0;
            words += fragment.word_count;
            for (size_t i = 0; i < fragment.word_count; i++)
                sum += fragment.words[i];
        }
    }
    if (status != LIVETIME_STATUS_END) {
        failed("cannot read on");
        livetime_close(run);
        return 1;
    }

    if (livetime_info_of(run, &info) != LIVETIME_STATUS_OK) {
        failed("no information");
        livetime_close(run);
        return 1;
    }
    printf("run %" PRIu32 ", %s\n", info.number, info.closed ? "closed" : "not closed");
    printf("events %" PRIu64 ", incomplete %" PRIu64 ", missing %" PRIu64 "\n", events, incomplete,
           info.events_missing);
    printf("fragments %" PRIu64 ", flagged %" PRIu64 "\n", fragments, flagged);
    printf("words %" PRIu64 ", sum %" PRIu64 "\n", words, sum);
    for (size_t i = 0; livetime_damage_at(run, i, &damage) == LIVETIME_STATUS_OK; i++)
        printf("damage: %" PRIu64 " bytes at %" PRIu64 ": %s\n", damage.bytes, damage.offset,
               damage.reason);
    livetime_close(run);
    return 0;
}
