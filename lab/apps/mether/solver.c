/* A sparse solver of several processes that send each other messages: the application of the
 * Mether paper (E15, E21, ER6). Conjugate gradients for the five-point matrix of a square grid,
 * the rows of the grid dealt to the processes: neighbours exchange border rows, and the first
 * process adds up what all have found. No memory is shared: csend and crecv are all there is. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <pagemesh.h>

#include "app.h"

/* Kinds of messages. */
enum { UP = 1, DOWN = 2, PART = 3, SUM = 4, RESULT = 5 };

static long n = 500, iterations = 100;

static pagemesh_group_t *group;
static unsigned rank, size = 1;
static long first, last;
static uint64_t messages;

static void check(int ok, const char *what)
{
    if (!ok) {
        app_fail("%s: %s", what, pagemesh_error_message());
    }
}

static void csend(int kind, const double *numbers, long count, unsigned to)
{
    size_t bytes = (size_t)count * sizeof *numbers;
    check(pagemesh_csend(group, kind, numbers, bytes, to, PAGEMESH_FOREVER) == 0, "csend");
    messages++;
}

static void crecv(int kind, double *numbers, long count, unsigned from)
{
    ssize_t bytes = (ssize_t)((size_t)count * sizeof *numbers);
    ssize_t came = pagemesh_crecv(group, kind, from, numbers, (size_t)bytes, NULL, PAGEMESH_FOREVER);
    check(came >= 0, "crecv");
    if (came != bytes) {
        app_fail("a message has %ld bytes, not %ld", (long)came, (long)bytes);
    }
}

/* The sum over all processes, the same bits in each. */
static double sum(double mine)
{
    if (rank != 0) {
        csend(PART, &mine, 1, 0);
        crecv(SUM, &mine, 1, 0);
        return mine;
    }
    for (unsigned other = 1; other < size; other++) {
        double part;
        crecv(PART, &part, 1, other);
        mine += part;
    }
    for (unsigned other = 1; other < size; other++) {
        csend(SUM, &mine, 1, other);
    }
    return mine;
}

/* A row of a vector; the rows before the first and after the last one are the neighbours'. */
static double *row(double *vector, long at)
{
    return vector + (at - first + 1) * n;
}

static void exchange(double *vector)
{
    if (rank > 0) {
        csend(UP, row(vector, first), n, rank - 1);
    }
    if (rank + 1 < size) {
        csend(DOWN, row(vector, last - 1), n, rank + 1);
        crecv(UP, row(vector, last), n, rank + 1);
    }
    if (rank > 0) {
        crecv(DOWN, row(vector, first - 1), n, rank - 1);
    }
}

/* out = A in; rows outside of the grid are zero. */
static void multiply(double *in, double *out)
{
    for (long at = first; at < last; at++) {
        const double *middle = row(in, at), *above = row(in, at - 1), *below = row(in, at + 1);
        double *result = row(out, at);
        for (long column = 0; column < n; column++) {
            double left = column > 0 ? middle[column - 1] : 0;
            double right = column + 1 < n ? middle[column + 1] : 0;
            result[column] = 4.0 * middle[column] - left - right - above[column] - below[column];
        }
    }
}

static double dot(const double *one, const double *other)
{
    double result = 0;
    for (long at = n; at < (last - first + 1) * n; at++) {
        result += one[at] * other[at];
    }
    return sum(result);
}

/* What the solution is to be: any numbers. */
static double wanted(long at, long column)
{
    return sin(0.1 * (double)at) + cos(0.07 * (double)column);
}

