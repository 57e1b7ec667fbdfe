/* What the processes of one of MIRAGE+'s programs share: segments of memory, and a
 * barrier to begin and end at.
 *
 * Two ways to have that, chosen when linking: shared_sysv.c is the plain System V
 * interface, as the paper's programs use it, and runs on the kernel's own; across
 * nodes it runs unchanged under `pagemesh sandbox N --sysv`. shared_mesh.c is
 * PageMesh's own interface, for experiments with what System V cannot say: time
 * windows and write locks. */
#ifndef SHARED_H
#define SHARED_H

#include <stddef.h>

/* This process's number, and how many there are. */
extern int shared_rank, shared_size;

/* Makes `processes` of this one, unless a launcher has done that already
 * (PAGEMESH_RANK, PAGEMESH_SIZE). */
void shared_begin(int processes);

/* Segment number `which` of the job: the same memory for all, zero at first. */
void *shared_segment(int which, size_t bytes);

/* Waits until all processes are here. */
void shared_barrier(void);

/* Keeps a page on this node during a series of stores, if such a thing is known. */
void shared_hold(void *page);
void shared_release(void *page);

/* Takes everything down; the first process waits for those it made. Returns what
 * the program returns: not 0 if any of them failed. */
int shared_end(void);

#endif
