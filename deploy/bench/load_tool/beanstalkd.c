// beanstalkd's protocol: put, reserve, delete.

#include "load.h"

#include <string.h>

enum { PRIORITY = 1024, TIME_TO_RUN_S = 60 };

static bool request(struct connection *c)
{
    switch (c->operation) {
    case HELLO:
        if (c->hello)
            return false;
        ask(c, false, "", "use %s\r\nwatch %s\r\n", c->target->name, c->target->name);
        return true;
    case PUBLISH:
        ask(c, true, "\r\n", "put %d 0 %d %zu\r\n", PRIORITY, TIME_TO_RUN_S, settings.body_bytes);
        return true;
    case FETCH: // A cycle waits for its message; who fetches all there is does not.
        ask(c, false, "", "reserve-with-timeout %d\r\n", settings.mode == MODE_CYCLE ? 1 : 0);
        return true;
    default:
        ask(c, false, "", "delete %s\r\n", c->id);
        return true;
    }
}

// Both answers of the hello, else one line.
static enum verdict take(struct connection *c, size_t bytes, bool good)
{
    if (good)
        drop(c, bytes);
    return good ? GOOD : BAD;
}

// Takes the id that stands after the line's first word.
static bool take_id(struct connection *c, const char *word)
{
    if (!starts_with(c, word))
        return false;
    const char *id = arrived(c) + strlen(word);
    return keep_id(c->id, id, strspn(id, "0123456789"));
}

static enum verdict answer(struct connection *c)
{
    size_t bytes = line_bytes(c, 0), second;
    if (!bytes)
        return UNFINISHED;
    switch (c->operation) {
    case HELLO:
        second = line_bytes(c, bytes);
        if (!second)
            return UNFINISHED;
        return take(c, bytes + second, starts_with(c, "USING "));
    case PUBLISH:
        return take(c, bytes, take_id(c, "INSERTED "));
    case FETCH:
        if (starts_with(c, "TIMED_OUT")) {
            drop(c, bytes);
            return NOTHING_THERE;
        }
        if (!take_id(c, "RESERVED "))
            return BAD;
        if (number_at(arrived(c) + strlen("RESERVED ") + strlen(c->id) + 1) != settings.body_bytes)
            return BAD;
        c->skip = settings.body_bytes + 2;
        return take(c, bytes, true);
    default:
        return take(c, bytes, starts_with(c, "DELETED\r\n"));
    }
}

const struct protocol beanstalkd = {"beanstalkd", request, answer};
