// The connections, and what each asks in turn. One thread, one epoll.

#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, TICK_MS = 100, SCRATCH_BYTES = 1 << 18 };

static struct figures *figures;
static struct connection *connections;
static char *body;
static char scratch[SCRATCH_BYTES];
static int poll_fd;
static int greeting;        // connections that still say hello: nothing is measured before all have
static int open_count;
static uint64_t now_ns;     // as of the last look: when the answer in hand came
static uint64_t answered_ns, end_ns;
static uint64_t started;    // messages that were begun
static FILE *ids, *ids_out;

static uint64_t look_at_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    now_ns = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    return now_ns;
}

static void fatal(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void leave(struct connection *c)
{
    close(c->fd);
    c->fd = -1;
    open_count--;
}

// Counts an error and ends the connection: what it would be answered next means nothing.
static void fail(struct connection *c, const char *text, size_t bytes)
{
    static const char *const names[] = {"hello", "publish", "fetch", "delete", "empty", "get"};
    if (!figures->errors++) {
        int used = snprintf(figures->first_error, ERROR_BYTES_MAX, "%s: ", names[c->operation]);
        size_t room = ERROR_BYTES_MAX - 1 - (size_t)used;
        bytes = bytes < room ? bytes : room;
        memcpy(figures->first_error + used, text, bytes);
        figures->first_error[(size_t)used + bytes] = 0;
    }
    leave(c);
}

static void fail_with(struct connection *c, const char *text) { fail(c, text, strlen(text)); }

// Sends what is left of the request; the rest when the socket has room again.
static void send_on(struct connection *c)
{
    size_t parts[] = {c->head_bytes, c->body_bytes, c->tail_bytes};
    const char *texts[] = {c->head, body, c->tail};
    struct iovec vector[3];
    int count = 0;
    size_t passed = c->sent_bytes, left = 0;
    for (int i = 0; i < 3; i++) {
        size_t skipped = passed < parts[i] ? passed : parts[i];
        passed -= skipped;
        if (parts[i] > skipped) {
            vector[count++] = (struct iovec){(char *)texts[i] + skipped, parts[i] - skipped};
            left += parts[i] - skipped;
        }
    }
    if (!left)
        return;
    ssize_t sent = writev(c->fd, vector, count);
    if (sent < 0 && errno != EAGAIN) {
        fail_with(c, strerror(errno));
        return;
    }
    c->sent_bytes += sent > 0 ? (size_t)sent : 0;
    bool waits = sent < 0 || (size_t)sent < left;
    if (waits != c->waits_to_send) {
        c->waits_to_send = waits;
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
    }
}

static void begin(struct connection *c, enum operation operation)
{
    c->operation = operation;
    c->began_ns = now_ns;
    c->sent_bytes = 0;
    c->target->protocol->request(c);
    send_on(c);
}

static bool next_id(char *id)
{
    if (!fgets(id, ID_BYTES_MAX, ids))
        return false;
    id[strcspn(id, "\n")] = 0;
    return true;
}

// Begins the next message, or leaves when it is time to.
static void begin_message(struct connection *c)
{
    static const enum operation first[] = {PUBLISH, FETCH, DELETE, PUBLISH, EMPTY, GET};
    if ((end_ns && now_ns >= end_ns) || (settings.messages && started >= settings.messages)
        || (settings.mode == MODE_DELETE && !next_id(c->id))) {
        leave(c);
        return;
    }
    started++;
    c->cycle_began_ns = now_ns;
    begin(c, first[settings.mode]);
}

static void begin_all(void)
{
    figures->began_ns = answered_ns = look_at_clock();
    end_ns = settings.seconds ? now_ns + (uint64_t)(settings.seconds * 1e9) : 0;
    for (int i = 0; i < settings.connections; i++)
        if (connections[i].fd >= 0)
            begin_message(&connections[i]);
}

static void go_on_greeting(struct connection *c)
{
    c->hello++;
    c->sent_bytes = 0;
    c->began_ns = now_ns;
    if (c->target->protocol->request(c))
        send_on(c);
    else if (--greeting == 0)
        begin_all();
}

static void count_message(struct connection *c)
{
    figures->messages++;
    figures->ended_ns = now_ns;
    begin_message(c);
}

// Goes on after an answer.
static void go_on(struct connection *c, enum verdict verdict)
{
    if (c->operation == HELLO) {
        go_on_greeting(c);
        return;
    }
    if (now_ns - answered_ns > figures->stall_ns)
        figures->stall_ns = now_ns - answered_ns;
    answered_ns = now_ns;
    if (verdict == NOTHING_THERE) {
        figures->empty++;
        if (settings.mode == MODE_FETCH) {
            leave(c);
        } else if (now_ns - c->began_ns > settings.answer_wait_s * 1e9) {
            fail_with(c, "what was published cannot be fetched");
        } else { // Asked again; the fetch goes on since it first began.
            uint64_t began_ns = c->began_ns;
            begin(c, FETCH);
            c->began_ns = began_ns;
        }
        return;
    }
    add_sample(&figures->samples[c->operation], now_ns - c->began_ns);
    if (ids_out && (c->operation == PUBLISH || c->operation == FETCH))
        fprintf(ids_out, "%s\n", c->id);
    if (settings.mode == MODE_CYCLE && c->operation != DELETE) {
        begin(c, c->operation == PUBLISH ? FETCH : DELETE);
        return;
    }
    if (settings.mode == MODE_CYCLE)
        add_sample(&figures->samples[CYCLE], now_ns - c->cycle_began_ns);
    count_message(c);
}

// Reads what has come, as far as it goes: answers, and what is thrown away.
static void take_in(struct connection *c)
{
    while (c->fd >= 0) {
        size_t thrown = c->skip < arrived_bytes(c) ? (size_t)c->skip : arrived_bytes(c);
        drop(c, thrown);
        c->skip -= thrown;
        if (c->skip)
            return;
        if (c->verdict == UNFINISHED) {
            char *before = arrived(c);
            size_t bytes = arrived_bytes(c);
            c->verdict = c->target->protocol->answer(c);
            if (c->verdict == BAD)
                fail(c, before, bytes);
            else if (c->verdict == UNFINISHED && !c->skip && arrived(c) == before) {
                if (c->in_from == 0 && c->in_to == IN_BYTES_MAX)
                    fail_with(c, "an answer whose head is too long");
                return;
            }
            continue;
        }
        enum verdict verdict = c->verdict;
        c->verdict = UNFINISHED;
        go_on(c, verdict);
    }
}

static void receive(struct connection *c)
{
    if (c->in_from == c->in_to)
        c->in_from = c->in_to = 0;
    if (c->in_to == IN_BYTES_MAX) {
        memmove(c->in, arrived(c), arrived_bytes(c));
        c->in_to -= c->in_from;
        c->in_from = 0;
    }
    bool skips = c->skip > 0; // take_in() threw away all that had come, so nothing is kept back.
    char *place = skips ? scratch : c->in + c->in_to;
    size_t room = skips ? (c->skip < SCRATCH_BYTES ? (size_t)c->skip : SCRATCH_BYTES)
                        : IN_BYTES_MAX - c->in_to;
    ssize_t got = recv(c->fd, place, room, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        fail_with(c, got ? strerror(errno) : "the server closed the connection");
        return;
    }
    look_at_clock();
    if (skips)
        c->skip -= (uint64_t)got;
    else
        c->in_to += (size_t)got;
    take_in(c);
}

static void connect_to(struct connection *c)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(c->target->host, c->target->port, &hints, &found) != 0) {
        fprintf(stderr, "load: no such host: %s\n", c->target->host);
        exit(2);
    }
    c->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, found->ai_addr, found->ai_addrlen) < 0)
        fatal("cannot connect");
    freeaddrinfo(found);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

