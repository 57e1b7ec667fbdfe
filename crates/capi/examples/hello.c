/* Processes on several hosts count together.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 2 -- ./hello
 *
 * Every process adds to one counter a thousand times, under a lock; at the end
 * each checks that nothing was lost. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagemesh.h>

#define ROUNDS 1000

/* Numbers of the job's lock and barriers: any numbers do. */
enum { COUNTER_LOCK, STARTED, COUNTED, CHECKED };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, pagemesh_error_message());
        exit(1);
    }
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_job_t *job = pagemesh_job_open(mesh);
    check(job != NULL, "join the job");
    pagemesh_segment_t *segment = pagemesh_job_segment(job);
    uint32_t size = pagemesh_job_size(job);
    volatile uint64_t *counter =
        (volatile uint64_t *)pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(counter != NULL, "map");

    check(pagemesh_barrier_wait(segment, STARTED, size) == 0, "barrier");
    for (int i = 0; i < ROUNDS; i++) {
        check(pagemesh_lock(segment, COUNTER_LOCK) == 0, "lock");
        *counter = *counter + 1;
        check(pagemesh_unlock(segment, COUNTER_LOCK) == 0, "unlock");
    }
    check(pagemesh_barrier_wait(segment, COUNTED, size) == 0, "barrier");

    uint64_t sum = *counter;
    printf("process %" PRIu32 " of %" PRIu32 " on node %u: %" PRIu64 "\n", pagemesh_job_rank(job),
           size, pagemesh_node(mesh), sum);
    check(pagemesh_barrier_wait(segment, CHECKED, size) == 0, "barrier");

    check(pagemesh_unmap((void *)counter) == 0, "unmap");
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    if (sum != (uint64_t)size * ROUNDS) {
        fprintf(stderr, "expected %" PRIu64 "\n", (uint64_t)size * ROUNDS);
        return 1;
    }
    return 0;
}
