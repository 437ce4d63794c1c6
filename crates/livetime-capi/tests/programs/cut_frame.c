// A frame that is not sent whole: cut_frame PORT. Says "cut" then, and goes on with a line of its input.

#define _POSIX_C_SOURCE 200809L
#include <livetime_front_end.h>
#include <stdlib.h>
#include <sys/time.h>

int main(int argc, char **argv) {
    livetime_front_end front_end;
    struct timeval shortly = {0, 1000};
    uint32_t *words, next[1] = {7}, count;
    int cut, after;
    if (argc != 2 || livetime_front_end_open(&front_end, "127.0.0.1", argv[1]) != LIVETIME_FRONT_END_OK)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    // More than the kernel takes of one that nobody reads.
    count = front_end.words_max;
    words = calloc(count, sizeof *words);
    setsockopt(front_end.socket, SOL_SOCKET, SO_SNDTIMEO, &shortly, sizeof shortly);
    cut = livetime_front_end_send(&front_end, 5, 1, 0, 0, words, count);
    printf("cut\n%s\n", front_end.error);
    getchar();
    after = livetime_front_end_send(&front_end, 5, 2, 0, 0, next, 1);
    printf("%d %d %d %s\n", cut, after, livetime_front_end_close(&front_end), front_end.error);
    // Another stream goes on, and is closed when it was read.
    if (livetime_front_end_open(&front_end, "127.0.0.1", argv[1]) != LIVETIME_FRONT_END_OK)
        return 2;
    after = livetime_front_end_send(&front_end, 5, 2, 0, 0, next, 1);
    printf("%d %d\n", after, livetime_front_end_close(&front_end));
    free(words);
    return 0;
}