static void open_all(void)
{
    connections = calloc((size_t)settings.connections, sizeof *connections);
    body = malloc(settings.body_bytes + 1);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    ids = settings.ids_path ? fopen(settings.ids_path, "r") : NULL;
    ids_out = settings.ids_out_path ? fopen(settings.ids_out_path, "w") : NULL;
    if (!connections || !body || poll_fd < 0 || (settings.ids_path && !ids)
        || (settings.ids_out_path && !ids_out))
        fatal("cannot begin");
    memset(body, 'x', settings.body_bytes);
    greeting = open_count = settings.connections;
    for (int i = 0; i < settings.connections; i++) {
        struct connection *c = &connections[i];
        c->target = &settings.target[i % settings.targets];
        c->number = i;
        c->hello = -1;
        c->tail = "";
        connect_to(c);
    }
    look_at_clock();
    for (int i = 0; i < settings.connections; i++)
        go_on_greeting(&connections[i]);
}

static void end_those_without_answer(void)
{
    for (int i = 0; i < settings.connections; i++) {
        struct connection *c = &connections[i];
        if (c->fd >= 0 && now_ns > c->began_ns
            && (double)(now_ns - c->began_ns) > settings.answer_wait_s * 1e9)
            fail_with(c, "no answer");
    }
}

void run(struct figures *into)
{
    figures = into;
    open_all();
    uint64_t looked_ns = now_ns;
    while (open_count && !(greeting && figures->errors)) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(poll_fd, events, EVENTS_MAX, TICK_MS);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & EPOLLOUT)
                send_on(c);
            if (c->fd >= 0 && events[i].events & ~(uint32_t)EPOLLOUT)
                receive(c);
        }
        if (look_at_clock() - looked_ns > (uint64_t)TICK_MS * 1000000) {
            looked_ns = now_ns;
            end_those_without_answer();
        }
    }
    if (ids_out && fclose(ids_out) != 0)
        fatal("cannot write the ids");
}

size_t line_bytes(struct connection *c, size_t from)
{
    if (from >= arrived_bytes(c))
        return 0;
    char *start = arrived(c) + from, *end = memchr(start, '\n', arrived_bytes(c) - from);
    return end ? (size_t)(end - start) + 1 : 0;
}

bool starts_with(const struct connection *c, const char *text)
{
    size_t bytes = strlen(text);
    return c->in_to - c->in_from >= bytes && memcmp(c->in + c->in_from, text, bytes) == 0;
}

void ask(struct connection *c, bool with_body, const char *tail, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int bytes = vsnprintf(c->head, HEAD_BYTES_MAX, format, values);
    va_end(values);
    if (bytes < 0 || bytes >= HEAD_BYTES_MAX) {
        fprintf(stderr, "load: a request's head is too long\n");
        exit(2);
    }
    c->head_bytes = (size_t)bytes;
    c->body_bytes = with_body ? settings.body_bytes : 0;
    c->tail = tail ? tail : "";
    c->tail_bytes = tail ? strlen(tail) : 1;
}

bool keep_id(char *id, const char *text, size_t bytes)
{
    if (bytes >= ID_BYTES_MAX)
        return false;
    memcpy(id, text, bytes);
    id[bytes] = 0;
    return true;
}

uint64_t number_at(const char *text)
{
    uint64_t number = 0;
    while (*text >= '0' && *text <= '9')
        number = number * 10 + (uint64_t)(*text++ - '0');
    return number;
}
