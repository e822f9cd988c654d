/* The fake upstream of the benches: one thread, epoll, 127.0.0.1 only.
 *
 *   upstream [--port PORT]       prints its port as its only line, once it listens (0: a free port)
 *
 * POST (any path)                a chat completion; an event stream if the body asks for "stream":true, with a chunk of
 *                                usage at its end if it asks for "include_usage":true
 * GET /control?events=N&pause_us=N   how many events a stream has, and the pause between two (0: as fast as possible)
 * GET /counts                    {"requests", "events", "body_bytes"} since the start
 * GET (any other path)           a list of one model
 *
 * Law: it does as little work as possible, so that the gateway is what is measured. */
#include "wire.h"

enum { READ_BYTES = 65536, HEAD_BYTES = 65536, EVENTS = 256 };

struct connection {
    int fd, closed, waits_for_room, is_streaming, wants_usage, keeps, is_due;
    char *in, *out;
    size_t in_length, in_room, out_start, out_length, out_room;
    size_t head_length, body_length; /* of the request that is arriving; 0 while its head is not complete */
    int is_chunked;
    long sent_events;
    uint64_t due_ns;
    struct connection *next_due, *next_dead;
};

static long stream_events = 200, pause_us = 20000;
static unsigned long long requests, events, body_bytes;
static int poller;
static struct connection *first_due, *last_due, *dead;

static const char NOTE[] =
    "## 1. Progress and decisions\\nRead the parser and the loader, fixed the loader's retry.\\n"
    "## 2. Constraints and preferences\\nNone.\\n## 3. Remaining\\nTwo tests still fail.\\n"
    "## 4. Exact data\\ntests/test_loader.py";
static const char EVENT_HEAD[] =
    "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"gpt-4o\","
    "\"service_tier\":\"default\",\"system_fingerprint\":\"fp_bench\",\"choices\":";

/* Waiting streams in the order in which they are due; the pause is the same for all. */
static void wait_turn(struct connection *one, uint64_t due_ns) {
    one->due_ns = due_ns;
    one->next_due = NULL;
    one->is_due = 1;
    if (last_due) last_due->next_due = one;
    else first_due = one;
    last_due = one;
}

static void leave_turns(struct connection *one) {
    struct connection *before = NULL;
    for (struct connection *at = first_due; at; before = at, at = at->next_due) {
        if (at != one) continue;
        if (before) before->next_due = one->next_due;
        else first_due = one->next_due;
        if (last_due == one) last_due = before;
        break;
    }
    one->is_due = 0;
}

static void end_connection(struct connection *one) {
    if (one->closed) return;
    one->closed = 1;
    if (one->is_due) leave_turns(one);
    close(one->fd);
    one->next_dead = dead; /* freed later: an event of this round may still point to it */
    dead = one;
}

static void free_dead(void) {
    while (dead) {
        struct connection *one = dead;
        dead = one->next_dead;
        free(one->in);
        free(one->out);
        free(one);
    }
}

static void watch(struct connection *one, int for_room) {
    if (one->waits_for_room == for_room) return;
    one->waits_for_room = for_room;
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = one};
    epoll_ctl(poller, EPOLL_CTL_MOD, one->fd, &event);
}

static void flush(struct connection *one) {
    while (one->out_start < one->out_length) {
        ssize_t sent = send(one->fd, one->out + one->out_start, one->out_length - one->out_start, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) {
            watch(one, 1);
            return;
        }
        if (sent < 0) {
            end_connection(one);
            return;
        }
        one->out_start += (size_t)sent;
    }
    one->out_start = one->out_length = 0;
    watch(one, 0);
}

static void put(struct connection *one, const char *text, size_t length) {
    if (one->out_length + length > one->out_room) {
        one->out_room = (one->out_length + length) * 2;
        one->out = grow(one->out, one->out_room);
    }
    memcpy(one->out + one->out_length, text, length);
    one->out_length += length;
}

