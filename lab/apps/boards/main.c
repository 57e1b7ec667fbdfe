/* One process of `pagemesh-bench boards`: writes states, watches them, or plays ping-pong.
 *
 *     PROGRAM write|hold|watch|join|ping|pong NAME ADDRESS SIZE RATE SECONDS SUPER
 *
 * RATE 0 is as fast as possible. A state carries its number and the time of its writing; ages are
 * differences of CLOCK_MONOTONIC of the one machine. Prints `ready`; a writer then waits for a
 * line. What was measured is printed as one line of JSON; who watches prints it at SIGTERM. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "board.h"

/* As many measurements are printed; of more, evenly some. */
enum { PRINTED = 2000 };

/* A state may be lost: who waits for an answer so long publishes again. */
enum { LOST_MS = 200, SLICE_MS = 50 };

/* A number stands at every so many words, so that a torn state is seen. */
enum { MARKED = 64 };

struct samples {
    int64_t *all;
    size_t count, room;
};

static volatile sig_atomic_t ended;

void board_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static int64_t clock_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

static void *must(void *memory)
{
    if (memory == NULL) {
        board_fail("memory", strerror(errno));
    }
    return memory;
}

static void add(struct samples *samples, int64_t one)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 1024;
        samples->all = must(realloc(samples->all, samples->room * sizeof *samples->all));
    }
    samples->all[samples->count++] = one;
}

static void print(const char *name, const struct samples *samples)
{
    size_t step = samples->count / PRINTED + 1;
    printf("\"%s\":[", name);
    for (size_t at = 0; at < samples->count; at += step) {
        printf("%s%lld", at ? "," : "", (long long)samples->all[at]);
    }
    printf("],");
}

static int64_t most(const struct samples *samples)
{
    int64_t most = 0;
    for (size_t at = 0; at < samples->count; at++) {
        most = samples->all[at] > most ? samples->all[at] : most;
    }
    return most;
}

/* The number first and last and in between, the time second. */
static void stamp(uint64_t *state, size_t size, uint64_t number)
{
    size_t words = size / 8;
    for (size_t at = 0; at < words; at += MARKED) {
        state[at] = number;
    }
    state[words - 1] = number;
    state[1] = (uint64_t)now();
}

static int is_whole(const uint64_t *state, size_t size)
{
    size_t words = size / 8;
    for (size_t at = 0; at < words; at += MARKED) {
        if (state[at] != state[0]) {
            return 0;
        }
    }
    return state[words - 1] == state[0];
}

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static void told(void)
{
    char line[64];
    if (fgets(line, sizeof line, stdin) == NULL) {
        exit(0);
    }
}

static void write_states(struct board *board, const struct place *place, double rate, double seconds)
{
    uint64_t *state = must(calloc(1, place->size));
    struct samples took = { 0 };
    uint64_t number = 0;
    ready();
    told();
    int64_t start = now(), limit = start + (int64_t)(seconds * 1e9);
    int64_t busy = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    while (now() < limit) {
        stamp(state, place->size, ++number);
        board_publish(board, state);
        add(&took, now() - (int64_t)state[1]);
        if (rate > 0) {
            int64_t next = start + (int64_t)((double)number * 1e9 / rate);
            struct timespec at = { next / 1000000000, next % 1000000000 };
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        }
    }
    printf("{\"published\":%llu,", (unsigned long long)number);
    print("took", &took);
    printf("\"worst\":%lld,\"seconds\":%.6f,\"cpu\":%lld}\n", (long long)most(&took),
           (double)(now() - start) / 1e9,
           (long long)(clock_of(CLOCK_PROCESS_CPUTIME_ID) - busy));
    fflush(stdout);
    told();
}

/* Three states, and then none. */
static void hold(struct board *board, const struct place *place)
{
    uint64_t *state = must(calloc(1, place->size));
    for (uint64_t number = 1; number <= 3; number++) {
        stamp(state, place->size, number);
        board_publish(board, state);
    }
    ready();
    told();
    printf("{\"published\":3,\"took\":[],\"worst\":0,\"seconds\":1,\"cpu\":0}\n");
    fflush(stdout);
    told();
}

