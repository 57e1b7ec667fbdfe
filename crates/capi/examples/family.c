/* A child keeps the segments of its parent, at the same addresses, but not the
 * locks that its parent holds.
 *
 *     cc family.c -o family $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 2 -- ./family
 *
 * Every process forks children; all of them add to one counter under a lock. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pagemesh.h>

#define CHILDREN 4
#define ROUNDS 100

/* Further lock numbers belong to the processes, one each. */
enum { STARTED, COUNTED, COUNTER_LOCK, OWN_LOCK };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, pagemesh_error_message());
        exit(1);
    }
}

static void count(pagemesh_segment_t *segment, volatile uint64_t *counter)
{
    for (int i = 0; i < ROUNDS; i++) {
        check(pagemesh_lock(segment, COUNTER_LOCK) == 0, "lock");
        *counter = *counter + 1;
        check(pagemesh_unlock(segment, COUNTER_LOCK) == 0, "unlock");
    }
}

static void live(pagemesh_segment_t *segment, volatile uint64_t *counter, uint64_t parents_lock)
{
    int stolen = pagemesh_unlock(segment, parents_lock) == 0
                 || pagemesh_error() != PAGEMESH_E_NOT_HELD;
    int free = pagemesh_trylock(segment, parents_lock) == 0
               || pagemesh_error() != PAGEMESH_E_BUSY;
    if (stolen || free)
        _exit(2);
    count(segment, counter);
    /* Not exit, which would end in the parent's name what it has begun. */
    _exit(0);
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_job_t *job = pagemesh_job_open(mesh);
    check(job != NULL, "join the job");
    pagemesh_segment_t *segment = pagemesh_job_segment(job);
    uint32_t size = pagemesh_job_size(job);
    uint64_t own_lock = OWN_LOCK + pagemesh_job_rank(job);
    volatile uint64_t *counter =
        (volatile uint64_t *)pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(counter != NULL, "map");

    check(pagemesh_lock(segment, own_lock) == 0, "lock");
    check(pagemesh_barrier_wait(segment, STARTED, size) == 0, "barrier");
    for (int child = 0; child < CHILDREN; child++) {
        pid_t process = fork();
        if (process == 0)
            live(segment, counter, own_lock);
        if (process < 0)
            return 1;
    }
    count(segment, counter);
    int failures = 0;
    for (int child = 0; child < CHILDREN; child++) {
        int status = 1;
        wait(&status);
        failures += status != 0;
    }
    check(pagemesh_unlock(segment, own_lock) == 0, "unlock");
    check(pagemesh_barrier_wait(segment, COUNTED, size) == 0, "barrier");

    uint64_t sum = *counter, expected = (uint64_t)size * (CHILDREN + 1) * ROUNDS;
    printf("%" PRIu32 " of %" PRIu32 ": %" PRIu64 ", %d children failed\n",
           pagemesh_job_rank(job), size, sum, failures);
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return sum == expected && failures == 0 ? 0 : 1;
}
