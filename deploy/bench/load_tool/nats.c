// NATS JetStream: publish to a stream's subject, pull one message of a consumer, acknowledge it and
// wait until that was heard. The stream is named as its subject, the consumer "mq"; both are there.

#include "load.h"

#include <string.h>

static const char consumer[] = "mq";

static bool hello(struct connection *c)
{
    switch (c->hello) {
    case 0: // The server speaks first.
        return true;
    case 1:
        ask(c, false, "",
            "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
            "\"no_responders\":true}\r\nSUB _INBOX.%d 1\r\nPING\r\n",
            c->number);
        return true;
    default:
        return false;
    }
}

static bool request(struct connection *c)
{
    const char *name = c->target->name, *pong = c->owes_pong ? "PONG\r\n" : "";
    // A cycle waits for its message; who fetches all there is does not.
    const char *pull = settings.mode == MODE_CYCLE ? "{\"batch\":1,\"expires\":1000000000}"
                                                   : "{\"batch\":1,\"no_wait\":true}";
    if (c->operation == HELLO)
        return hello(c);
    c->owes_pong = false;
    switch (c->operation) {
    case PUBLISH:
        ask(c, true, "\r\n", "%sPUB %s _INBOX.%d %zu\r\n", pong, name, c->number,
            settings.body_bytes);
        return true;
    case FETCH:
        ask(c, false, "", "%sPUB $JS.API.CONSUMER.MSG.NEXT.%s.%s _INBOX.%d %zu\r\n%s\r\n", pong,
            name, consumer, c->number, strlen(pull), pull);
        return true;
    default:
        ask(c, false, "", "%sPUB %s _INBOX.%d 4\r\n+ACK\r\n", pong, c->id, c->number);
        return true;
    }
}

static bool holds(const char *text, size_t bytes, const char *what)
{
    return memmem(text, bytes, what, strlen(what)) != NULL;
}

// A message whose head line is `bytes` long: MSG subject sid [reply] bytes, HMSG ... bytes.
static enum verdict message(struct connection *c, size_t bytes)
{
    char *line = arrived(c), *last = line + bytes - 2, *reply, *reply_end;
    while (last[-1] != ' ')
        last--;
    uint64_t payload = number_at(last);
    if (c->operation == FETCH && starts_with(c, "MSG ")) {
        reply_end = last - 1;
        reply = reply_end;
        while (reply[-1] != ' ')
            reply--;
        if (payload != settings.body_bytes || memcmp(reply, "$JS.ACK.", 8) != 0
            || !keep_id(c->id, reply, (size_t)(reply_end - reply)))
            return BAD;
        drop(c, bytes);
        c->skip = payload + 2;
        return GOOD;
    }
    if (arrived_bytes(c) < bytes + payload + 2)
        return UNFINISHED;
    const char *text = line + bytes;
    enum verdict verdict = BAD;
    if (c->operation == PUBLISH && holds(text, payload, "\"seq\":")
        && !holds(text, payload, "\"error\""))
        verdict = GOOD;
    if (c->operation == DELETE && payload == 0 && starts_with(c, "MSG "))
        verdict = GOOD;
    if (c->operation == FETCH
        && (holds(text, payload, "NATS/1.0 404") || holds(text, payload, "NATS/1.0 408")))
        verdict = NOTHING_THERE;
    if (verdict != BAD)
        drop(c, bytes + payload + 2);
    return verdict;
}

static enum verdict answer(struct connection *c)
{
    size_t bytes = line_bytes(c, 0);
    if (!bytes)
        return UNFINISHED;
    if (c->operation == HELLO && starts_with(c, c->hello ? "PONG\r\n" : "INFO ")) {
        drop(c, bytes);
        return GOOD;
    }
    if (starts_with(c, "PING\r\n") || starts_with(c, "INFO ")) {
        c->owes_pong |= starts_with(c, "PING"); // Sent with the next request.
        drop(c, bytes);
        return UNFINISHED;
    }
    if (c->operation != HELLO && (starts_with(c, "MSG ") || starts_with(c, "HMSG ")))
        return message(c, bytes);
    return BAD;
}

const struct protocol nats = {"nats", request, answer};
