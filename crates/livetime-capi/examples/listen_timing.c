/* Listens to the timing daemon at the address given, injects three messages and prints them. */

#include <inttypes.h>
#include <stdio.h>

#include "livetime.h"

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, livetime_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    livetime_timing_filter filter = {0};
    livetime_timing_listener *listener = NULL;

    filter.id = UINT64_C(0x1123000000000000);
    filter.mask = UINT64_C(0xffff000000000000);
    if (livetime_timing_open(argc > 1 ? argv[1] : NULL, &filter, &listener)
        != LIVETIME_STATUS_OK) {
        return failed("open");
    }
    for (uint64_t n = 0; n < 3; n++) {
        livetime_timing_record record;
        livetime_status status =
            livetime_timing_inject(listener, filter.id | n, 100 + n, 2000000);
        if (status != LIVETIME_STATUS_OK) {
            livetime_timing_close(listener);
            return failed("inject");
        }
        status = livetime_timing_next(listener, 30000, &record);
        if (status != LIVETIME_STATUS_OK || record.kind != 1) {
            livetime_timing_close(listener);
            return failed("next");
        }
        printf("message 0x%016" PRIx64 " param %" PRIu64 " number %" PRIu64 "\n", record.id,
               record.param, record.sequence);
    }
    livetime_timing_close(listener);
    return 0;
}
