// One generator of load for every server: C connections, each with one request at a time.
//
// main.c reads the flags and prints the figures, loop.c has the connections and what they ask in
// turn, samples.c the latencies; a protocol is one file, and knows nothing but how a request is
// written and how an answer is read.

#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// HELLO is what a protocol says before it is asked for anything; it is not measured.
enum operation { HELLO, PUBLISH, FETCH, DELETE, EMPTY, GET, CYCLE, OPERATIONS };

enum mode { MODE_PUBLISH, MODE_FETCH, MODE_DELETE, MODE_CYCLE, MODE_EMPTY, MODE_GET };

// What an answer says. UNFINISHED: it is not all there yet.
enum verdict { UNFINISHED, GOOD, NOTHING_THERE, BAD };

enum { HEAD_BYTES_MAX = 2048, ID_BYTES_MAX = 256, IN_BYTES_MAX = 16384, ERROR_BYTES_MAX = 300 };

struct connection;

struct protocol {
    const char *scheme;
    // Writes the request for connection->operation (head, body, tail), or nothing where the
    // server sends what is asked for by itself. HELLO: false when there is no more to say.
    bool (*request)(struct connection *);
    // Reads the answer as far as it is there: drops what it read, sets `skip` to what follows
    // and does not matter, and, of a message, `id`.
    enum verdict (*answer)(struct connection *);
};

extern const struct protocol http, beanstalkd, redis, nats, stomp;

// One server: scheme://host:port/name, for STOMP with ?header:value&header:value.
struct target {
    const struct protocol *protocol;
    char host[128], port[8], name[256];
    char more[128]; // STOMP: headers of SEND and SUBSCRIBE, each with its "\n"
};

// What is asked of the run.
struct settings {
    enum mode mode;
    int connections;
    double seconds;       // 0: no limit
    uint64_t messages;    // 0: no limit
    size_t body_bytes;
    double answer_wait_s; // a request without an answer for so long is an error
    const char *ids_path, *ids_out_path;
    const char *token_line; // HTTP: the header of MQ_TOKEN, or ""
    int targets;
    struct target target[16];
};

struct connection {
    const struct target *target;
    int number, fd;
    enum operation operation;
    int hello;                       // which step of HELLO
    uint64_t cycle_began_ns, began_ns;
    char id[ID_BYTES_MAX];           // of the message that was published or fetched last
    char given_id[ID_BYTES_MAX];     // pushed by the server before it was asked for
    bool owes_pong;

    // The request: what is still to be sent of head, body and tail.
    char head[HEAD_BYTES_MAX];
    const char *tail;
    size_t head_bytes, body_bytes, tail_bytes, sent_bytes;
    bool waits_to_send;

    // The answer: what has come and was not read, and how much of what comes is thrown away.
    char in[IN_BYTES_MAX];
    size_t in_from, in_to;
    uint64_t skip;
    enum verdict verdict;
};

// How long one kind of operation took, each time, in tenths of a microsecond.
struct samples {
    uint32_t *all;
    size_t count, room;
};

struct figures {
    uint64_t messages, errors, empty;
    char first_error[ERROR_BYTES_MAX];
    uint64_t began_ns, ended_ns;     // from the first request to the last answer that counted
    uint64_t stall_ns;               // the longest time in which no connection was answered
    struct samples samples[OPERATIONS];
};

extern struct settings settings;

// loop.c
void run(struct figures *);
// samples.c
void add_sample(struct samples *, uint64_t ns);
void sort_samples(struct samples *);
double percentile_us(const struct samples *, double share); // of sorted ones; 1.0 is the longest

// For the protocols: what has come and was not read yet.
static inline char *arrived(struct connection *c) { return c->in + c->in_from; }
static inline size_t arrived_bytes(const struct connection *c) { return c->in_to - c->in_from; }
static inline void drop(struct connection *c, size_t bytes) { c->in_from += bytes; }
// The length of the line at `from` of what has come, its "\n" included; 0: not all there yet.
size_t line_bytes(struct connection *, size_t from);
bool starts_with(const struct connection *, const char *text);
// Sets the request's head, as printf does; with `with_body` the body follows, then `tail` (NULL: a
// byte that is 0).
void ask(struct connection *, bool with_body, const char *tail, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Keeps `bytes` of text as an id; false where it is too long.
bool keep_id(char *id, const char *text, size_t bytes);
// The number at the start of text.
uint64_t number_at(const char *text);

#endif