static void put_chunk(struct connection *one, const char *text) {
    char size[16];
    size_t length = strlen(text);
    put(one, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", length));
    put(one, text, length);
    put(one, "\r\n", 2);
}

static void answer(struct connection *one, const char *json) {
    char head[256];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-request-id: req_bench\r\n"
                          "Content-Length: %zu\r\n%s\r\n",
                          strlen(json), one->keeps ? "" : "Connection: close\r\n");
    put(one, head, (size_t)length);
    put(one, json, strlen(json));
    flush(one);
}

static void answer_whole(struct connection *one, size_t length) {
    char json[2048];
    snprintf(json, sizeof json,
             "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"gpt-4o\","
             "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\",\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":60,"
             "\"total_tokens\":%zu},\"system_fingerprint\":\"fp_bench\"}",
             NOTE, length / 4 + 1, length / 4 + 61);
    answer(one, json);
}

static void start_stream(struct connection *one) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(one, head, sizeof head - 1);
    one->is_streaming = 1;
    one->sent_events = 0;
}

static void send_event(struct connection *one) {
    char text[1024];
    snprintf(text, sizeof text, "%s[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
             EVENT_HEAD);
    put_chunk(one, text);
    events++;
    if (++one->sent_events < stream_events) return;
    snprintf(text, sizeof text, "%s[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n", EVENT_HEAD);
    put_chunk(one, text);
    if (one->wants_usage) {
        snprintf(text, sizeof text,
                 "%s[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":%ld,\"total_tokens\":%ld}}\n\n", EVENT_HEAD,
                 stream_events, stream_events + 40);
        put_chunk(one, text);
    }
    put_chunk(one, "data: [DONE]\n\n");
    put(one, "0\r\n\r\n", 5);
    one->is_streaming = 0;
}

static int has(const char *text, size_t length, const char *first, const char *second) {
    return memmem(text, length, first, strlen(first)) || memmem(text, length, second, strlen(second));
}

static void handle_get(struct connection *one) {
    char json[256];
    if (!strncmp(one->in, "GET /control?", 13)) {
        sscanf(one->in + 13, "events=%ld&pause_us=%ld", &stream_events, &pause_us);
        answer(one, "{}");
    } else if (!strncmp(one->in, "GET /counts", 11)) {
        snprintf(json, sizeof json, "{\"requests\":%llu,\"events\":%llu,\"body_bytes\":%llu}", requests, events, body_bytes);
        answer(one, json);
    } else {
        answer(one, "{\"object\":\"list\",\"data\":[{\"id\":\"gpt-4o\",\"object\":\"model\"}]}");
    }
}

static void handle(struct connection *one, const char *body, size_t length) {
    if (strncmp(one->in, "POST", 4)) {
        handle_get(one);
        return;
    }
    requests++;
    body_bytes += length;
    if (!has(body, length, "\"stream\":true", "\"stream\": true")) {
        answer_whole(one, length);
        return;
    }
    one->wants_usage = has(body, length, "\"include_usage\":true", "\"include_usage\": true");
    start_stream(one);
    send_event(one);
    flush(one);
    if (!one->closed && one->is_streaming) wait_turn(one, now_ns() + (uint64_t)pause_us * 1000u);
}

