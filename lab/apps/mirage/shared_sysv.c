/* Shared memory and semaphores by System V. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app.h"
#include "shared.h"

int shared_rank, shared_size = 1;

/* Two to leave by, in turn: who is early at the next barrier must not leave by what
 * lets the last one out of this. */
enum { SEGMENTS = 4, ARRIVED = 0, LEAVE = 1, SEMAPHORES = 3 };

static int semaphores = -1, segments[SEGMENTS], attached[SEGMENTS], children;
static unsigned job;

/* A key that no other job has. */
static key_t key_of(int which)
{
    return (key_t)(0x4d000000u | ((job * 8u + (unsigned)which) & 0xffffffu));
}

void shared_begin(int processes)
{
    const char *rank = getenv("PAGEMESH_RANK"), *size = getenv("PAGEMESH_SIZE");
    const char *number = getenv("PAGEMESH_JOB");
    job = (unsigned)getpid();
    if (number) {
        /* Any word: mixed, so that similar ones differ. */
        for (job = 0; *number; number++) {
            job = job * 31u + (unsigned char)*number;
        }
    }
    if (rank && size) {
        shared_rank = atoi(rank);
        shared_size = atoi(size);
    } else {
        shared_size = processes;
        for (int child = 1; child < processes && shared_rank == 0; child++) {
            pid_t made = fork();
            if (made < 0) {
                app_fail("no process: %s", strerror(errno));
            }
            shared_rank = made == 0 ? child : 0;
            children += made > 0;
        }
    }
    /* Whoever comes first makes them; all their values are zero then. */
    semaphores = semget(key_of(SEGMENTS), SEMAPHORES, IPC_CREAT | 0600);
    if (semaphores < 0) {
        app_fail("no semaphores: %s", strerror(errno));
    }
}

static void change(unsigned short which, int by)
{
    struct sembuf operation = { which, (short)by, 0 };
    while (by != 0 && semop(semaphores, &operation, 1) != 0) {
        if (errno != EINTR) {
            app_fail("semop: %s", strerror(errno));
        }
    }
}

void shared_barrier(void)
{
    static int turn;
    unsigned short leave = (unsigned short)(LEAVE + turn);
    turn = 1 - turn;
    if (shared_rank == 0) {
        change(ARRIVED, -(shared_size - 1));
        change(leave, shared_size - 1);
    } else {
        change(ARRIVED, 1);
        change(leave, -1);
    }
}

void *shared_segment(int which, size_t bytes)
{
    if (which < 0 || which >= SEGMENTS) {
        app_fail("there is no segment %d", which);
    }
    /* The first process makes it, which decides where its library site is. */
    if (shared_rank != 0) {
        shared_barrier();
    }
    segments[which] = shmget(key_of(which), bytes, shared_rank == 0 ? IPC_CREAT | IPC_EXCL | 0600 : 0600);
    if (segments[which] < 0) {
        app_fail("no segment of %zu bytes: %s", bytes, strerror(errno));
    }
    void *memory = shmat(segments[which], NULL, 0);
    if (memory == (void *)-1) {
        app_fail("shmat: %s", strerror(errno));
    }
    attached[which] = 1;
    if (shared_rank == 0) {
        shared_barrier();
    }
    shared_barrier();
    return memory;
}

void shared_hold(void *page)
{
    (void)page;
}

void shared_release(void *page)
{
    (void)page;
}

int shared_end(void)
{
    int failed = 0;
    shared_barrier();
    if (shared_rank == 0) {
        for (int which = 0; which < SEGMENTS; which++) {
            if (attached[which] && shmctl(segments[which], IPC_RMID, NULL) != 0) {
                app_fail("a segment cannot be removed: %s", strerror(errno));
            }
        }
    }
    /* The second barrier is behind the last use of the semaphores by anybody else. */
    if (shared_rank != 0) {
        change(ARRIVED, 1);
        return 0;
    }
    change(ARRIVED, -(shared_size - 1));
    if (semctl(semaphores, 0, IPC_RMID) != 0) {
        app_fail("the semaphores cannot be removed: %s", strerror(errno));
    }
    for (; children > 0; children--) {
        int status;
        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}
