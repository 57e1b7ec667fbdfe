/*
 * What `pagemesh bench peers` measures of an MPI: one-sided operations of rank 0
 * on the memory of rank 1, and barriers of both. Rank 0 prints one line for each
 * kind: its name, then the nanoseconds of each.
 *
 * Rank 1 does nothing but wait in a barrier meanwhile. That is the best case for
 * an MPI whose one-sided operations need the target to call MPI.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, HOME = 1, COUNTER_NANOS = 100000000 };

static long *times;
static int count, rank;
static char page[PAGE];

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void tell(const char *name, int n)
{
    printf("%s", name);
    for (int i = 0; i < n; i++)
        printf(" %ld", times[i]);
    printf("\n");
    fflush(stdout);
}

typedef void operation(MPI_Win window, int i);

static void get(MPI_Win window, int i)
{
    MPI_Get(page, PAGE, MPI_BYTE, HOME, (MPI_Aint)i * PAGE, PAGE, MPI_BYTE, window);
    MPI_Win_flush(HOME, window);
}

static void put(MPI_Win window, int i)
{
    MPI_Put(page, PAGE, MPI_BYTE, HOME, (MPI_Aint)i * PAGE, PAGE, MPI_BYTE, window);
    MPI_Win_flush(HOME, window);
}

static void fetch_add(MPI_Win window, int i)
{
    long one = 1, before;
    (void)i;
    MPI_Fetch_and_op(&one, &before, MPI_LONG, HOME, 0, MPI_SUM, window);
    MPI_Win_flush(HOME, window);
}

/* A lock, and one word of what it guards: without an operation in between an MPI
 * may put off the lock for ever. */
static void lock(MPI_Win window, int i)
{
    long word;
    (void)i;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, HOME, 0, window);
    MPI_Get(&word, 1, MPI_LONG, HOME, 0, 1, MPI_LONG, window);
    MPI_Win_unlock(HOME, window);
}

/* The same without the word. */
static void lock_only(MPI_Win window, int i)
{
    (void)i;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, HOME, 0, window);
    MPI_Win_unlock(HOME, window);
}

static void barrier(MPI_Win window, int i)
{
    (void)window, (void)i;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Does it count times and half as often before, to warm up. */
static void measure(const char *name, operation *work, MPI_Win window)
{
    for (int i = -count / 2; i < count; i++) {
        long start = now();
        work(window, i < 0 ? -i : i);
        if (i >= 0)
            times[i] = now() - start;
    }
    if (rank == 0)
        tell(name, count);
}

/* Rank 0 alone works; the other waits. */
static void alone(const char *name, operation *work, MPI_Win window)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        measure(name, work, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int size, length;
    char *memory, library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Win window, guard;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    count = argc > 1 ? atoi(argv[1]) : 1000;
    if (size != 2 || count < 1) {
        fprintf(stderr, "this takes two ranks and a count\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    times = calloc(count, sizeof *times);
    MPI_Win_allocate((MPI_Aint)count * PAGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memset(memory, 0, (size_t)count * PAGE);
    MPI_Get_library_version(library, &length);
    if (rank == 0)
        fprintf(stderr, "%.40s\n", library);

    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    alone("get", get, window);
    alone("put", put, window);
    alone("fetch_add", fetch_add, window);

    /* Both add to one word for a while: what each of all these adds took. */
    long adds = 0, all = 0, start, took;
    MPI_Barrier(MPI_COMM_WORLD);
    start = now();
    while (now() - start < COUNTER_NANOS)
        fetch_add(window, adds++);
    took = now() - start;
    MPI_Reduce(&adds, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        times[0] = took / all;
        tell("counter", 1);
    }
    MPI_Win_unlock_all(window);

    char *guarded;
    MPI_Win_allocate(PAGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &guarded, &guard);
    alone("lock", lock, guard);
    alone("lock_only", lock_only, guard);
    MPI_Barrier(MPI_COMM_WORLD);
    measure("barrier", barrier, window);

    MPI_Win_free(&guard);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
