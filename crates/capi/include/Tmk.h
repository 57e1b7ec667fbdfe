/* Tmk.h - PageMesh for programs written for TreadMarks.
 *
 * Processes on several hosts share the memory that Tmk_malloc gives, at the
 * same addresses, and nothing else; locks and barriers say when what one of them
 * stored is there for another. Start a program with `pagemesh run -n N --
 * PROGRAM`, or on one machine with `pagemesh sandbox N -- PROGRAM`, and link it
 * with -lpagemesh (pkg-config pagemesh). C99 and C++98.
 *
 * Options for this library come last on the program's command line, behind
 * `--`, or else from the environment:
 *     --policy NAME   PAGEMESH_POLICY   what the memory promises: sequential
 *     --heap SIZE     PAGEMESH_HEAP     address space of all Tmk_malloc: 256G
 *     --stats         PAGEMESH_STATS=1  Tmk_exit says what the process did
 *     -n N                              refuses to run as any other number
 *
 * Errors. Only Tmk_malloc tells of failure, by NULL. The others say on the error
 * output what is wrong, with its cure, and end the process with exit code 1.
 *
 * More than the original: sums without locks (Tmk_sum_doubles), barriers of some processes, any number of locks, barriers and conditions (32 bits),
 * any size of blocks, other threads than the first. What was never written for
 * TreadMarks may like pagemesh_heap_open (pagemesh.h) better.
 */
#ifndef TMK_H
#define TMK_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TMK_NORETURN __attribute__((__noreturn__))
#define TMK_UNUSED __attribute__((__unused__))
/* One definition among those of all source files counts, the program's own first. */
#define TMK_WEAK __attribute__((__weak__))
#else
#define TMK_NORETURN
#define TMK_UNUSED
#define TMK_WEAK static
#endif

/* Bytes of a page: what moves between processes. */
#define TMK_PAGE_SIZE 4096
#define Tmk_page_size TMK_PAGE_SIZE

/* The most processes there can be. */
#define TMK_NPROCS 256

/* Locks, barriers, and conditions of each lock have numbers below these; for
 * programs that count on limits. */
#define TMK_NLOCKS 0x7fffffff
#define TMK_NBARRIERS 0x7fffffff
#define TMK_NCONDS 0x7fffffff

/* This process's number, from 0, and how many there are. Set by Tmk_startup, not
 * to be changed. */
extern int Tmk_proc_id;
extern int Tmk_nprocs;

/* Joins the other processes; waits for all of them. Takes what main() was given,
 * and changes nothing of it. */
void Tmk_startup(int argc, char *const *argv);

/* Ends this process; the others go on. */
void Tmk_exit(int status) TMK_NORETURN;

/* Shared memory, zero when it is fresh, aligned to the power of two that holds
 * it: what is as large as a page shares its pages with nothing else. NULL if
 * there is none left. Its address is known to its caller only: store it in
 * shared memory, or distribute it. */
void *Tmk_malloc(size_t size);

/* Gives it back, in whatever process. NULL is ignored. */
void Tmk_free(void *ptr);

/* As Tmk_malloc, for what is never given back. */
void *Tmk_sbrk(size_t increment);

/* Copies the value of a global or static variable, often a pointer, to all other
 * processes: it is there after the next barrier, or after the next lock that
 * comes from this process. All must run the same build of the program; where it
 * lies in memory may differ. */
void Tmk_distribute(const void *ptr, int size);

/* Waits until all processes are at the barrier of this number. */
void Tmk_barrier(unsigned barrier_id);

/* Takes a lock, which one process at a time has. Not recursive. If a process
 * ends with a lock, who wants it next ends, too. */
void Tmk_lock_acquire(unsigned lock_id);

/* Gives it back. */
void Tmk_lock_release(unsigned lock_id);

/* Gives the lock back, waits for a signal, and takes the lock again. May wake
 * for no reason: check in a loop. */
void Tmk_lock_cond_wait(unsigned lock_id, unsigned cond_id);

/* Wakes one who waits, if there is one. */
void Tmk_lock_cond_signal(unsigned lock_id, unsigned cond_id);

/* Wakes all who wait. */
void Tmk_lock_cond_broadcast(unsigned lock_id, unsigned cond_id);

/* ---- PageMesh's own, which TreadMarks had not ---- */

/* Waits until so many processes are at the barrier of this number, whichever they are: some
 * of all, for whom the number is their own. */
void Tmk_barrier_some(unsigned barrier_id, unsigned processes);

/* For programs that are built for other systems, too: #ifdef TMK_SUMS. */
#define TMK_SUMS 1

/* Declares that processes add to these doubles of shared memory, by Tmk_add_double
 * and without a lock: whoever synchronizes with them sees the sum of what they
 * added, after a barrier everybody. Call it, in one process or in all, before
 * anybody stores there, and let a barrier follow. ptr is a multiple of 8; declared
 * ranges have no byte in common, and there are 64 at most. A declaration lasts as
 * long as the job. Returns when every node knows.
 *
 * 1: under `release`, `eager` and `hybrid` each node adds in a copy of its own. The last
 * digits depend on the order, which may differ between nodes.
 * 0: other policies keep one copy, in which additions are sums anyway; each may have
 * to fetch its page. */
int Tmk_sum_doubles(double *ptr, size_t count);

#if defined(__GNUC__)
/* Adds to a double that others add to. */
static TMK_UNUSED void Tmk_add_double(double *to, double number)
{
    double now, then;
    __atomic_load(to, &now, __ATOMIC_RELAXED);
    do {
        then = now + number;
    } while (!__atomic_compare_exchange(to, &now, &then, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
#endif

/* ---- Words ---- */

#if defined(__GNUC__)
/* As in the original, functions of every source file; a program may have its own instead. */
extern void Tmk_err(const char *format, ...);
extern void Tmk_errexit(const char *format, ...) TMK_NORETURN;
extern void Tmk_perrexit(const char *what) TMK_NORETURN;
#endif

/* Says something on the error output, and which process says it. */
TMK_WEAK void Tmk_err(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%d: ", Tmk_proc_id);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

/* Says it, and ends this process with exit code 1. */
TMK_WEAK void Tmk_errexit(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%d: ", Tmk_proc_id);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    exit(1);
}

/* Says what failed and why, by errno, and ends this process with exit code 1. */
TMK_WEAK void Tmk_perrexit(const char *what)
{
    fprintf(stderr, "%d: ", Tmk_proc_id);
    perror(what);
    exit(1);
}

#ifdef __cplusplus
}
#endif

#endif
