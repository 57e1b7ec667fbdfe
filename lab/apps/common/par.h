/* A layer like the PARMACS macros: create, barrier, lock, condition, shared memory.
 *
 * The source of a program is the same in three builds, which differ in the file they
 * are linked with:
 *
 *     par_tmk.c      processes that share memory by Tmk.h      NAME
 *     par_threads.c  POSIX threads of one process              NAME-threads
 *     par_single.c   one process, without synchronization      NAME-single
 *
 * A program has this form. As in TreadMarks programs every process runs main(); what
 * process 0 stores in global variables is its own, unless it is distributed.
 *
 *     MAIN_INITENV(argc, argv);
 *     if (par_first()) { shared = G_MALLOC(size); ... }
 *     DISTRIBUTE(shared);
 *     double seconds = CREATE(work);          work(process) runs in all of them
 *     if (par_first()) { ... the result ... }
 *     MAIN_END;
 */
#ifndef PAR_H
#define PAR_H

#include <stddef.h>

/* The most processes, and the number of locks; locks are numbered from 0. */
#define PAR_PROCESSES 64
#define PAR_LOCKS 4096

/* How many processes there are; known after MAIN_INITENV. */
extern int par_processes;

/* --processes: how many there shall be; 0 leaves it to the launcher (1 for threads). */
extern long par_wanted;
#define PAR_OPTION { "processes", &par_wanted, NULL, "processes; 0: as many as were started" }

#define MAIN_INITENV(argc, argv) par_start(argc, argv)
#define G_MALLOC(size) par_malloc(size)
#define DISTRIBUTE(variable) par_distribute(&(variable), sizeof(variable))
#define CREATE(work) par_create(work)
#define BARRIER(number) par_barrier(number)
#define LOCK(number) par_lock(number)
#define UNLOCK(number) par_unlock(number)
#define WAIT(lock) par_wait(lock)
#define WAKE_ALL(lock) par_wake_all(lock)
#define MAIN_END par_end()

/* Joins the other processes. */
void par_start(int argc, char **argv);

/* True in the process that fills the arrays and reports the result. */
int par_first(void);

/* Shared memory, zero, at a multiple of the page size; ends the program if there is none.
 * Called by process 0 before par_create. */
void *par_malloc(size_t size);

/* Copies a global variable of process 0 to the others; called by all, before par_create. */
void par_distribute(void *variable, size_t size);

/* Runs work(process) in every process, and returns when all are done: the seconds
 * it took, without what came before. */
double par_create(void (*work)(int process));

/* Waits for all processes. */
void par_barrier(unsigned number);

/* Takes and releases a lock. */
void par_lock(unsigned number);
void par_unlock(unsigned number);

/* Releases a lock, waits until par_wake_all is called for it, and takes it again. May
 * return for no reason: call it in a loop. */
void par_wait(unsigned lock);
void par_wake_all(unsigned lock);

/* Ends this process. */
void par_end(void);

#endif
