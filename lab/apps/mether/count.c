/* Two processes count to 1024 together, each adding one when it is its turn: the program by
 * which Mether's five user protocols were measured (E21, ER0 to ER5).
 *
 *     full      one whole page; each process loads and stores the consistent copy
 *     short     the same through the short view
 *     disjoint  two pages, each stored to by one process; the other spins on a copy for
 *               reading, which it purges after every --purge losses
 *     data      one short page: stores to the consistent copy, spins on the data-driven view
 *     final     two short pages; sleeps on the data-driven view of the other one
 *     alone     one process, ordinary memory
 *
 * A loss is a look that finds the counter unchanged, a win one that finds it changed. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <pagemesh.h>

#include "app.h"

enum { PAGE = 4096, LOOKS = 64 };

static long target = 1024, bound = 60, purge = 1, delay;
static const char *protocol = "final";

static pagemesh_segment_t *segment;
static unsigned rank;
static size_t stride;
static char *base;

static struct {
    uint64_t losses, wins;
    double waited, end;
} seen;

static void check(int ok, const char *what)
{
    if (!ok) {
        app_fail("%s: %s", what, pagemesh_error_message());
    }
}

static volatile uint32_t *word(unsigned page, int view)
{
    return pagemesh_view(base + page * PAGE, stride, view);
}

static void drop(unsigned page, int view)
{
    check(pagemesh_purge(segment, view, page * PAGE, 4) == 0, "purge");
}

/* Whether the time is over; looks at the clock now and then. */
static int is_over(void)
{
    return seen.losses % LOOKS == 0 && app_now() > seen.end;
}

/* A fixed wait after a loss, which Mether's authors tried first (E20). */
static void hesitate(void)
{
    double until = app_now() + (double)delay * 1e-6;
    while (delay > 0 && app_now() < until) {
    }
}

/* Loads and stores one word; both processes, through one view. */
static uint32_t on_one_page(int view)
{
    volatile uint32_t *counter = word(0, view);
    uint32_t value;
    double since = app_now();
    while ((value = *counter) < (uint32_t)target) {
        if (value % 2 == rank) {
            seen.wins++;
            seen.waited += app_now() - since;
            *counter = value + 1;
            since = app_now();
        } else {
            seen.losses++;
            hesitate();
            if (is_over()) {
                break;
            }
        }
    }
    return value;
}

/* Each process has a page to store to, and reads that of the other. */
static uint32_t on_two_pages(void)
{
    volatile uint32_t *mine = word(rank, PAGEMESH_VIEW_SHORT);
    int view = PAGEMESH_VIEW_SHORT | PAGEMESH_VIEW_OLD;
    volatile uint32_t *theirs = word(1 - rank, view);
    uint32_t value = 0;
    double since = app_now();
    while (value < (uint32_t)target) {
        uint32_t other = *theirs;
        if (other > value || (value == 0 && rank == 0)) {
            seen.wins++;
            seen.waited += app_now() - since;
            value = other + 1;
            if (other < (uint32_t)target) {
                *mine = value;
                drop(rank, PAGEMESH_VIEW_SHORT);
            }
            since = app_now();
        } else {
            seen.losses++;
            if (purge > 0 && seen.losses % (uint64_t)purge == 0) {
                drop(1 - rank, view);
            }
            hesitate();
            if (is_over()) {
                break;
            }
        }
    }
    return value;
}

/* Stores to the consistent copy, spins on the data-driven view of the same page. */
static uint32_t on_two_views(void)
{
    volatile uint32_t *counter = word(0, PAGEMESH_VIEW_SHORT);
    volatile uint32_t *next =
        word(0, PAGEMESH_VIEW_SHORT | PAGEMESH_VIEW_OLD | PAGEMESH_VIEW_NEXT);
    uint32_t value = 0;
    double since = app_now();
    while (value < (uint32_t)target) {
        value = *next;
        if (value % 2 == rank && value < (uint32_t)target) {
            seen.wins++;
            seen.waited += app_now() - since;
            *counter = value + 1;
            drop(0, PAGEMESH_VIEW_SHORT);
            since = app_now();
        } else {
            seen.losses++;
            hesitate();
            if (is_over()) {
                break;
            }
        }
    }
    return value;
}

/* Sleeps on the data-driven view of the other page. It is purged before this process publishes:
 * the other one stores only after that, so that no update is dropped unseen. */
static uint32_t on_two_pages_asleep(void)
{
    volatile uint32_t *mine = word(rank, PAGEMESH_VIEW_SHORT);
    int view = PAGEMESH_VIEW_SHORT | PAGEMESH_VIEW_OLD | PAGEMESH_VIEW_NEXT;
    volatile uint32_t *theirs = word(1 - rank, view);
    uint32_t value = 0;
    double since = app_now();
    int first = rank == 0;
    while (value < (uint32_t)target) {
        uint32_t other = first ? 0 : *theirs;
        if (other > value || first) {
            seen.wins++;
            seen.waited += app_now() - since;
            first = 0;
            value = other + 1;
            if (other < (uint32_t)target) {
                drop(1 - rank, view);
                *mine = value;
                drop(rank, PAGEMESH_VIEW_SHORT);
            }
            since = app_now();
        } else {
            seen.losses++;
            if (is_over()) {
                break;
            }
        }
    }
    return value;
}

