// STOMP 1.2, as ActiveMQ and RabbitMQ speak it: persistent messages, each SEND and ACK with a
// receipt. The server pushes; with a prefetch of one a connection has one message at a time, which
// may be there before it is asked for.

#include "load.h"

#include <string.h>

static bool hello(struct connection *c)
{
    switch (c->hello) {
    case 0:
        ask(c, false, "",
            "CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\nheart-beat:0,0\n\n%c",
            0);
        return true;
    case 1: // Both servers' words for it; each passes over the other's.
        if (settings.mode != MODE_CYCLE)
            return false;
        ask(c, false, "",
            "SUBSCRIBE\nid:0\ndestination:/queue/%s\nack:client-individual\n"
            "activemq.prefetchSize:1\nprefetch-count:1\n%sreceipt:s\n\n%c",
            c->target->name, c->target->more, 0);
        return true;
    default:
        return false;
    }
}

static bool request(struct connection *c)
{
    switch (c->operation) {
    case HELLO:
        return hello(c);
    case PUBLISH:
        ask(c, true, NULL,
            "SEND\ndestination:/queue/%s\npersistent:true\n%sreceipt:p\n"
            "content-type:application/octet-stream\ncontent-length:%zu\n\n",
            c->target->name, c->target->more, settings.body_bytes);
        return true;
    case DELETE:
        ask(c, false, "", "ACK\nid:%s\nreceipt:a\n\n%c", c->id, 0);
        return true;
    default: // It comes by itself.
        ask(c, false, "", "%s", "");
        return true;
    }
}

// The length of a frame's head up to its blank line's end; 0: not all there yet.
static size_t head_bytes(struct connection *c)
{
    size_t at = 0, bytes;
    while ((bytes = line_bytes(c, at))) {
        at += bytes;
        if (bytes == 1 || (bytes == 2 && arrived(c)[at - 2] == '\r'))
            return at;
    }
    return 0;
}

// The value of a header ("\nname:"), to the end of its line; NULL when it is not there.
static const char *header(struct connection *c, size_t head, const char *name, size_t *bytes)
{
    const char *value = memmem(arrived(c), head, name, strlen(name));
    if (!value)
        return NULL;
    value += strlen(name);
    *bytes = strcspn(value, "\r\n");
    return value;
}

static enum verdict message(struct connection *c, size_t head)
{
    size_t bytes;
    const char *length = header(c, head, "\ncontent-length:", &bytes);
    if (!length || number_at(length) != settings.body_bytes)
        return BAD;
    const char *id = header(c, head, "\nack:", &bytes);
    if (!id || c->given_id[0] || !keep_id(c->given_id, id, bytes))
        return BAD;
    drop(c, head);
    c->skip = settings.body_bytes + 1;
    return UNFINISHED; // answer() is asked again when the body has gone by.
}

// A frame that has no body, and its 0.
static enum verdict plain(struct connection *c, size_t head)
{
    if (arrived_bytes(c) <= head)
        return UNFINISHED;
    bool ends = arrived(c)[head] == 0;
    drop(c, head + 1);
    return ends ? GOOD : BAD;
}

static enum verdict answer(struct connection *c)
{
    if (c->operation == FETCH && c->given_id[0]) {
        keep_id(c->id, c->given_id, strlen(c->given_id));
        c->given_id[0] = 0;
        return GOOD;
    }
    while (arrived_bytes(c) && (*arrived(c) == '\n' || *arrived(c) == '\r'))
        drop(c, 1); // Between frames.
    size_t head = head_bytes(c), bytes;
    if (!head)
        return UNFINISHED;
    if (starts_with(c, "MESSAGE"))
        return message(c, head);
    if (starts_with(c, "CONNECTED"))
        return c->operation == HELLO && c->hello == 0 ? plain(c, head) : BAD;
    if (starts_with(c, "RECEIPT")) {
        const char *id = header(c, head, "\nreceipt-id:", &bytes);
        char expected = c->operation == PUBLISH ? 'p' : c->operation == DELETE ? 'a' : 's';
        return id && bytes == 1 && *id == expected ? plain(c, head) : BAD;
    }
    return BAD;
}

const struct protocol stomp = {"stomp", request, answer};
