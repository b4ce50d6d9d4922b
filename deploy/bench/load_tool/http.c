// HTTP/1.1 with keep-alive: mq's publish, fetch and delete; any server's empty POST and GET.

#include "load.h"

#include <string.h>
#include <strings.h>

static bool request(struct connection *c)
{
    const char *name = c->target->name, *host = c->target->host, *port = c->target->port,
               *token = settings.token_line;
    switch (c->operation) {
    case PUBLISH:
        ask(c, true, "",
            "POST /%s HTTP/1.1\r\nHost: %s:%s\r\n%sContent-Type: application/octet-stream\r\n"
            "Content-Length: %zu\r\n\r\n",
            name, host, port, token, settings.body_bytes);
        return true;
    case EMPTY:
        ask(c, false, "", "POST /%s HTTP/1.1\r\nHost: %s:%s\r\n%sContent-Length: 0\r\n\r\n", name,
            host, port, token);
        return true;
    case FETCH:
    case GET:
        ask(c, false, "", "GET /%s HTTP/1.1\r\nHost: %s:%s\r\n%s\r\n", name, host, port,
            token);
        return true;
    case DELETE:
        ask(c, false, "", "DELETE /%s/%s HTTP/1.1\r\nHost: %s:%s\r\n%s\r\n", name, c->id, host,
            port, token);
        return true;
    default:
        return false; // Nothing to say before.
    }
}

// The value of a header in the head, and its length; NULL when it is not there.
static const char *header(const char *head, size_t bytes, const char *name, size_t *value_bytes)
{
    size_t name_bytes = strlen(name);
    const char *end = head + bytes, *line = memchr(head, '\n', bytes);
    while (line && ++line + name_bytes < end) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next)
            return NULL;
        if (strncasecmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            const char *value = line + name_bytes + 1;
            while (*value == ' ')
                value++;
            *value_bytes = (size_t)(next - value) - (next[-1] == '\r');
            return value;
        }
        line = next;
    }
    return NULL;
}

static enum verdict judge(struct connection *c, uint64_t status, uint64_t body, const char *id,
                          size_t id_bytes)
{
    switch (c->operation) {
    case PUBLISH:
        return status == 201 && id && keep_id(c->id, id, id_bytes) ? GOOD : BAD;
    case FETCH:
        if (status == 204)
            return NOTHING_THERE;
        if (body != settings.body_bytes)
            return BAD;
        return status == 200 && id && keep_id(c->id, id, id_bytes) ? GOOD : BAD;
    case DELETE:
        return status == 202 ? GOOD : BAD;
    default:
        return status == 200 ? GOOD : BAD;
    }
}

static enum verdict answer(struct connection *c)
{
    char *head = arrived(c), *blank = memmem(head, arrived_bytes(c), "\r\n\r\n", 4);
    if (!blank)
        return UNFINISHED;
    size_t bytes = (size_t)(blank - head) + 4, length_bytes, id_bytes = 0;
    if (!starts_with(c, "HTTP/1.1 "))
        return BAD;
    uint64_t status = number_at(head + 9);
    const char *length = header(head, bytes, "Content-Length", &length_bytes);
    const char *id = header(head, bytes, "X-Message-Id", &id_bytes);
    if (!length && status != 204) // Chunks are not read: no server here sends them.
        return BAD;
    uint64_t body = length ? number_at(length) : 0;
    enum verdict verdict = judge(c, status, body, id, id_bytes);
    drop(c, bytes);
    c->skip = body;
    return verdict;
}

const struct protocol http = {"http", request, answer};
