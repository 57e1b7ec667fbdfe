#define _POSIX_C_SOURCE 200112L

#include "par.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

#define PAGE 4096

int par_processes = 1;
long par_wanted;

static pthread_barrier_t meeting;
static pthread_mutex_t locks[PAR_LOCKS];
static pthread_cond_t conditions[PAR_LOCKS];
static void (*task)(int process);

void par_start(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (par_wanted > PAR_PROCESSES) {
        app_fail("there are at most %d threads", PAR_PROCESSES);
    }
    par_processes = par_wanted == 0 ? 1 : (int)par_wanted;
    pthread_barrier_init(&meeting, NULL, (unsigned)par_processes);
    for (int lock = 0; lock < PAR_LOCKS; lock++) {
        pthread_mutex_init(&locks[lock], NULL);
        pthread_cond_init(&conditions[lock], NULL);
    }
}

int par_first(void)
{
    return 1;
}

void *par_malloc(size_t size)
{
    void *memory;
    if (posix_memalign(&memory, PAGE, size) != 0) {
        app_fail("no memory for %zu bytes", size);
    }
    return memset(memory, 0, size);
}

void par_distribute(void *variable, size_t size)
{
    (void)variable;
    (void)size;
}

static void *run(void *process)
{
    task((int)(size_t)process);
    return NULL;
}

double par_create(void (*work)(int process))
{
    pthread_t threads[PAR_PROCESSES];
    task = work;
    double start = app_now();
    for (int process = 1; process < par_processes; process++) {
        if (pthread_create(&threads[process], NULL, run, (void *)(size_t)process) != 0) {
            app_fail("cannot start thread %d", process);
        }
    }
    work(0);
    for (int process = 1; process < par_processes; process++) {
        pthread_join(threads[process], NULL);
    }
    return app_now() - start;
}

void par_barrier(unsigned number)
{
    (void)number;
    pthread_barrier_wait(&meeting);
}

void par_lock(unsigned number)
{
    pthread_mutex_lock(&locks[number]);
}

void par_unlock(unsigned number)
{
    pthread_mutex_unlock(&locks[number]);
}

void par_wait(unsigned lock)
{
    pthread_cond_wait(&conditions[lock], &locks[lock]);
}

void par_wake_all(unsigned lock)
{
    pthread_cond_broadcast(&conditions[lock]);
}

void par_end(void)
{
    exit(0);
}