static void watch(struct board *board, const struct place *place, int64_t joined)
{
    uint64_t *state = must(calloc(1, place->size));
    struct samples ages = { 0 };
    uint64_t last = 0, torn = 0, back = 0, seen = 0;
    int64_t age = 0, first = 0;
    ready();
    int64_t busy = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    while (!ended) {
        if (!board_wait(board, state, SLICE_MS)) {
            continue;
        }
        int64_t at = now();
        if (!is_whole(state, place->size)) {
            torn++;
        } else if (state[0] <= last) {
            back += state[0] < last;
        } else {
            first = first ? first : at;
            last = state[0];
            age = at - (int64_t)state[1];
            add(&ages, age);
            seen++;
        }
    }
    printf("{\"seen\":%llu,\"torn\":%llu,\"back\":%llu,\"last\":%llu,", (unsigned long long)seen,
           (unsigned long long)torn, (unsigned long long)back, (unsigned long long)last);
    print("ages", &ages);
    printf("\"last_age\":%lld,\"first\":%lld,\"cut_off\":0,\"cpu\":%lld}\n", (long long)age,
           (long long)(first ? first - joined : -1),
           (long long)(clock_of(CLOCK_PROCESS_CPUTIME_ID) - busy));
    fflush(stdout);
}

/* Waits for a state with at least that number. */
static int answered(struct board *from, uint64_t *state, uint64_t number)
{
    int64_t limit = now() + LOST_MS * INT64_C(1000000);
    while (now() < limit && !ended) {
        if (board_wait(from, state, SLICE_MS) && state[0] >= number) {
            return 1;
        }
    }
    return 0;
}

static void ping(struct board *to, struct board *from, const struct place *place, double seconds)
{
    uint64_t *state = must(calloc(1, place->size)), *reply = must(calloc(1, place->size));
    struct samples trips = { 0 };
    uint64_t lost = 0, number = 0;
    ready();
    told();
    int64_t limit = now() + (int64_t)(seconds * 1e9);
    while (now() < limit) {
        int64_t start = now();
        stamp(state, place->size, ++number);
        board_publish(to, state);
        if (answered(from, reply, number)) {
            add(&trips, now() - start);
        } else {
            lost++;
        }
    }
    printf("{");
    print("trips", &trips);
    printf("\"lost\":%llu}\n", (unsigned long long)lost);
    fflush(stdout);
}

static void pong(struct board *to, struct board *from, const struct place *place)
{
    uint64_t *state = must(calloc(1, place->size));
    ready();
    while (!ended) {
        if (board_wait(from, state, SLICE_MS)) {
            board_publish(to, state);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        board_fail("usage", "ROLE NAME ADDRESS SIZE RATE SECONDS SUPER");
    }
    const char *role = argv[1];
    struct place place = { argv[2], argv[3], strtoul(argv[4], NULL, 10), atoi(argv[7]) };
    double rate = atof(argv[5]), seconds = atof(argv[6]);
    if (place.size < 32 || place.size % 8 != 0) {
        board_fail("size", "not a multiple of 8 from 32 on");
    }
    struct sigaction action = { .sa_handler = end };
    sigaction(SIGTERM, &action, NULL);
    if (strcmp(role, "write") == 0) {
        write_states(board_open(&place, 1), &place, rate, seconds);
    } else if (strcmp(role, "hold") == 0) {
        hold(board_open(&place, 1), &place);
    } else if (strcmp(role, "watch") == 0 || strcmp(role, "join") == 0) {
        int64_t joined = now();
        watch(board_open(&place, 0), &place, joined);
    } else if (strcmp(role, "ping") == 0 || strcmp(role, "pong") == 0) {
        int pings = role[1] == 'i';
        char there[128], back[128];
        snprintf(there, sizeof there, "%s.there", place.name);
        snprintf(back, sizeof back, "%s.back", place.name);
        struct place other = place;
        place.name = pings ? there : back;
        other.name = pings ? back : there;
        struct board *to = board_open(&place, 1);
        struct board *from = board_open(&other, 0);
        if (pings) {
            ping(to, from, &place, seconds);
        } else {
            pong(to, from, &place);
        }
    } else {
        board_fail("no such role", role);
    }
    return 0;
}
