// A front-end of your own in C: what it sends into a run whose source is of kind = "external".
//
// This header is all there is: include it, nothing is linked. C99 or C++ on a system with POSIX
// sockets (with -std=c99 or -std=c11, define _POSIX_C_SOURCE as 200809L first). The words are those of
// docs/formats/front-end-frame.md, the guide is docs/integrator.md, an example
// examples/send_front_end.c of the crate.

#ifndef LIVETIME_FRONT_END_H
#define LIVETIME_FRONT_END_H

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian: swap the words before they are sent"
#endif

#ifndef MSG_NOSIGNAL
// Where there is none, ignore SIGPIPE yourself.
#define MSG_NOSIGNAL 0
#endif

#ifndef LIVETIME_FRONT_END_CLOSE_SECONDS
// How long livetime_front_end_close waits for the run; define it before, if that is not yours.
#define LIVETIME_FRONT_END_CLOSE_SECONDS 30
#endif

// What a call came to.
enum {
    LIVETIME_FRONT_END_OK = 0,
    // The run takes no more triggers; `last_trigger` is the last one that it took.
    LIVETIME_FRONT_END_RUN_ENDED = 1,
    // It does not take what was sent, or is gone: `error` says why.
    LIVETIME_FRONT_END_ERROR = -1,
};

// A stream to a run. One thread at a time may use it; several streams share nothing.
typedef struct {
    // -1 once nothing can be sent or heard any more.
    int socket;
    // Number of the run.
    uint32_t run;
    // Most words of data for one trigger.
    uint32_t words_max;
    // The first trigger that is of use: earlier ones have passed.
    uint64_t first_trigger;
    // The last trigger that the run took, once it has ended.
    uint64_t last_trigger;
    // What went wrong last.
    char error[160];
} livetime_front_end;

static inline int livetime_front_end_fail(livetime_front_end *front_end, const char *what, const char *why) {
    snprintf(front_end->error, sizeof front_end->error, "%s: %s", what, why);
    return LIVETIME_FRONT_END_ERROR;
}

// Ends a stream that cannot go on.
static inline void livetime_front_end_drop(livetime_front_end *front_end) {
    if (front_end->socket >= 0)
        close(front_end->socket);
    front_end->socket = -1;
}

// Reads an answer of the run, which is there or will be.
static inline int livetime_front_end_answer(livetime_front_end *front_end, uint32_t answer[6]) {
    size_t have = 0;
    while (have < 24) {
        ssize_t came = recv(front_end->socket, (char *)answer + have, 24 - have, 0);
        if (came < 0 && errno == EINTR)
            continue;
        if (came <= 0)
            return livetime_front_end_fail(front_end, "the run is gone", came < 0 ? strerror(errno) : "its stream has ended");
        have += (size_t)came;
    }
    if (answer[0] != 0x4C464101u)
        return livetime_front_end_fail(front_end, "answer", "what answers is no run that takes front-ends");
    return LIVETIME_FRONT_END_OK;
}

