/* EachN, UptoN, RandN: a page of zeros into which bytes were written that no code
 * makes smaller, and what it costs another site to have it (MR11).
 *
 * EachN writes to every n-th byte, UptoN to the first n, RandN to n bytes anywhere.
 * The last process writes `--count` pages so, the first reads them, timed one by one,
 * and looks whether each byte is what was written. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "shared.h"

enum { PAGE = 4096 };

static long n = 10, count = 200;
static const char *how = "each";

/* A byte that is not zero and does not repeat soon. */
static unsigned char scrambled(app_random *random)
{
    return (unsigned char)(1 + app_random_below(random, 255));
}

/* Page number `number`, into `page`, which is zero. */
static void scramble(unsigned char *page, long number)
{
    app_random random = { (uint64_t)number + 1 };
    if (strcmp(how, "each") == 0) {
        for (long at = 0; at < PAGE; at += n) {
            page[at] = scrambled(&random);
        }
    } else if (strcmp(how, "upto") == 0) {
        for (long at = 0; at < n && at < PAGE; at++) {
            page[at] = scrambled(&random);
        }
    } else {
        for (long turn = 0; turn < n; turn++) {
            page[app_random_below(&random, PAGE)] = scrambled(&random);
        }
    }
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Reads all pages in an order that nobody guesses; the median of the times. */
static double read_all(volatile unsigned char *pages)
{
    double *times = app_memory((size_t)count, sizeof *times);
    long *order = app_memory((size_t)count, sizeof *order);
    app_random random = { 7 };
    for (long at = 0; at < count; at++) {
        order[at] = at;
    }
    for (long last = count - 1; last > 0; last--) {
        long other = (long)app_random_below(&random, (uint32_t)last + 1), kept = order[last];
        order[last] = order[other];
        order[other] = kept;
    }
    for (long at = 0; at < count; at++) {
        double start = app_now();
        (void)pages[order[at] * PAGE];
        times[at] = app_now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_size);
    double median = times[count / 2];
    free(times);
    free(order);
    return median;
}

static void check(const unsigned char *pages)
{
    for (long number = 0; number < count; number++) {
        unsigned char page[PAGE] = { 0 };
        scramble(page, number);
        if (memcmp(page, pages + number * PAGE, PAGE) != 0) {
            app_fail("page %ld is not what was written", number);
        }
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "how", NULL, &how, "each, upto or rand" },
        { "n", &n, NULL, "which bytes, or how many" },
        { "count", &count, NULL, "how many pages" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "EachN, UptoN, RandN: pages that pack more or less", options);
    if (n < 1 || count < 1 || (strcmp(how, "each") && strcmp(how, "upto") && strcmp(how, "rand"))) {
        app_fail("--how is each, upto or rand; --n and --count are 1 at least");
    }
    shared_begin(2);
    unsigned char *pages = shared_segment(0, (size_t)count * PAGE);
    if (shared_rank == shared_size - 1) {
        for (long number = 0; number < count; number++) {
            scramble(pages + number * PAGE, number);
        }
    }
    shared_barrier();
    if (shared_rank == 0) {
        double median = read_all(pages);
        check(pages);
        app_report("scramble", shared_size, median, "how=%s n=%ld count=%ld", how, n, count);
    }
    return shared_end();
}
