/* The load generator of the benches: HTTP/1.1 POSTs to a port of 127.0.0.1, one thread, epoll; one line of JSON at the end.
 *
 *   generator PORT PATH BODY_FILE [-c CONNECTIONS] [-d SECONDS] [-n REQUESTS] [-i IDLE_MS] [-r RAMP_MS] [-w WARM_UP_S] [-s] [-u] [-H HEADER]
 *
 * Each connection sends its next request when the last answer is complete and IDLE_MS have passed (a closed loop).
 * -n  end after this many answers; -d after this many seconds of measuring; whichever comes first
 * -r  spread the first requests of the connections over this many milliseconds
 * -s  answers are event streams; an answer that does not end in [DONE] has failed
 * -u  (with -c 1) a counter overwrites the ten digits after each "NONCE-" of the body, so that no two bodies are equal
 *
 * Times are microseconds from the first byte sent: "first" to the first body byte of the answer, "last" to the last one.
 * Requests of the warm-up count only in "done" and "failed".
 *
 * Law: requests are built before the clock starts; nothing is printed before the end. */
#include "wire.h"

enum { HEAD_BYTES = 32768, READ_BYTES = 262144, FOUND = 512, TAIL_BYTES = 32, NONCES = 8192, GRACE_SECONDS = 20 };
enum state { IDLE, SENDING, READING_HEAD, READING_BODY };
enum part { SIZE, EXTENSION, DATA, DATA_END, TRAILER };

struct samples {
    double *values;
    size_t count, room;
};

struct connection {
    int fd, is_chunked, to_close, status, has_first;
    enum state state;
    enum part part;
    size_t sent, head_length, left, tail_length, line_length;
    uint64_t started_ns, ready_ns;
    char head[HEAD_BYTES], tail[TAIL_BYTES];
};

static int port, connections = 1, idle_ms, ramp_ms, is_stream, is_unique, poller, is_over;
static long most_requests = -1;
static double seconds = 5, warm_up_seconds = 0.3;
static char *request, *nonces[NONCES];
static size_t request_length, nonce_count;
static uint64_t warm_until_ns, end_ns, last_answer_ns;
static unsigned long long counter, counted, failed, answers;
static struct samples firsts, lasts;
static char buffer[READ_BYTES];

static void add(struct samples *samples, uint64_t passed_ns) {
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 4096;
        samples->values = grow(samples->values, samples->room * sizeof *samples->values);
    }
    samples->values[samples->count++] = (double)passed_ns / 1000.0;
}

static int compare(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void print_samples(const char *name, struct samples *samples) {
    if (!samples->count) {
        printf(",\"%s\":null", name);
        return;
    }
    qsort(samples->values, samples->count, sizeof *samples->values, compare);
    double most = (double)(samples->count - 1);
    printf(",\"%s\":{\"p50\":%.1f,\"p95\":%.1f,\"p99\":%.1f}", name, samples->values[(size_t)(most * 0.5)],
           samples->values[(size_t)(most * 0.95)], samples->values[(size_t)(most * 0.99)]);
}

static void watch(struct connection *one, int for_room) {
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = one};
    epoll_ctl(poller, EPOLL_CTL_MOD, one->fd, &event);
}

static void hang_up(struct connection *one) {
    if (one->fd >= 0) close(one->fd);
    one->fd = -1;
}

static void rest(struct connection *one) {
    one->state = IDLE;
    one->ready_ns = now_ns() + (uint64_t)idle_ms * 1000000u;
}

static void fail(struct connection *one) {
    failed++;
    answers++; /* so that a run ends even if the gateway refuses everything */
    hang_up(one);
    rest(one);
    one->ready_ns += 1000000u;
    if (most_requests >= 0 && (long)answers >= most_requests) is_over = 1;
}

static int dial(struct connection *one) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(one->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) return -1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = one};
    return epoll_ctl(poller, EPOLL_CTL_ADD, one->fd, &event);
}

static void send_rest(struct connection *one) {
    while (one->sent < request_length) {
        ssize_t sent = send(one->fd, request + one->sent, request_length - one->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
            watch(one, 1);
            return;
        }
        if (sent < 0) {
            fail(one);
            return;
        }
        one->sent += (size_t)sent;
    }
    watch(one, 0);
    one->state = READING_HEAD;
}

static void begin(struct connection *one) {
    char digits[16];
    if (nonce_count) snprintf(digits, sizeof digits, "%010llu", counter++ % 10000000000ull);
    for (size_t index = 0; index < nonce_count; index++) memcpy(nonces[index], digits, 10);
    one->sent = one->head_length = one->tail_length = 0;
    one->has_first = 0;
    one->state = SENDING;
    one->started_ns = now_ns();
    if (one->fd < 0 && dial(one)) {
        fail(one);
        return;
    }
    send_rest(one);
}