static uint32_t alone(void)
{
    volatile uint32_t counter = 0;
    while (counter < (uint32_t)target) {
        counter = counter + 1;
        seen.wins++;
    }
    return counter;
}

static uint32_t count(void)
{
    if (strcmp(protocol, "full") == 0) {
        return on_one_page(0);
    }
    if (strcmp(protocol, "short") == 0) {
        return on_one_page(PAGEMESH_VIEW_SHORT);
    }
    if (strcmp(protocol, "disjoint") == 0) {
        return on_two_pages();
    }
    if (strcmp(protocol, "data") == 0) {
        return on_two_views();
    }
    if (strcmp(protocol, "final") == 0) {
        return on_two_pages_asleep();
    }
    app_fail("there is no protocol %s", protocol);
    return 0;
}

static void report(int processes, uint32_t value, double began, const struct rusage *before)
{
    struct rusage after;
    getrusage(RUSAGE_SELF, &after);
    double seconds = app_now() - began;
#define SPENT(what) \
    ((double)(after.what.tv_sec - before->what.tv_sec) \
     + 1e-6 * (double)(after.what.tv_usec - before->what.tv_usec))
    long switches = after.ru_nvcsw + after.ru_nivcsw - before->ru_nvcsw - before->ru_nivcsw;
    app_report("count", processes, seconds,
               "protocol=%s value=%lu user=%.6f system=%.6f switches=%ld losses=%llu wins=%llu "
               "latency_us=%.3f",
               protocol, (unsigned long)(value < (uint32_t)target ? value : (uint32_t)target),
               SPENT(ru_utime), SPENT(ru_stime), switches,
               (unsigned long long)seen.losses, (unsigned long long)seen.wins,
               seen.wins ? 1e6 * seen.waited / (double)seen.wins : 0.0);
}

/* Other bytes than zeros, so that a whole page does not become small on its way. */
static void fill(void)
{
    app_random random = { 1 };
    for (unsigned page = 0; page < 2; page++) {
        char *bytes = pagemesh_view(base + page * PAGE, stride, 0);
        for (size_t at = 32; at < PAGE; at++) {
            bytes[at] = (char)app_random_below(&random, 256);
        }
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "protocol", NULL, &protocol, "full, short, disjoint, data, final or alone" },
        { "to", &target, NULL, "count up to here" },
        { "purge", &purge, NULL, "disjoint: purge after so many losses; 0: never" },
        { "delay", &delay, NULL, "microseconds to wait after a loss" },
        { "bound", &bound, NULL, "stop after so many seconds, wherever the counter is" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Two processes count together", options);
    struct rusage before;
    if (strcmp(protocol, "alone") == 0 || app_sequential) {
        protocol = "alone";
        getrusage(RUSAGE_SELF, &before);
        double began = app_now();
        report(1, alone(), began, &before);
        return 0;
    }
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_job_t *job = pagemesh_job_open(mesh);
    check(job != NULL, "job");
    rank = pagemesh_job_rank(job);
    if (pagemesh_job_size(job) != 2) {
        app_fail("two processes count together: pagemesh sandbox 2 -- count");
    }
    char name[256];
    const char *job_name = getenv("PAGEMESH_JOB");
    snprintf(name, sizeof name, "count.%s", job_name ? job_name : "job");
    pagemesh_options_t how = PAGEMESH_OPTIONS_INIT;
    how.policy = PAGEMESH_VIEWS;
    segment = pagemesh_create(mesh, name, 2 * PAGE, &how);
    check(segment != NULL, "create");
    base = pagemesh_map_views(segment, &stride);
    check(base != NULL, "map");
    pagemesh_segment_t *together = pagemesh_job_segment(job);
    if (rank == 0) {
        fill();
    }
    check(pagemesh_barrier_wait(together, 1, 2) == 0, "barrier");
    /* Each process has its page, and none of the other's (E17). */
    (void)*word(rank, PAGEMESH_VIEW_SHORT);
    check(pagemesh_barrier_wait(together, 1, 2) == 0, "barrier");
    drop(1 - rank, PAGEMESH_VIEW_OLD);
    check(pagemesh_barrier_wait(together, 1, 2) == 0, "barrier");
    getrusage(RUSAGE_SELF, &before);
    double began = app_now();
    seen.end = began + (double)bound;
    uint32_t value = count();
    report(2, value, began, &before);
    check(pagemesh_barrier_wait(together, 1, 2) == 0, "barrier");
    check(pagemesh_unmap_views(base) == 0 && pagemesh_close(segment) == 0, "close");
    if (rank == 0) {
        check(pagemesh_remove(mesh, name) == 0, "remove");
    }
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return 0;
}
