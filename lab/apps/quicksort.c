/* Quicksort of integers; parts of less than 1024 are sorted by bubble sort (T22:
 * 256 K integers).
 *
 * Parts to be sorted wait on a shared stack, under a lock. Who takes one splits
 * it, puts one half back and goes on with the other, until that is small; what is
 * smaller still is sorted without the others. Everybody takes what it put there
 * last, whose pages it has; or else what somebody put there first, which is large.
 * Who finds the stack empty waits for a condition; when all wait, all is sorted. */
#include <string.h>

#include <Tmk.h>

#include "app.h"

#define MOST_PARTS 65536

static long count = 262144, bubble_below = 1024, alone_below = 8192;

/* Numbers begin up to, not including, end. */
typedef struct {
    long begin, end;
} part;

/* A part that waits, and who put it there. */
typedef struct {
    int begin, end, whose;
} waiting_part;

/* What processes share. So little that nearly always one page of it is in use: each
 * page more is one more to wait for while holding the lock. */
typedef struct {
    int waiting;
    /* Processes that sort a part. */
    int busy;
    waiting_part stack[MOST_PARTS];
} work;

static int *numbers;
static work *shared;

enum { STACK };

static void fill(int *array)
{
    app_random random = { 1 };
    for (long place = 0; place < count; place++) {
        array[place] = (int)app_random_below(&random, INT32_MAX);
    }
}

static void bubble_sort(int *array, part of)
{
    for (long last = of.end - 1; last > of.begin;) {
        long sorted_from = of.begin;
        for (long place = of.begin; place < last; place++) {
            if (array[place] > array[place + 1]) {
                int other = array[place];
                array[place] = array[place + 1];
                array[place + 1] = other;
                sorted_from = place;
            }
        }
        last = sorted_from;
    }
}

/* Splits a part: what is before the returned place is not larger than what is
 * there or behind it. Neither side is empty. */
static long split(int *array, part of)
{
    long low = of.begin - 1, high = of.end;
    int pivot = array[of.begin + (of.end - of.begin - 1) / 2];
    for (;;) {
        do {
            low++;
        } while (array[low] < pivot);
        do {
            high--;
        } while (array[high] > pivot);
        if (low >= high) {
            return high + 1;
        }
        int other = array[low];
        array[low] = array[high];
        array[high] = other;
    }
}

static void sort_alone(int *array, part of)
{
    while (of.end - of.begin >= bubble_below) {
        long middle = split(array, of);
        sort_alone(array, (part){ of.begin, middle });
        of.begin = middle;
    }
    bubble_sort(array, of);
}

static double solve_alone(int *array)
{
    fill(array);
    double start = app_now();
    sort_alone(array, (part){ 0, count });
    return app_now() - start;
}

static void put(part of)
{
    Tmk_lock_acquire(STACK);
    if (shared->waiting == MOST_PARTS) {
        app_fail("quicksort: too many parts");
    }
    shared->stack[shared->waiting++] =
        (waiting_part){ (int)of.begin, (int)of.end, Tmk_proc_id };
    Tmk_lock_cond_signal(STACK, 0);
    Tmk_lock_release(STACK);
}

/* Takes a part from the stack, which is not empty. */
static part choose(void)
{
    int place = shared->waiting - 1;
    while (place > 0 && shared->stack[place].whose != Tmk_proc_id) {
        place--;
    }
    waiting_part chosen = shared->stack[place];
    for (shared->waiting--; place < shared->waiting; place++) {
        shared->stack[place] = shared->stack[place + 1];
    }
    return (part){ chosen.begin, chosen.end };
}

/* The next part to sort; 0 if all is sorted. */
static int take(part *next)
{
    Tmk_lock_acquire(STACK);
    shared->busy--;
    while (shared->waiting == 0 && shared->busy > 0) {
        Tmk_lock_cond_wait(STACK, 0);
    }
    int found = shared->waiting > 0;
    if (found) {
        *next = choose();
        shared->busy++;
    } else {
        Tmk_lock_cond_broadcast(STACK, 0);
    }
    Tmk_lock_release(STACK);
    return found;
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        numbers = Tmk_malloc((size_t)count * sizeof(int));
        shared = Tmk_malloc(sizeof *shared);
        if (numbers == NULL || shared == NULL) {
            app_fail("no shared memory");
        }
        fill(numbers);
        shared->busy = Tmk_nprocs;
        shared->waiting = 1;
        shared->stack[0] = (waiting_part){ 0, (int)count, 0 };
        Tmk_distribute(&numbers, sizeof numbers);
        Tmk_distribute(&shared, sizeof shared);
    }
    Tmk_barrier(0);
    double start = app_now();
    part mine;
    while (take(&mine)) {
        while (mine.end - mine.begin >= alone_below && mine.end - mine.begin >= bubble_below) {
            long middle = split(numbers, mine);
            put((part){ middle, mine.end });
            mine.end = middle;
        }
        sort_alone(numbers, mine);
    }
    Tmk_barrier(0);
    return app_now() - start;
}

static int is_sorted(const int *array)
{
    for (long place = 1; place < count; place++) {
        if (array[place - 1] > array[place]) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "count", &count, NULL, "how many integers" },
        { "bubble-below", &bubble_below, NULL, "parts smaller than this are sorted by bubble sort" },
        { "alone-below", &alone_below, NULL, "parts smaller than this are sorted by who has them" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "quicksort of integers", options);
    if (count < 1 || count > INT32_MAX || bubble_below < 2) {
        app_fail("there are 1 to 2147483647 integers, and at least 2 are split");
    }
    int *alone = NULL;
    if (app_sequential) {
        alone = app_memory((size_t)count, sizeof(int));
        double took = solve_alone(alone);
        app_report("quicksort", 1, took, "sorted=%d", is_sorted(alone));
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        app_report("quicksort", Tmk_nprocs, took, "sorted=%d", is_sorted(numbers));
        if (app_check) {
            alone = app_memory((size_t)count, sizeof(int));
            solve_alone(alone);
            if (memcmp(alone, numbers, (size_t)count * sizeof(int)) != 0) {
                app_fail("quicksort: these are not the same numbers in order");
            }
        }
    }
    Tmk_exit(0);
}
