// load --mode=MODE [flags] URL...: asks servers, and prints one line of JSON.

#include "load.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct settings settings = {
    .connections = 64, .body_bytes = 300, .answer_wait_s = 30,
};

static const char *const modes[] = {"publish", "fetch", "delete", "cycle", "empty", "get"};
static const struct protocol *const protocols[] = {&http, &beanstalkd, &redis, &nats, &stomp};

static const char usage[] =
    "load --mode=MODE [flags] URL...\n"
    "\n"
    "  --mode=publish       each connection publishes\n"
    "         fetch         fetches until there is nothing (not STOMP)\n"
    "         delete        deletes the messages whose ids stand in a file (not NATS, not STOMP)\n"
    "         cycle         publishes, fetches one, deletes what it fetched\n"
    "         empty, get    HTTP only: a POST without a body, a GET\n"
    "  --connections=64     kept open, each with one request at a time, shared out to the URLs\n"
    "  --seconds=S          begins nothing more after so long; what was begun is waited for\n"
    "  --messages=M         begins no more than M\n"
    "  --body=300           bytes published, and expected when fetched\n"
    "  --ids=FILE           of --mode=delete, one a line\n"
    "  --ids-out=FILE       where the ids of what was published or fetched go\n"
    "  --answer-wait=30     seconds; a request without an answer for so long is an error\n"
    "  URL                  http://HOST:PORT/QUEUE/messages, or beanstalkd, redis, nats and stomp\n"
    "                       ://HOST:PORT/QUEUE (stomp: ?HEADER:VALUE&... for SEND and SUBSCRIBE)\n"
    "  MQ_TOKEN             in the environment: the bearer token of HTTP\n";

static void refuse(const char *what)
{
    fprintf(stderr, "load: %s\n\n%s", what, usage);
    exit(2);
}

static enum mode parse_mode(const char *text)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(text, modes[i]) == 0)
            return (enum mode)i;
    refuse("no such mode");
    return 0;
}

static struct target parse_target(const char *url)
{
    struct target target = {0};
    char scheme[16];
    int used = 0;
    if (sscanf(url, "%15[a-z]://%127[^:/]:%7[0-9]/%n", scheme, target.host, target.port, &used) < 3
        || !used)
        refuse("a URL is scheme://host:port/name");
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (strcmp(scheme, protocols[i]->scheme) == 0)
            target.protocol = protocols[i];
    if (!target.protocol)
        refuse("no such protocol");
    size_t name_bytes = strlen(url + used);
    const char *question = target.protocol == &stomp ? strchr(url + used, '?') : NULL;
    if (question) {
        name_bytes = (size_t)(question - (url + used));
        snprintf(target.more, sizeof target.more, "%s\n", question + 1);
        for (char *and; (and = strchr(target.more, '&'));)
            *and = '\n';
    }
    if (name_bytes >= sizeof target.name)
        refuse("a name is too long");
    memcpy(target.name, url + used, name_bytes);
    return target;
}

// A token that does not fit is cut here, and ask() refuses its head.
static const char *token_line(void)
{
    static char line[HEAD_BYTES_MAX + 1];
    const char *token = getenv("MQ_TOKEN");
    if (token)
        snprintf(line, sizeof line, "Authorization: Bearer %s\r\n", token);
    return line;
}

static void check(void)
{
    if (!settings.targets)
        refuse("a URL is missing");
    if (settings.connections < 1)
        refuse("at least one connection");
    for (int i = 0; i < settings.targets; i++) {
        const struct protocol *protocol = settings.target[i].protocol;
        bool plain = settings.mode == MODE_PUBLISH || settings.mode == MODE_CYCLE;
        if ((settings.mode >= MODE_EMPTY && protocol != &http) || (!plain && protocol == &stomp)
            || (settings.mode == MODE_DELETE && protocol == &nats))
            refuse("this protocol has no such mode");
    }
    if ((settings.mode == MODE_DELETE) != (settings.ids_path != NULL))
        refuse("--ids goes with --mode=delete");
    bool ends = settings.seconds || settings.messages;
    if (!ends && settings.mode != MODE_FETCH && settings.mode != MODE_DELETE)
        refuse("say --seconds or --messages");
}

static void parse(int count, char **arguments)
{
    static const struct option options[] = {
        {"mode", 1, 0, 'm'},    {"connections", 1, 0, 'c'}, {"seconds", 1, 0, 's'},
        {"messages", 1, 0, 'n'}, {"body", 1, 0, 'b'},        {"ids", 1, 0, 'i'},
        {"ids-out", 1, 0, 'o'}, {"answer-wait", 1, 0, 'w'}, {"help", 0, 0, 'h'}, {0}};
    bool said_mode = false;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) {
        switch (option) {
        case 'm': settings.mode = parse_mode(optarg); said_mode = true; break;
        case 'c': settings.connections = atoi(optarg); break;
        case 's': settings.seconds = atof(optarg); break;
        case 'n': settings.messages = strtoull(optarg, NULL, 10); break;
        case 'b': settings.body_bytes = strtoull(optarg, NULL, 10); break;
        case 'i': settings.ids_path = optarg; break;
        case 'o': settings.ids_out_path = optarg; break;
        case 'w': settings.answer_wait_s = atof(optarg); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: exit(2);
        }
    }
    settings.token_line = token_line();
    if (!said_mode)
        refuse("--mode is missing");
    for (; optind < count; optind++) {
        if (settings.targets == sizeof settings.target / sizeof *settings.target)
            refuse("too many URLs");
        settings.target[settings.targets++] = parse_target(arguments[optind]);
    }
    check();
}

// Text of a server as a JSON string: what is not plain ASCII as \u00XX.
static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < ' ' || byte > '~' || byte == '"' || byte == '\\')
            printf("\\u%04x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static void print_latencies(struct figures *figures)
{
    static const char *const names[] = {"hello", "publish", "fetch", "delete", "empty", "get",
                                        "cycle"};
    const char *comma = "";
    printf("\"latency_us\": {");
    for (int i = 0; i < OPERATIONS; i++) {
        struct samples *samples = &figures->samples[i];
        if (!samples->count)
            continue;
        sort_samples(samples);
        printf("%s\"%s\": {\"count\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, "
               "\"max\": %.1f}",
               comma, names[i], samples->count, percentile_us(samples, 0.5),
               percentile_us(samples, 0.99), percentile_us(samples, 0.999),
               percentile_us(samples, 1));
        comma = ", ";
    }
    printf("}");
}

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int count, char **arguments)
{
    static struct figures figures;
    parse(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    run(&figures);
    double cpu = cpu_s(); // Without the sorting of samples.
    double seconds = figures.messages ? (double)(figures.ended_ns - figures.began_ns) / 1e9 : 0;
    printf("{\"mode\": \"%s\", \"messages\": %llu, \"seconds\": %.6f, \"errors\": %llu, ",
           modes[settings.mode], (unsigned long long)figures.messages, seconds,
           (unsigned long long)figures.errors);
    printf("\"first_error\": ");
    if (figures.errors)
        print_text(figures.first_error);
    else
        printf("null");
    printf(", \"empty\": %llu, \"stall_us\": %.1f, \"cpu_s\": %.3f, ",
           (unsigned long long)figures.empty, (double)figures.stall_ns / 1e3, cpu);
    print_latencies(&figures);
    printf("}\n");
    return 0;
}
