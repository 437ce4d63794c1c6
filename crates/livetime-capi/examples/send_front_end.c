// Sends made-up pulses of one board into a run: send_front_end HOST PORT SOURCE TRIGGERS
//
//     cc -Icrates/livetime-capi/include crates/livetime-capi/examples/send_front_end.c -o send_front_end
//     ./send_front_end 127.0.0.1 9870 0x510000 10000

// Sockets are not of C itself: this asks for them where a compiler is told to be strict.
#define _POSIX_C_SOURCE 200809L
#include <livetime_front_end.h>
#include <stdlib.h>

enum { SAMPLES = 128 };

// The samples of a board for a trigger: a ramp that says whose it is.
static uint32_t samples(uint32_t *words, uint32_t source, uint64_t trigger) {
    uint32_t count = (uint32_t)(trigger % SAMPLES), i;
    for (i = 0; i < count; i++)
        words[i] = source + (uint32_t)trigger + 7 * i;
    return count;
}

int main(int argc, char **argv) {
    livetime_front_end front_end;
    uint32_t words[SAMPLES], source;
    uint64_t trigger, triggers;
    int outcome;
    if (argc != 5) {
        fprintf(stderr, "usage: %s HOST PORT SOURCE TRIGGERS\n", argv[0]);
        return 2;
    }
    source = (uint32_t)strtoul(argv[3], NULL, 0);
    triggers = strtoull(argv[4], NULL, 0);
    outcome = livetime_front_end_open(&front_end, argv[1], argv[2]);
    for (trigger = 1; outcome == LIVETIME_FRONT_END_OK && trigger <= triggers; trigger++) {
        uint32_t count = samples(words, source, trigger);
        outcome = livetime_front_end_send(&front_end, source, trigger, 0, 0, words, count);
    }
    if (outcome == LIVETIME_FRONT_END_OK)
        outcome = livetime_front_end_end(&front_end, source, triggers);
    // The run may have something against the last frames, too.
    if (livetime_front_end_close(&front_end) == LIVETIME_FRONT_END_ERROR && outcome == LIVETIME_FRONT_END_OK)
        outcome = LIVETIME_FRONT_END_ERROR;
    if (outcome == LIVETIME_FRONT_END_RUN_ENDED)
        printf("run %u has ended after trigger %llu\n", front_end.run, (unsigned long long)front_end.last_trigger);
    else if (outcome == LIVETIME_FRONT_END_OK)
        printf("%llu triggers sent to run %u\n", (unsigned long long)triggers, front_end.run);
    else
        fprintf(stderr, "%s\n", front_end.error);
    return outcome == LIVETIME_FRONT_END_ERROR;
}
