/* Children and the listener of their parent, which goes on whatever they do. The argument is the
 * daemon's address. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "livetime.h"

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, livetime_last_error());
    return 1;
}

static const char *address;
static livetime_timing_filter filter;
static livetime_timing_listener *listener;
static livetime_timing_record record;

/* Whether the last call failed as one of a child does. */
static int is_refused(livetime_status status, const char *why) {
    return status == LIVETIME_STATUS_ERROR_ARGUMENT && strstr(livetime_last_error(), why) != NULL;
}

/* Uses its copy of its parent's listener, and closes it. */
static int uses_its_copy(void) {
    if (!is_refused(livetime_timing_inject(listener, 8, 8, 1000000), "of process"))
        return 2;
    if (!is_refused(livetime_timing_next(listener, -1, &record), "of process"))
        return 3;
    livetime_timing_close(listener);
    return 0;
}

/* Opens a listener of its own. */
static int opens_its_own(void) {
    livetime_timing_listener *own = NULL;
    if (!is_refused(livetime_timing_open(address, &filter, &own), "fork before"))
        return 4;
    return own == NULL ? 0 : 5;
}

/* The same where its parent has connected to nothing yet. */
static int opens_the_first(void) {
    if (livetime_timing_open(address, &filter, &listener) != LIVETIME_STATUS_OK)
        return 6;
    livetime_timing_close(listener);
    return 0;
}

/* What a child comes to, which a signal ends should it hang. */
static int in_child(int (*work)(void)) {
    int child = 0;
    switch (fork()) {
    case -1:
        return failed("forking");
    case 0:
        alarm(60);
        _exit(work());
    default:
        break;
    }
    if (wait(&child) < 0 || child != 0) {
        fprintf(stderr, "the child ended with %d\n", child);
        return 1;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2)
        return failed("arguments");
    address = arguments[1];
    memset(&filter, 0, sizeof filter);
    if (in_child(opens_the_first) != 0)
        return 1;
    if (livetime_timing_open(address, &filter, &listener) != LIVETIME_STATUS_OK)
        return failed("opening");
    if (in_child(uses_its_copy) != 0 || in_child(opens_its_own) != 0)
        return 1;
    if (livetime_timing_inject(listener, 9, 10, 1000000) != LIVETIME_STATUS_OK)
        return failed("injecting");
    if (livetime_timing_next(listener, -1, &record) != LIVETIME_STATUS_OK)
        return failed("listening");
    printf("kind %u id %u param %u\n", record.kind, (unsigned)record.id, (unsigned)record.param);
    livetime_timing_close(listener);
    return in_child(opens_its_own);
}