static int read_head(struct connection *one) {
    char *end = memmem(one->in, one->in_length, "\r\n\r\n", 4);
    if (!end) {
        if (one->in_length > HEAD_BYTES) end_connection(one);
        return 0;
    }
    one->head_length = (size_t)(end - one->in) + 4;
    const char *length = find_header(one->in, one->head_length, "content-length");
    const char *coding = find_header(one->in, one->head_length, "transfer-encoding");
    const char *kept = find_header(one->in, one->head_length, "connection");
    one->body_length = length ? strtoul(length, NULL, 10) : 0;
    one->is_chunked = coding && !strncasecmp(coding, "chunked", 7);
    one->keeps = !(kept && !strncasecmp(kept, "close", 5));
    if (find_header(one->in, one->head_length, "expect")) {
        put(one, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        flush(one);
    }
    return !one->closed;
}

/* Joins the chunks of the body in place; returns -1 while the last chunk is missing. */
static long join_chunks(struct connection *one, size_t *total) {
    if (one->in_length < 5 || memcmp(one->in + one->in_length - 5, "0\r\n\r\n", 5)) return -1;
    char *from = one->in + one->head_length, *to = from, *end = one->in + one->in_length;
    for (;;) {
        char *data = memchr(from, '\n', (size_t)(end - from));
        size_t size = strtoul(from, NULL, 16);
        if (!size || !data || data + 1 + size > end) break;
        memmove(to, data + 1, size);
        to += size;
        from = data + 1 + size + 2;
    }
    *total = one->in_length;
    return to - (one->in + one->head_length);
}

/* Takes one request from the bytes that have arrived; returns whether there was one. */
static int take_request(struct connection *one) {
    if (!one->head_length && !read_head(one)) return 0;
    size_t total = one->head_length + one->body_length;
    long length = (long)one->body_length;
    if (one->is_chunked) length = join_chunks(one, &total);
    if (length < 0 || one->in_length < total) return 0;
    handle(one, one->in + one->head_length, (size_t)length);
    if (one->closed) return 0;
    memmove(one->in, one->in + total, one->in_length - total);
    one->in_length -= total;
    one->head_length = 0;
    if (!one->keeps && !one->is_streaming && !one->out_length) end_connection(one);
    return !one->closed;
}

static void on_readable(struct connection *one) {
    for (;;) {
        size_t missing = READ_BYTES, whole = one->head_length + one->body_length;
        if (one->head_length && whole > one->in_length + missing) missing = whole - one->in_length;
        if (one->in_room < one->in_length + missing) {
            one->in_room = one->in_length + missing + READ_BYTES;
            one->in = grow(one->in, one->in_room);
        }
        size_t room = one->in_room - one->in_length;
        ssize_t got = recv(one->fd, one->in + one->in_length, room, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            end_connection(one);
            return;
        }
        one->in_length += (size_t)got;
        while (!one->closed && !one->is_streaming && one->in_length && take_request(one)) {
        }
        if (one->closed || (size_t)got < room) return;
    }
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *one = grow(NULL, sizeof *one);
        memset(one, 0, sizeof *one);
        one->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

static void run_due(void) {
    uint64_t now = now_ns();
    for (int turns = 0; first_due && first_due->due_ns <= now && turns < 4096; turns++) {
        struct connection *one = first_due;
        leave_turns(one);
        if (!one->waits_for_room) send_event(one);
        flush(one);
        if (one->closed) continue;
        if (one->is_streaming) {
            uint64_t due_ns = one->due_ns + (uint64_t)pause_us * 1000u;
            wait_turn(one, due_ns > now ? due_ns : now);
            continue;
        }
        if (!one->keeps) end_connection(one);
        else while (one->in_length && !one->is_streaming && take_request(one)) {
        }
    }
}

static int poll_timeout_ms(void) {
    if (!first_due) return 1000;
    uint64_t now = now_ns();
    /* Rounded up: an event may be a millisecond late, but the loop does not spin. */
    return first_due->due_ns <= now ? 0 : (int)((first_due->due_ns - now + 999999u) / 1000000u);
}

static int open_listener(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096)) {
        perror("upstream");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    int listener = open_listener(count > 2 && !strcmp(arguments[1], "--port") ? atoi(arguments[2]) : 0);
    poller = epoll_create1(0);
    struct epoll_event listening = {.events = EPOLLIN}, found[EVENTS];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &listening);
    for (;;) {
        int number = epoll_wait(poller, found, EVENTS, poll_timeout_ms());
        for (int index = 0; index < number; index++) {
            struct connection *one = found[index].data.ptr;
            if (!one) {
                accept_all(listener);
                continue;
            }
            if (!one->closed && found[index].events & EPOLLOUT) flush(one);
            if (!one->closed && found[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(one);
        }
        run_due();
        free_dead();
    }
}
