/* A child closes its copy of a listener, and its parent's goes on. The argument is the daemon's
 * address. */
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

int main(int count, char **arguments) {
    livetime_timing_filter filter;
    livetime_timing_listener *listener = NULL;
    livetime_timing_record record;
    int child = 0;

    memset(&filter, 0, sizeof filter);
    if (count != 2 || livetime_timing_open(arguments[1], &filter, &listener) != LIVETIME_STATUS_OK)
        return failed("opening");
    switch (fork()) {
    case -1:
        return failed("forking");
    case 0:
        if (livetime_timing_inject(listener, 8, 8, 1000000) != LIVETIME_STATUS_ERROR_ARGUMENT)
            _exit(2);
        if (strstr(livetime_last_error(), "of process") == NULL)
            _exit(3);
        livetime_timing_close(listener);
        _exit(0);
    default:
        break;
    }
    if (wait(&child) < 0 || child != 0) {
        fprintf(stderr, "the child ended with %d\n", child);
        return 1;
    }
    if (livetime_timing_inject(listener, 9, 10, 1000000) != LIVETIME_STATUS_OK)
        return failed("injecting");
    if (livetime_timing_next(listener, -1, &record) != LIVETIME_STATUS_OK)
        return failed("listening");
    printf("kind %u id %u param %u\n", record.kind, (unsigned)record.id, (unsigned)record.param);
    livetime_timing_close(listener);
    return 0;
}
