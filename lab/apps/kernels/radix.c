/* Radix sort: integers, by one digit after the other, the least significant first.
 *
 * For each digit, every process counts the digits of its part of the keys; from the
 * counts of all it knows where its keys go, and stores them there, which is in
 * everybody's part (Blelloch and others 1991). Barriers only. */
#include <string.h>

#include "app.h"
#include "par.h"

/* One process's counts fill a page. */
#define DIGIT_BITS 10
#define DIGITS (1 << DIGIT_BITS)

static long count = 16777216, bits = 30;

/* The keys, and where they go. */
static uint32_t *keys, *sorted;

/* How many of each digit each process has. */
static uint32_t (*counts)[DIGITS];

static uint32_t next_key(app_random *random)
{
    return app_random_below(random, (uint32_t)1 << bits);
}

static void fill(void)
{
    app_random random = { 1 };
    keys = G_MALLOC((size_t)count * sizeof *keys);
    sorted = G_MALLOC((size_t)count * sizeof *sorted);
    counts = G_MALLOC((size_t)par_processes * sizeof *counts);
    for (long at = 0; at < count; at++) {
        keys[at] = next_key(&random);
    }
}

/* Where the first of this process's keys with each digit goes. */
static void find_places(uint32_t *place, int process)
{
    uint32_t next = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        for (int other = 0; other < par_processes; other++) {
            if (other == process) {
                place[digit] = next;
            }
            next += counts[other][digit];
        }
    }
}

static void work(int process)
{
    long begin, end;
    uint32_t *from = keys, *to = sorted, place[DIGITS];
    app_part(count, process, par_processes, &begin, &end);
    for (int shift = 0; shift < bits; shift += DIGIT_BITS) {
        memset(place, 0, sizeof place);
        for (long at = begin; at < end; at++) {
            place[from[at] >> shift & (DIGITS - 1)]++;
        }
        memcpy(counts[process], place, sizeof place);
        BARRIER(1);
        find_places(place, process);
        for (long at = begin; at < end; at++) {
            to[place[from[at] >> shift & (DIGITS - 1)]++] = from[at];
        }
        BARRIER(2);
        uint32_t *emptied = from;
        from = to;
        to = emptied;
    }
}

/* In order, and the same keys as at first. */
static void check(const uint32_t *result)
{
    app_random random = { 1 };
    uint64_t sum = 0, squares = 0;
    for (long at = 0; at < count; at++) {
        uint64_t was = next_key(&random), is = result[at];
        sum += was - is;
        squares += was * was - is * is;
        if (at > 0 && result[at - 1] > result[at]) {
            app_fail("radix: key %ld is greater than the next", at - 1);
        }
    }
    if (sum != 0 || squares != 0) {
        app_fail("radix: these are other keys than at first");
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "count", &count, NULL, "how many keys" },
        { "bits", &bits, NULL, "bits of a key, up to 31" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "radix sort", options);
    if (count < 1 || count > 0x7fffffff || bits < 1 || bits > 31) {
        app_fail("there are 1 to 2^31 - 1 keys of 1 to 31 bits");
    }
    MAIN_INITENV(argc, argv);
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(keys);
    DISTRIBUTE(sorted);
    DISTRIBUTE(counts);
    double took = CREATE(work);
    if (par_first()) {
        const uint32_t *result = (bits + DIGIT_BITS - 1) / DIGIT_BITS % 2 == 0 ? keys : sorted;
        uint64_t sum = 0;
        for (long at = 0; at < count; at++) {
            sum = sum * 31 + result[at];
        }
        app_report("radix", par_processes, took, "sum=%llu", (unsigned long long)sum);
        if (app_check) {
            check(result);
        }
    }
    MAIN_END;
}
