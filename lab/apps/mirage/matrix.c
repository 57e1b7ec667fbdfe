/* Matrix multiply: C = A x B, whole numbers, a band of rows for each worker (MR15,
 * MR16). The first process loads A and B, tells the others to begin, and collects C;
 * a segment of its own says who has begun and who is done. Alone, the first process
 * does it all in private memory, which is the base of speedups. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"
#include "shared.h"

static long n = 120, padding = 1, processes = 2, times = 1;

/* Numbers from row to row: above 120 rows end on borders of pages, or pages on those
 * of rows, so that no two bands have a page in common. */
static long stride(void)
{
    long numbers = n;
    if (padding && n > 120) {
        for (numbers = 128; numbers < n;) {
            numbers *= 2;
        }
    }
    return numbers;
}

/* Which matrices: A and B of one multiplication. */
static uint32_t salt;

static uint32_t number(long row, long column, uint32_t which)
{
    uint32_t mixed = (uint32_t)(row * 31 + column * 17) + (2 * salt + which) * 7919u;
    return mixed % 1000u;
}

static void load(uint32_t *a, uint32_t *b, long from_row)
{
    for (long row = 0; row < n; row++) {
        for (long column = 0; column < n; column++) {
            a[row * from_row + column] = number(row, column, 0);
            b[row * from_row + column] = number(row, column, 1);
        }
    }
}

static void multiply(const uint32_t *a, const uint32_t *b, uint32_t *c, long from_row, long begin,
                     long end)
{
    for (long row = begin; row < end; row++) {
        for (long column = 0; column < n; column++) {
            uint32_t sum = 0;
            for (long k = 0; k < n; k++) {
                sum += a[row * from_row + k] * b[k * from_row + column];
            }
            c[row * from_row + column] = sum;
        }
    }
}

/* C times a vector is A times B times that vector, or something is wrong; takes
 * little time beside the multiplication. */
static void check(const uint32_t *c, long from_row)
{
    uint32_t *vector = app_memory((size_t)n, sizeof *vector), *once = app_memory((size_t)n, sizeof *once);
    app_random random = { 3 };
    for (long k = 0; k < n; k++) {
        vector[k] = app_random_below(&random, 1u << 30);
    }
    for (long row = 0; row < n; row++) {
        for (long k = 0; k < n; k++) {
            once[row] += number(row, k, 1) * vector[k];
        }
    }
    for (long row = 0; row < n; row++) {
        uint32_t expected = 0, found = 0;
        for (long k = 0; k < n; k++) {
            expected += number(row, k, 0) * once[k];
            found += c[row * from_row + k] * vector[k];
        }
        if (expected != found) {
            app_fail("row %ld is wrong", row);
        }
    }
    free(vector);
    free(once);
}

/* A look now and then: whoever waits is not in the way of those who work. */
static void wait_until(const volatile uint32_t *flag)
{
    const struct timespec moment = { 0, 200000 };
    while (!*flag) {
        nanosleep(&moment, NULL);
    }
}

/* What the memory of the other segment says; a line for each, since all look. */
typedef struct {
    volatile uint32_t go;
    char gap[60];
    struct {
        volatile uint32_t done;
        char gap[60];
    } worker[64];
} signs;

static double together(uint32_t *a, uint32_t *b, uint32_t *c, signs *all, long from_row)
{
    double start = 0;
    if (shared_rank == 0) {
        load(a, b, from_row);
        start = app_now();
        all->go = 1;
        for (int worker = 1; worker < shared_size; worker++) {
            wait_until(&all->worker[worker].done);
        }
        /* Collects. */
        check(c, from_row);
        return app_now() - start;
    }
    long begin, end;
    app_part(n, shared_rank - 1, shared_size - 1, &begin, &end);
    wait_until(&all->go);
    multiply(a, b, c, from_row, begin, end);
    all->worker[shared_rank].done = 1;
    return 0;
}

static int alone(long from_row, size_t numbers)
{
    uint32_t *a = app_memory(numbers, 4), *b = app_memory(numbers, 4), *c = app_memory(numbers, 4);
    load(a, b, from_row);
    double start = app_now();
    multiply(a, b, c, from_row, 0, n);
    check(c, from_row);
    app_report("matrix", 1, app_now() - start, "n=%ld padding=%ld", n, padding);
    return 0;
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "n", &n, NULL, "rows and columns" },
        { "padding", &padding, NULL, "0: rows follow each other closely" },
        { "times", &times, NULL, "multiply so often; the median counts" },
        { "processes", &processes, NULL, "how many, if no launcher says it" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Matrix multiply in bands of rows", options);
    if (times < 1 || n < 1 || n > 4096 || processes < 2 || processes > 64) {
        app_fail("--n is 1 to 4096, --processes 2 to 64, --times 1 at least");
    }
    long from_row = stride();
    size_t numbers = (size_t)(n * from_row);
    if (app_sequential) {
        return alone(from_row, numbers);
    }
    shared_begin((int)processes);
    if (shared_size < 2 || shared_size > 64) {
        app_fail("2 to 64 processes are needed");
    }
    signs *all = shared_segment(1, sizeof *all);
    /* A, B and C each begin at a page. */
    size_t each = (numbers * 4 + 4095) / 4096 * 1024;
    uint32_t *memory = shared_segment(0, each * 4 * 3);
    double *took = app_memory((size_t)times, sizeof *took);
    for (long time = 0; time < times; time++) {
        /* Other matrices each time: what was there before is wrong. */
        salt = (uint32_t)time;
        took[time] = together(memory, memory + each, memory + 2 * each, all, from_row);
        shared_barrier();
        if (shared_rank == 0) {
            memset(all, 0, sizeof *all);
        }
        shared_barrier();
    }
    qsort(took, (size_t)times, sizeof *took, by_size);
    if (shared_rank == 0) {
        app_report("matrix", shared_size, took[times / 2], "n=%ld padding=%ld", n, padding);
    }
    return shared_end();
}
