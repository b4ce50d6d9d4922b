// Redis: a stream with a consumer group as the queue. XADD; XREADGROUP; XACK and XDEL at once.

#include "load.h"

#include <string.h>

static const char group[] = "mq";

static bool request(struct connection *c)
{
    const char *name = c->target->name;
    size_t name_bytes = strlen(name);
    switch (c->operation) {
    case HELLO:
        if (c->hello)
            return false;
        ask(c, false, "", "XGROUP CREATE %s %s 0 MKSTREAM\r\n", name, group);
        return true;
    case PUBLISH:
        ask(c, true, "\r\n",
            "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$4\r\nbody\r\n$%zu\r\n", name_bytes, name,
            settings.body_bytes);
        return true;
    case FETCH:
        ask(c, false, "", "XREADGROUP GROUP %s c%d COUNT 1 STREAMS %s >\r\n", group, c->number,
            name);
        return true;
    default:
        ask(c, false, "", "XACK %s %s %s\r\nXDEL %s %s\r\n", name, group, c->id, name, c->id);
        return true;
    }
}

// Takes a bulk string of a few bytes, such as an id; 0: not all there yet.
static size_t bulk_bytes(struct connection *c, size_t from, char *into)
{
    size_t head = line_bytes(c, from);
    if (!head || arrived(c)[from] != '$')
        return 0;
    size_t bytes = number_at(arrived(c) + from + 1);
    if (from + head + bytes + 2 > arrived_bytes(c) || !keep_id(into, arrived(c) + from + head, bytes))
        return 0;
    return head + bytes + 2;
}

// [[stream, [[id, [field, body]]]]]: up to the body, which is thrown away.
static enum verdict fetched(struct connection *c)
{
    static const char *const shape[] = {"*1", "*2", "$", "*1", "*2", "id", "*2", "$"};
    char other[ID_BYTES_MAX];
    size_t at = 0, bytes;
    if (starts_with(c, "*-1\r\n")) {
        drop(c, 5);
        return NOTHING_THERE;
    }
    if (arrived(c)[0] != '*')
        return BAD;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        bool array = shape[i][0] == '*';
        bytes = array ? line_bytes(c, at) : bulk_bytes(c, at, shape[i][0] == 'i' ? c->id : other);
        if (!bytes)
            return UNFINISHED;
        if (array && memcmp(arrived(c) + at, shape[i], 2) != 0)
            return BAD;
        at += bytes;
    }
    bytes = line_bytes(c, at);
    if (!bytes)
        return UNFINISHED;
    if (number_at(arrived(c) + at + 1) != settings.body_bytes)
        return BAD;
    drop(c, at + bytes);
    c->skip = settings.body_bytes + 2;
    return GOOD;
}

static enum verdict answer(struct connection *c)
{
    size_t bytes = line_bytes(c, 0), added;
    if (!bytes)
        return UNFINISHED;
    switch (c->operation) {
    case HELLO: // The group may be there already.
        if (!starts_with(c, "+OK") && !starts_with(c, "-BUSYGROUP"))
            return BAD;
        drop(c, bytes);
        return GOOD;
    case PUBLISH:
        if (arrived(c)[0] != '$')
            return BAD;
        added = bulk_bytes(c, 0, c->id);
        drop(c, added);
        return added ? GOOD : UNFINISHED;
    case FETCH:
        return fetched(c);
    default: // One was acknowledged, and one deleted.
        if (arrived_bytes(c) < 8)
            return arrived(c)[0] == ':' ? UNFINISHED : BAD;
        if (!starts_with(c, ":1\r\n:1\r\n"))
            return BAD;
        drop(c, 8);
        return GOOD;
    }
}

const struct protocol redis = {"redis", request, answer};