static void finish(struct connection *one) {
    uint64_t now = now_ns();
    int is_good = one->status == 200;
    if (is_stream && !memmem(one->tail, one->tail_length, "[DONE]", 6)) is_good = 0;
    answers++;
    if (!is_good) failed++;
    else if (one->started_ns >= warm_until_ns) {
        counted++;
        last_answer_ns = now;
        add(&lasts, now - one->started_ns);
    }
    if (one->to_close) hang_up(one);
    rest(one);
    if (most_requests >= 0 && (long)answers >= most_requests) is_over = 1;
}

/* Body bytes: records the time of the first one, and keeps the last ones to find [DONE]. */
static void take_body(struct connection *one, const char *text, size_t length) {
    if (length && !one->has_first) {
        one->has_first = 1;
        if (one->started_ns >= warm_until_ns) add(&firsts, now_ns() - one->started_ns);
    }
    if (length >= TAIL_BYTES) {
        memcpy(one->tail, text + length - TAIL_BYTES, TAIL_BYTES);
        one->tail_length = TAIL_BYTES;
        return;
    }
    size_t kept = one->tail_length + length > TAIL_BYTES ? TAIL_BYTES - length : one->tail_length;
    memmove(one->tail, one->tail + one->tail_length - kept, kept);
    memcpy(one->tail + kept, text, length);
    one->tail_length = kept + length;
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 32;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Whether a chunked body ends with these bytes. */
static int take_chunks(struct connection *one, const char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        if (one->part == DATA) {
            size_t taken = length - at < one->left ? length - at : one->left;
            take_body(one, text + at, taken);
            at += taken;
            one->left -= taken;
            if (!one->left) one->part = DATA_END;
            continue;
        }
        char sign = text[at++];
        if (one->part == SIZE && hex(sign) >= 0) one->left = one->left * 16 + (size_t)hex(sign);
        else if (one->part == SIZE && sign == ';') one->part = EXTENSION;
        else if (one->part == TRAILER && sign == '\n' && !one->line_length) return 1;
        else if (one->part == TRAILER) one->line_length = sign == '\n' ? 0 : one->line_length + (sign != '\r');
        else if (sign == '\n' && one->part == DATA_END) one->part = SIZE, one->left = 0;
        else if (sign == '\n') one->part = one->left ? DATA : TRAILER, one->line_length = 0;
    }
    return 0;
}

static int take(struct connection *one, const char *text, size_t length) {
    if (one->is_chunked) return take_chunks(one, text, length);
    size_t taken = length < one->left ? length : one->left;
    take_body(one, text, taken);
    one->left -= taken;
    return !one->left;
}