/* Solves A x = A wanted in so many steps. Returns the residual's square. */
static double solve(double *x)
{
    size_t numbers = (size_t)((last - first + 2) * n);
    double *r = app_memory(numbers, sizeof *r), *p = app_memory(numbers, sizeof *p);
    double *q = app_memory(numbers, sizeof *q);
    for (long at = first; at < last; at++) {
        for (long column = 0; column < n; column++) {
            row(p, at)[column] = wanted(at, column);
        }
    }
    exchange(p);
    multiply(p, r);
    memcpy(p, r, numbers * sizeof *p);
    memset(x, 0, numbers * sizeof *x);
    double rr = dot(r, r);
    for (long step = 0; step < iterations; step++) {
        exchange(p);
        multiply(p, q);
        double alpha = rr / dot(p, q);
        for (long at = n; at < (last - first + 1) * n; at++) {
            x[at] += alpha * p[at];
            r[at] -= alpha * q[at];
        }
        double next = dot(r, r), beta = next / rr;
        rr = next;
        for (long at = n; at < (last - first + 1) * n; at++) {
            p[at] = r[at] + beta * p[at];
        }
    }
    free(r);
    free(p);
    free(q);
    return rr;
}

static void part_of(unsigned number, unsigned count)
{
    app_part(n, (int)number, (int)count, &first, &last);
}

/* The first process collects the solution, and compares it with what it finds alone. */
static void compare(double *x)
{
    if (rank != 0) {
        for (long at = first; at < last; at++) {
            csend(RESULT, row(x, at), n, 0);
        }
        return;
    }
    double *all = app_memory((size_t)((n + 2) * n), sizeof *all);
    double *alone = app_memory((size_t)((n + 2) * n), sizeof *alone);
    memcpy(all + n, row(x, first), (size_t)((last - first) * n) * sizeof *all);
    for (unsigned other = 1; other < size; other++) {
        long begin, end;
        app_part(n, (int)other, (int)size, &begin, &end);
        for (long at = begin; at < end; at++) {
            crecv(RESULT, all + (at + 1) * n, n, other);
        }
    }
    unsigned processes = size;
    size = 1;
    part_of(0, 1);
    solve(alone);
    size = processes;
    double most = 0, off = 0;
    for (long at = n; at < (n + 1) * n; at++) {
        most = fmax(most, fabs(alone[at]));
        off = fmax(off, fabs(alone[at] - all[at]));
    }
    if (!(off <= 1e-9 * most)) {
        app_fail("the solution differs by %g from that of one process", off / most);
    }
    free(all);
    free(alone);
}

static void report(double seconds, double residual, const struct rusage *before)
{
    struct rusage after;
    getrusage(RUSAGE_SELF, &after);
#define SPENT(what) \
    ((double)(after.what.tv_sec - before->what.tv_sec) \
     + 1e-6 * (double)(after.what.tv_usec - before->what.tv_usec))
    app_report("solver", (int)size, seconds,
               "n=%ld iterations=%ld residual=%.6e user=%.6f system=%.6f messages=%llu", n,
               iterations, sqrt(residual), SPENT(ru_utime), SPENT(ru_stime),
               (unsigned long long)messages);
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "n", &n, NULL, "rows and columns of the grid" },
        { "iterations", &iterations, NULL, "steps" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "A sparse solver on csend and crecv", options);
    if (n < 1 || n > 16384 || iterations < 0) {
        app_fail("--n is 1 to 16384");
    }
    pagemesh_t *mesh = NULL;
    if (!app_sequential) {
        mesh = pagemesh_connect(NULL);
        check(mesh != NULL, "connect");
        group = pagemesh_group_join(mesh, NULL, 0, 0, (size_t)n * sizeof(double), 0600);
        check(group != NULL, "group");
        rank = pagemesh_group_number(group);
        size = pagemesh_group_count(group);
        if ((long)size > n) {
            app_fail("more processes than rows");
        }
    }
    part_of(rank, size);
    double *x = app_memory((size_t)((last - first + 2) * n), sizeof *x);
    /* All are here, and have their pipes. */
    sum(0);
    struct rusage before;
    getrusage(RUSAGE_SELF, &before);
    double began = app_now();
    double residual = solve(x);
    double seconds = app_now() - began;
    report(seconds, residual, &before);
    if (app_check && !app_sequential) {
        compare(x);
    }
    if (group != NULL) {
        /* What was sent last has been received, so that nobody finds a pipe closed. */
        sum(0);
        check(rank != 0 || pagemesh_group_remove(group) == 0, "remove");
        check(pagemesh_group_leave(group) == 0, "leave");
    }
    free(x);
    pagemesh_disconnect(mesh);
    return 0;
}
