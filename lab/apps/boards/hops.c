/* What state costs that takes so many wakeups on its way: the floor of a board, whose state goes
 * from its writer to a daemon, from there by multicast to the daemon of each reader, and from
 * there to the reader. Nobody here does anything but pass 64 bytes on.
 *
 *     hops READERS SECONDS
 *
 * prints the median age and the 99th percentile in microseconds, at 100 states a second: of one
 * wakeup (the writer's datagram wakes the readers) and of three, in turn, five times. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64, RATE = 100, ROUNDS = 5, MOST = 1 << 16 };

struct ages {
    _Atomic uint32_t count;
    double us[MOST];
};

static void check(long result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * INT64_C(1000000000) + at.tv_nsec;
}

static struct sockaddr_in group(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7991) };
    to.sin_addr.s_addr = htonl(0xef4d0002U);
    return to;
}

static int listener(void)
{
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = group();
    struct ip_mreq join = { at.sin_addr, { htonl(INADDR_LOOPBACK) } };
    check(fd, "socket");
    check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "reuse");
    check(bind(fd, (struct sockaddr *)&at, sizeof at), "bind");
    check(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), "join");
    return fd;
}

static int sender(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr own = { htonl(INADDR_LOOPBACK) };
    struct sockaddr_in to = group();
    check(fd, "socket");
    check(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own), "device");
    check(connect(fd, (struct sockaddr *)&to, sizeof to), "connect");
    return fd;
}

static pid_t child(void)
{
    pid_t pid = fork();
    check(pid, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

/* Passes on what comes. */
static void relay(int from, int to)
{
    char state[BYTES];
    for (;;) {
        check(recv(from, state, sizeof state, 0), "receive");
        check(send(to, state, sizeof state, 0), "send");
    }
}

static void reader(int from, struct ages *ages)
{
    int64_t state[BYTES / 8];
    for (;;) {
        check(recv(from, state, sizeof state, 0), "receive");
        uint32_t at = ages->count++;
        if (at < MOST) {
            ages->us[at] = (double)(now() - state[0]) / 1000;
        }
    }
}

static int ascending(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(int wakeups, int readers, double seconds, struct ages *ages)
{
    pid_t children[2 * 64 + 1];
    int count = 0, pair[2], to = sender();
    ages->count = 0;
    for (int at = 0; at < readers; at++) {
        int from = listener();
        if (wakeups == 3) {
            check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "pair");
            if ((children[count++] = child()) == 0) {
                relay(from, pair[0]);
            }
            close(from);
            from = pair[1];
        }
        if ((children[count++] = child()) == 0) {
            reader(from, ages);
        }
        close(from);
    }
    if (wakeups == 3) {
        check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "pair");
        if ((children[count++] = child()) == 0) {
            relay(pair[0], to);
        }
        to = pair[1];
    }
    usleep(100000);
    for (int state = 0; state < (int)(seconds * RATE); state++) {
        int64_t bytes[BYTES / 8] = { now() };
        check(send(to, bytes, sizeof bytes, 0), "send");
        usleep(1000000 / RATE);
    }
    while (count > 0) {
        kill(children[--count], SIGKILL);
        waitpid(children[count], NULL, 0);
    }
    close(to);
    uint32_t seen = ages->count < MOST ? ages->count : MOST;
    qsort(ages->us, seen, sizeof ages->us[0], ascending);
    if (seen > 0) {
        printf("%d wakeup%s: p50 %.1f us, p99 %.1f us, %u states seen\n", wakeups,
               wakeups == 1 ? "" : "s", ages->us[seen / 2], ages->us[seen / 100 * 99], seen);
    }
}

int main(int count, char **arguments)
{
    int readers = count == 3 ? atoi(arguments[1]) : 0;
    double seconds = count == 3 ? atof(arguments[2]) : 0;
    if (readers < 1 || readers > 60 || seconds <= 0) {
        fputs("usage: hops READERS SECONDS\n", stderr);
        return 2;
    }
    struct ages *ages = mmap(NULL, sizeof *ages, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(ages == MAP_FAILED ? -1 : 0, "memory");
    for (int round = 0; round < ROUNDS; round++) {
        measure(1, readers, seconds, ages);
        measure(3, readers, seconds, ages);
    }
    return 0;
}