/* Bytes of this piece that belong to the head; 0 if the head is not complete yet. */
static size_t take_head(struct connection *one, const char *text, size_t length) {
    size_t before = one->head_length, room = HEAD_BYTES - before;
    size_t taken = length < room ? length : room;
    memcpy(one->head + before, text, taken);
    one->head_length += taken;
    char *end = memmem(one->head, one->head_length, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head_length = (size_t)(end - one->head) + 4;
    const char *size = find_header(one->head, head_length, "content-length");
    const char *coding = find_header(one->head, head_length, "transfer-encoding");
    const char *kept = find_header(one->head, head_length, "connection");
    one->status = atoi(one->head + 9);
    one->left = size ? strtoul(size, NULL, 10) : 0;
    one->is_chunked = coding != NULL;
    one->part = SIZE;
    one->to_close = kept && !strncasecmp(kept, "close", 5);
    one->state = READING_BODY;
    return head_length - before;
}

static void on_readable(struct connection *one) {
    for (;;) {
        ssize_t got = recv(one->fd, buffer, sizeof buffer, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0 && one->state == IDLE) {
            hang_up(one);
            return;
        }
        if (got <= 0) {
            fail(one);
            return;
        }
        if (one->state == IDLE) return;
        if (one->state == SENDING) one->state = READING_HEAD; /* an answer before the whole request was sent, such as a refusal */
        size_t taken = 0;
        if (one->state == READING_HEAD && !(taken = take_head(one, buffer, (size_t)got))) {
            if (one->head_length == HEAD_BYTES) fail(one);
            return;
        }
        int is_empty = !one->is_chunked && !one->left;
        if (is_empty || (taken < (size_t)got && take(one, buffer + taken, (size_t)got - taken))) {
            finish(one);
            return;
        }
        if ((size_t)got < sizeof buffer) return;
    }
}

static void read_options(int count, char **arguments, char *headers) {
    int option;
    optind = 4;
    while ((option = getopt(count, arguments, "c:d:n:i:r:w:suH:")) > 0) {
        if (option == 'c') connections = atoi(optarg);
        else if (option == 'd') seconds = atof(optarg);
        else if (option == 'n') most_requests = atol(optarg);
        else if (option == 'i') idle_ms = atoi(optarg);
        else if (option == 'r') ramp_ms = atoi(optarg);
        else if (option == 'w') warm_up_seconds = atof(optarg);
        else if (option == 's') is_stream = 1;
        else if (option == 'u') is_unique = 1;
        else if (option == 'H') strcat(strcat(headers, optarg), "\r\n");
        else exit(2);
    }
}

static void build_request(const char *path, const char *file, const char *headers) {
    FILE *body = fopen(file, "rb");
    if (!body || fseek(body, 0, SEEK_END)) {
        perror(file);
        exit(2);
    }
    size_t length = (size_t)ftell(body);
    rewind(body);
    request = malloc(length + 16384);
    int head = snprintf(request, 16384,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: %s\r\n"
                        "Authorization: Bearer sk-bench\r\nUser-Agent: OpenAI/Python 2.0.0\r\nAccept-Encoding: identity\r\n"
                        "Content-Length: %zu\r\n%s\r\n",
                        path, port, is_stream ? "text/event-stream" : "application/json", length, headers);
    request_length = (size_t)head + fread(request + head, 1, length, body);
    fclose(body);
    char *end = request + request_length, *found = request + head;
    while (is_unique && nonce_count < NONCES && (found = memmem(found, (size_t)(end - found), "NONCE-", 6))) {
        nonces[nonce_count++] = found + 6;
        found += 16;
    }
}

/* Starts the connections that are due; returns the milliseconds until the next one is due. */
static int start_ready(struct connection *all, int is_ending, int *busy) {
    uint64_t now = now_ns(), next = now + 100000000u;
    *busy = 0;
    for (int index = 0; index < connections; index++) {
        struct connection *one = &all[index];
        if (one->state == IDLE && !is_ending && one->ready_ns <= now) begin(one);
        if (one->state != IDLE) ++*busy;
        else if (one->ready_ns < next) next = one->ready_ns;
    }
    now = now_ns();
    return next > now ? (int)((next - now) / 1000000u) : 0;
}

static void run(struct connection *all) {
    struct epoll_event found[FOUND];
    for (;;) {
        uint64_t now = now_ns();
        int busy, is_ending = is_over || now >= end_ns;
        int timeout_ms = start_ready(all, is_ending, &busy);
        if ((is_ending && !busy) || now > end_ns + GRACE_SECONDS * 1000000000ull) {
            failed += (unsigned long long)busy;
            return;
        }
        int number = epoll_wait(poller, found, FOUND, timeout_ms);
        for (int index = 0; index < number; index++) {
            struct connection *one = found[index].data.ptr;
            if (one->fd >= 0 && one->state == SENDING && found[index].events & EPOLLOUT) send_rest(one);
            if (one->fd >= 0 && found[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(one);
            if (one->state == IDLE && !idle_ms && !is_over && one->fd >= 0 && now_ns() < end_ns) begin(one);
        }
    }
}

int main(int count, char **arguments) {
    char headers[8192] = "";
    if (count < 4) {
        fprintf(stderr, "usage: generator PORT PATH BODY_FILE [options]; see its source\n");
        return 2;
    }
    port = atoi(arguments[1]);
    read_options(count, arguments, headers);
    if (is_unique && connections != 1) {
        fprintf(stderr, "-u needs -c 1: connections share the body\n");
        return 2;
    }
    build_request(arguments[2], arguments[3], headers);
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(0);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    uint64_t start_ns = now_ns();
    warm_until_ns = start_ns + (uint64_t)(warm_up_seconds * 1e9);
    end_ns = warm_until_ns + (uint64_t)(seconds * 1e9);
    for (int index = 0; index < connections; index++) {
        all[index].fd = -1;
        all[index].ready_ns = start_ns + (uint64_t)ramp_ms * 1000000u * (uint64_t)index / (uint64_t)connections;
    }
    run(all);
    double passed = last_answer_ns > warm_until_ns ? (double)(last_answer_ns - warm_until_ns) / 1e9 : 0;
    printf("{\"done\":%llu,\"answers\":%llu,\"failed\":%llu,\"seconds\":%.4f", answers, counted, failed, passed);
    print_samples("first", &firsts);
    print_samples("last", &lasts);
    printf("}\n");
    return 0;
}
