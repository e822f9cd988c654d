/* Shared by the generator and the upstream: the clock, memory, and reading a header's value. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *grow(void *memory, size_t bytes) {
    void *grown = realloc(memory, bytes);
    if (!grown) {
        perror("realloc");
        exit(1);
    }
    return grown;
}

/* The beginning of the value of a header in a head of this length; NULL if it is missing. */
static const char *find_header(const char *head, size_t length, const char *name) {
    size_t name_length = strlen(name);
    for (const char *line = head; line && line < head + length;) {
        if ((size_t)(head + length - line) > name_length && line[name_length] == ':' && !strncasecmp(line, name, name_length)) {
            line += name_length + 1;
            while (*line == ' ') line++;
            return line;
        }
        line = memchr(line, '\n', (size_t)(head + length - line));
        if (line) line++;
    }
    return NULL;
}
