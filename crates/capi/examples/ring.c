/* A ring in phases: barriers make what one wrote what the next one reads.
 *
 *     cc ring.c -o ring $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 3 -- ./ring
 *
 * Every process has a page of its own. In each phase it reads its left
 * neighbour's page and, after a barrier, writes what it read, plus one, into its own.
 * After as many phases as there are processes, every value has gone around. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagemesh.h>

#define PAGE 4096
#define WORDS (PAGE / sizeof(uint64_t))
#define TURNS 10

/* Numbers of the job's barriers. */
enum { WRITTEN, READ, CHECKED };

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
    pagemesh_segment_t *sync = pagemesh_job_segment(job);
    uint32_t rank = pagemesh_job_rank(job);
    uint32_t size = pagemesh_job_size(job);

    /* A name of its own for every job, so that two may run at once. */
    const char *job_name = getenv("PAGEMESH_JOB");
    char name[128];
    snprintf(name, sizeof name, "ring.%s", job_name != NULL ? job_name : "alone");
    pagemesh_segment_t *segment = pagemesh_create(mesh, name, (uint64_t)size * PAGE, NULL);
    check(segment != NULL, "create");
    char *memory = (char *)pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(memory != NULL, "map");

    volatile uint64_t *mine = (volatile uint64_t *)(memory + (size_t)rank * PAGE);
    volatile uint64_t *left =
        (volatile uint64_t *)(memory + (size_t)((rank + size - 1) % size) * PAGE);
    for (size_t i = 0; i < WORDS; i++) {
        mine[i] = rank + i;
    }
    uint32_t phases = size * TURNS;
    for (uint32_t phase = 0; phase < phases; phase++) {
        uint64_t seen[WORDS];
        check(pagemesh_barrier_wait(sync, WRITTEN, size) == 0, "barrier");
        for (size_t i = 0; i < WORDS; i++) {
            seen[i] = left[i];
        }
        check(pagemesh_barrier_wait(sync, READ, size) == 0, "barrier");
        for (size_t i = 0; i < WORDS; i++) {
            mine[i] = seen[i] + 1;
        }
    }

    int wrong = 0;
    for (size_t i = 0; i < WORDS; i++) {
        wrong += mine[i] != rank + i + phases;
    }
    printf("process %" PRIu32 " of %" PRIu32 ": %" PRIu32 " phases, %d wrong\n", rank, size, phases,
           wrong);
    check(pagemesh_barrier_wait(sync, CHECKED, size) == 0, "barrier");
    if (rank == 0) {
        check(pagemesh_remove(mesh, name) == 0, "remove");
    }
    check(pagemesh_unmap(memory) == 0, "unmap");
    check(pagemesh_close(segment) == 0, "close");
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return wrong != 0;
}
