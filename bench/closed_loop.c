/* Sends small requests in a closed loop: one request in flight on each connection, as in_turn of load.py does.
 *
 * usage: closed_loop PORT REQUESTS RESPONSE_BYTES FRAMES LATENCIES [tls]
 *
 * FRAMES is a file of requests with their size prefixes, one for each connection. Each answer must have RESPONSE_BYTES
 * bytes, its prefix included. LATENCIES is a file that gets one number of 64 bits for each request, in nanoseconds; the
 * nanoseconds that all of them took go to standard output. With "tls" the connections are under TLS, for which it is
 * compiled with -DTLS -lssl -lcrypto; the broker's certificate is not looked at.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif

enum { MAX_CONNECTIONS = 1024, EVENTS = 256, PREFIX_BYTES = 4 };

struct connection {
    int fd;
    const char *frame;
    size_t frame_bytes;
    size_t received;
    int64_t began;
    void *tls;
};

static void fail(const char *what)
{
    fprintf(stderr, "closed_loop: %s: %s\n", what, errno ? strerror(errno) : "the broker closed the connection");
    exit(1);
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static char *content_of(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail(path);
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *content = malloc(*size);
    if (fread(content, 1, *size, file) != *size)
        fail(path);
    fclose(file);
    return content;
}

static int dial(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

#ifdef TLS
static void *shake_hands(int fd)
{
    static SSL_CTX *context;
    if (context == NULL) {
        context = SSL_CTX_new(TLS_client_method());
        /* Or a read would wait for the record behind one of TLS's own. */
        SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    }
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    if (SSL_connect(tls) != 1)
        fail("TLS handshake");
    return tls;
}

static ssize_t write_sealed(void *tls, const char *data, size_t size)
{
    return SSL_write(tls, data, size);
}

static ssize_t read_opened(void *tls, char *data, size_t size)
{
    int got = SSL_read(tls, data, size);
    return got <= 0 && SSL_get_error(tls, got) == SSL_ERROR_WANT_READ ? 0 : got > 0 ? got : -1;
}
#else
static void *shake_hands(int fd)
{
    (void)fd;
    errno = EPROTONOSUPPORT;
    fail("compiled without TLS");
    return NULL;
}
#define write_sealed(tls, data, size) -1
#define read_opened(tls, data, size) -1
#endif

/* A request of a few hundred bytes fits into the socket's buffer, as nothing else is in flight. */
static void ask(struct connection *each)
{
    each->began = now();
    ssize_t sent = each->tls != NULL ? write_sealed(each->tls, each->frame, each->frame_bytes)
                                     : write(each->fd, each->frame, each->frame_bytes);
    if (sent != (ssize_t)each->frame_bytes)
        fail("write");
}

/* Returns how many bytes of the answer came: under TLS those of one record, 0 if it was one of TLS's own. */
static size_t receive(struct connection *each, char *answer, size_t size)
{
    ssize_t got = each->tls != NULL ? read_opened(each->tls, answer, size) : read(each->fd, answer, size);
    if (got < 0 || (got == 0 && each->tls == NULL))
        fail("read");
    return got;
}

int main(int count, char **arguments)
{
    int under_tls = count == 7 && strcmp(arguments[6], "tls") == 0;
    if (count != 6 && !under_tls) {
        fprintf(stderr, "usage: closed_loop PORT REQUESTS RESPONSE_BYTES FRAMES LATENCIES [tls]\n");
        return 2;
    }
    long requests = atol(arguments[2]), answered = 0, connections = 0;
    size_t response_bytes = atol(arguments[3]), size;
    char *frames = content_of(arguments[4], &size), *frames_end = frames + size;
    int64_t *latencies = malloc(requests * sizeof *latencies);
    static struct connection all[MAX_CONNECTIONS];
    static char answer[1 << 16];
    struct epoll_event events[EVENTS];
    int selector = epoll_create1(0);

    for (char *frame = frames; frame < frames_end && connections < MAX_CONNECTIONS; connections++) {
        uint32_t length;
        memcpy(&length, frame, PREFIX_BYTES);
        struct connection *each = &all[connections];
        *each = (struct connection){.fd = dial(atoi(arguments[1])), .frame = frame, .frame_bytes = PREFIX_BYTES + ntohl(length)};
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = each};
        epoll_ctl(selector, EPOLL_CTL_ADD, each->fd, &wanted);
        each->tls = under_tls ? shake_hands(each->fd) : NULL;
        frame += each->frame_bytes;
    }
    int64_t start = now();
    long left = requests - connections;
    for (long index = 0; index < connections; index++)
        ask(&all[index]);
    while (answered < requests) {
        int ready = epoll_wait(selector, events, EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            struct connection *each = events[index].data.ptr;
            size_t got = receive(each, answer, sizeof answer);
            if (got == 0)
                continue;
            if (each->received == 0) {
                uint32_t length;
                memcpy(&length, answer, PREFIX_BYTES);
                if (got < PREFIX_BYTES || PREFIX_BYTES + ntohl(length) != response_bytes) {
                    fprintf(stderr, "closed_loop: an answer of %u bytes, not %zu\n", PREFIX_BYTES + ntohl(length), response_bytes);
                    return 1;
                }
            }
            each->received += got;
            if (each->received < response_bytes)
                continue;
            latencies[answered++] = now() - each->began;
            each->received = 0;
            if (left > 0) {
                left--;
                ask(each);
            }
        }
    }
    printf("%lld\n", (long long)(now() - start));
    FILE *file = fopen(arguments[5], "wb");
    if (file == NULL || fwrite(latencies, sizeof *latencies, answered, file) != (size_t)answered)
        fail(arguments[5]);
    return fclose(file);
}