// Takes what the run has said, if anything; waits for it if told to.
static inline int livetime_front_end_hear(livetime_front_end *front_end, int waits) {
    static const char *const reasons[] = {
        "for no reason that is known here",
        "the words are not a front-end frame of version 1",
        "no link of the run has this source id",
        "more data words than a fragment of this run may have",
        "the frame is for another run",
        "trigger numbers begin with 1 in each run",
        "the trigger number is too far ahead of the run's: numbers begin with 1 in each run",
    };
    uint32_t answer[6];
    char first;
    ssize_t there = recv(front_end->socket, &first, 1, MSG_PEEK | (waits ? 0 : MSG_DONTWAIT));
    if (there < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return LIVETIME_FRONT_END_OK;
    if (livetime_front_end_answer(front_end, answer) != LIVETIME_FRONT_END_OK)
        return LIVETIME_FRONT_END_ERROR;
    front_end->last_trigger = (uint64_t)answer[5] << 32 | answer[4];
    if (answer[1] == 2)
        return LIVETIME_FRONT_END_RUN_ENDED;
    if (answer[1] == 3)
        return livetime_front_end_fail(front_end, "the run refuses a frame", reasons[answer[3] < 7 ? answer[3] : 0]);
    return LIVETIME_FRONT_END_OK;
}

// Opens a stream to a run that is taking data at this host and port (names or numbers), and waits for
// its welcome. Close it whatever the outcome.
static inline int livetime_front_end_open(livetime_front_end *front_end, const char *host, const char *port) {
    struct addrinfo wanted, *found = NULL, *at;
    uint32_t answer[6];
    int one = 1, code, outcome;
    memset(front_end, 0, sizeof *front_end);
    front_end->socket = -1;
    memset(&wanted, 0, sizeof wanted);
    wanted.ai_socktype = SOCK_STREAM;
    code = getaddrinfo(host, port, &wanted, &found);
    if (code != 0)
        return livetime_front_end_fail(front_end, host, gai_strerror(code));
    for (at = found; at != NULL && front_end->socket < 0; at = at->ai_next) {
        int opened = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (opened >= 0 && connect(opened, at->ai_addr, at->ai_addrlen) == 0) {
            front_end->socket = opened;
        } else {
            livetime_front_end_fail(front_end, host, strerror(errno));
            if (opened >= 0)
                close(opened);
        }
    }
    freeaddrinfo(found);
    if (front_end->socket < 0)
        return LIVETIME_FRONT_END_ERROR;
    setsockopt(front_end->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    outcome = livetime_front_end_answer(front_end, answer);
    if (outcome == LIVETIME_FRONT_END_OK && answer[1] != 1)
        outcome = livetime_front_end_fail(front_end, host, "the run does not welcome front-ends");
    if (outcome != LIVETIME_FRONT_END_OK) {
        livetime_front_end_drop(front_end);
        return outcome;
    }
    front_end->run = answer[2];
    front_end->words_max = answer[3];
    front_end->first_trigger = (uint64_t)answer[5] << 32 | answer[4];
    return LIVETIME_FRONT_END_OK;
}

static inline int livetime_front_end_frame(livetime_front_end *front_end, const uint32_t header[8],
                                           const uint32_t *words, size_t count) {
    struct iovec parts[2];
    struct msghdr message;
    size_t left = 32 + 4 * count;
    int heard;
    if (front_end->socket < 0)
        return livetime_front_end_fail(front_end, "send", "the stream is closed, or an earlier call has told of its end");
    heard = livetime_front_end_hear(front_end, 0);
    if (heard != LIVETIME_FRONT_END_OK) {
        livetime_front_end_drop(front_end);
        return heard;
    }
    parts[0].iov_base = (void *)header;
    parts[0].iov_len = 32;
    parts[1].iov_base = (void *)words;
    parts[1].iov_len = 4 * count;
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    while (left > 0) {
        ssize_t sent = sendmsg(front_end->socket, &message, MSG_NOSIGNAL);
        size_t part;
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            int why = errno;
            heard = livetime_front_end_hear(front_end, why == EPIPE || why == ECONNRESET);
            if (heard == LIVETIME_FRONT_END_OK)
                heard = livetime_front_end_fail(front_end, "the frame was not sent whole", strerror(why));
            // The next frame would fill the rest of this one.
            livetime_front_end_drop(front_end);
            return heard;
        }
        left -= (size_t)sent;
        for (part = 0; part < 2; part++) {
            size_t done = (size_t)sent < parts[part].iov_len ? (size_t)sent : parts[part].iov_len;
            parts[part].iov_base = (char *)parts[part].iov_base + done;
            parts[part].iov_len -= done;
            sent -= (ssize_t)done;
        }
    }
    return LIVETIME_FRONT_END_OK;
}

// Sends the data of a source for a trigger, which counts from 1 in each run. `event_type` and `status`
// (0 = good, below 2^31) go into the fragment's header and trailer. Waits while the run, or the
// slowest front-end, holds it up. After a frame that was not sent whole the stream is closed: the next one
// would fill its rest.
static inline int livetime_front_end_send(livetime_front_end *front_end, uint32_t source, uint64_t trigger,
                                          uint32_t event_type, uint32_t status, const uint32_t *words, uint32_t count) {
    uint32_t header[8];
    if (count > front_end->words_max)
        return livetime_front_end_fail(front_end, "send", "more data words than a fragment of this run may have");
    header[0] = 0x4C464601u;
    header[1] = front_end->run;
    header[2] = source;
    header[3] = count;
    header[4] = (uint32_t)trigger;
    header[5] = (uint32_t)(trigger >> 32);
    header[6] = event_type;
    header[7] = status;
    return livetime_front_end_frame(front_end, header, words, count);
}

// Says that a source sends nothing after this trigger. The run ends when all its sources have said so.
static inline int livetime_front_end_end(livetime_front_end *front_end, uint32_t source, uint64_t last_trigger) {
    uint32_t header[8];
    memset(header, 0, sizeof header);
    header[0] = 0x4C464601u;
    header[1] = front_end->run;
    header[2] = source;
    header[3] = 0xFFFFFFFFu;
    header[4] = (uint32_t)last_trigger;
    header[5] = (uint32_t)(last_trigger >> 32);
    return livetime_front_end_frame(front_end, header, NULL, 0);
}

// Ends the stream, and waits until the run has read it: LIVETIME_FRONT_END_OK when it has read all that
// was sent, or an earlier call has told why it does not; LIVETIME_FRONT_END_RUN_ENDED when it has ended;
// LIVETIME_FRONT_END_ERROR when it refused something of it, is gone, or has not read it in
// LIVETIME_FRONT_END_CLOSE_SECONDS. The kernel then goes on with what it has, as long as this machine and
// the run are there.
static inline int livetime_front_end_close(livetime_front_end *front_end) {
    int outcome = LIVETIME_FRONT_END_OK;
    struct timespec now;
    long long until, at;
    if (front_end->socket < 0)
        return LIVETIME_FRONT_END_OK;
    clock_gettime(CLOCK_MONOTONIC, &now);
    until = (LIVETIME_FRONT_END_CLOSE_SECONDS + (long long)now.tv_sec) * 1000 + now.tv_nsec / 1000000;
    // Closed while there is something to read, a socket drops what it has not sent yet.
    shutdown(front_end->socket, SHUT_WR);
    for (;;) {
        struct pollfd there;
        char first;
        clock_gettime(CLOCK_MONOTONIC, &now);
        at = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
        there.fd = front_end->socket;
        there.events = POLLIN;
        there.revents = 0;
        if (at >= until || poll(&there, 1, (int)(until - at)) == 0) {
            outcome = livetime_front_end_fail(front_end, "close", "the run has not read all that was sent yet");
            break;
        }
        if (there.revents == 0)
            continue;
        if (recv(front_end->socket, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            break;
        outcome = livetime_front_end_hear(front_end, 0);
        if (outcome != LIVETIME_FRONT_END_OK)
            break;
    }
    livetime_front_end_drop(front_end);
    return outcome;
}

#endif // LIVETIME_FRONT_END_H
