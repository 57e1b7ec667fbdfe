/* A list that all processes share, pointers and all.
 *
 *     cc heap.c -o heap $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 3 -- ./heap
 *
 * The heap of a job has the same address everywhere, so what one process links
 * together another can follow. A root, a shared number, says where the list is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagemesh.h>

#define ITEMS 100
#define LIST 0 /* the root, the lock and the barrier have numbers of their own */

struct item {
    struct item *next;
    uint32_t rank;
};

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
    uint32_t rank = pagemesh_job_rank(job), size = pagemesh_job_size(job);
    pagemesh_heap_t *heap = pagemesh_heap_open(mesh, job, 0, NULL);
    check(heap != NULL, "open the heap");
    pagemesh_segment_t *sync = pagemesh_heap_segment(heap);

    uint64_t first;
    for (int turn = 0; turn < ITEMS; turn++) {
        struct item *item = (struct item *)pagemesh_heap_alloc(heap, sizeof *item);
        check(item != NULL, "allocate");
        check(pagemesh_lock(sync, LIST) == 0, "lock");
        check(pagemesh_heap_root(heap, LIST, &first) == 0, "find the list");
        item->next = (struct item *)(uintptr_t)first;
        item->rank = rank;
        check(pagemesh_heap_set_root(heap, LIST, (uintptr_t)item) == 0, "put it in front");
        check(pagemesh_unlock(sync, LIST) == 0, "unlock");
    }
    check(pagemesh_barrier_wait(sync, LIST, size) == 0, "barrier");

    uint32_t items = 0, mine = 0;
    check(pagemesh_heap_root(heap, LIST, &first) == 0, "find the list");
    for (struct item *item = (struct item *)(uintptr_t)first; item != NULL; item = item->next) {
        items++;
        mine += item->rank == rank;
    }
    printf("process %" PRIu32 " of %" PRIu32 ": %" PRIu32 " items, %" PRIu32 " of them mine\n", rank,
           size, items, mine);
    check(pagemesh_barrier_wait(sync, LIST, size) == 0, "barrier");
    pagemesh_heap_close(heap);
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return items != size * ITEMS || mine != ITEMS;
}
