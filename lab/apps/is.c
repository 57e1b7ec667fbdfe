/* IS: integers are ranked by counting: how many keys are smaller than each?
 *
 * Each process has a part of the keys in private memory and counts them there. It
 * adds its counts to the shared ones section by section, each under a lock,
 * beginning with its own so that all are busy. After a barrier everybody
 * reads all counts. */
#include <string.h>

#include <Tmk.h>

#include "app.h"

static long count = 1048576, range = 32768, iterations = 10;

/* What processes share: how often each key is there, and a sum over all ranks. */
typedef struct {
    uint64_t sum;
    uint32_t often[];
} counts;

static counts *shared;

enum { SUM, SECTION };

static void fill(uint32_t *key)
{
    app_random random = { 1 };
    for (long at = 0; at < count; at++) {
        /* Four of them, so that the middle is more frequent. */
        double four = 0;
        for (int turn = 0; turn < 4; turn++) {
            four += app_random_unit(&random);
        }
        key[at] = (uint32_t)(four / 4 * (double)range);
    }
}

/* Two keys change with every iteration, if they are in this part. */
static void change(uint32_t *key, long iteration, long begin, long end)
{
    long places[2] = { iteration % count, (iteration + iterations) % count };
    uint32_t values[2] = { (uint32_t)(iteration % range), (uint32_t)(range - 1 - iteration % range) };
    for (int which = 0; which < 2; which++) {
        if (places[which] >= begin && places[which] < end) {
            key[places[which]] = values[which];
        }
    }
}

/* A sum in which every key's rank counts. */
static uint64_t rank(const uint32_t *key, uint32_t *smaller, const uint32_t *often, long begin,
                     long end)
{
    uint32_t all = 0;
    uint64_t sum = 0;
    for (long value = 0; value < range; value++) {
        smaller[value] = all;
        all += often[value];
    }
    for (long at = begin; at < end; at++) {
        sum += (uint64_t)smaller[key[at]] * (uint64_t)(at + 1);
    }
    return sum;
}

static void count_keys(const uint32_t *key, uint32_t *often, long begin, long end)
{
    memset(often, 0, (size_t)range * sizeof(uint32_t));
    for (long at = begin; at < end; at++) {
        often[key[at]]++;
    }
}

static double solve_alone(uint64_t *sum)
{
    uint32_t *key = app_memory((size_t)count, sizeof(uint32_t));
    uint32_t *often = app_memory((size_t)range, sizeof(uint32_t));
    uint32_t *smaller = app_memory((size_t)range, sizeof(uint32_t));
    fill(key);
    *sum = 0;
    double start = app_now();
    for (long iteration = 0; iteration < iterations; iteration++) {
        change(key, iteration, 0, count);
        count_keys(key, often, 0, count);
        *sum += rank(key, smaller, often, 0, count);
    }
    double took = app_now() - start;
    free(key);
    free(often);
    free(smaller);
    return took;
}

static void share_counts(const uint32_t *often)
{
    for (int turn = 0; turn < Tmk_nprocs; turn++) {
        int section = (Tmk_proc_id + turn) % Tmk_nprocs;
        long begin, end;
        app_part(range, section, Tmk_nprocs, &begin, &end);
        Tmk_lock_acquire(SECTION + (unsigned)section);
        for (long value = begin; value < end; value++) {
            shared->often[value] += often[value];
        }
        Tmk_lock_release(SECTION + (unsigned)section);
    }
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc(sizeof *shared + (size_t)range * sizeof(uint32_t));
        if (shared == NULL) {
            app_fail("no shared memory");
        }
        shared->sum = 0;
        Tmk_distribute(&shared, sizeof shared);
    }
    uint32_t *key = app_memory((size_t)count, sizeof(uint32_t));
    uint32_t *often = app_memory((size_t)range, sizeof(uint32_t));
    uint32_t *smaller = app_memory((size_t)range, sizeof(uint32_t));
    uint64_t sum = 0;
    long begin, end;
    fill(key);
    app_part(count, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    Tmk_barrier(0);
    double start = app_now();
    for (long iteration = 0; iteration < iterations; iteration++) {
        if (Tmk_proc_id == 0) {
            memset(shared->often, 0, (size_t)range * sizeof(uint32_t));
        }
        change(key, iteration, begin, end);
        count_keys(key, often, begin, end);
        Tmk_barrier(1);
        share_counts(often);
        Tmk_barrier(2);
        sum += rank(key, smaller, shared->often, begin, end);
        Tmk_barrier(3);
    }
    Tmk_lock_acquire(SUM);
    shared->sum += sum;
    Tmk_lock_release(SUM);
    Tmk_barrier(0);
    double took = app_now() - start;
    free(key);
    free(often);
    free(smaller);
    return took;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "count", &count, NULL, "how many keys" },
        { "range", &range, NULL, "keys are below this" },
        { "iterations", &iterations, NULL, "how often they are ranked" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "integer sort by counting", options);
    if (count < 1 || range < 1 || count > UINT32_MAX) {
        app_fail("there is at least one key, and fewer than 2^32");
    }
    uint64_t sum;
    if (app_sequential) {
        double took = solve_alone(&sum);
        app_report("is", 1, took, "sum=%llu", (unsigned long long)sum);
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        app_report("is", Tmk_nprocs, took, "sum=%llu", (unsigned long long)shared->sum);
        if (app_check) {
            solve_alone(&sum);
            if (sum != shared->sum) {
                app_fail("is: alone the sum is %llu", (unsigned long long)sum);
            }
        }
    }
    Tmk_exit(0);
}
