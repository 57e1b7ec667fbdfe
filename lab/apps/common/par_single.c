#include "par.h"

#include <stdlib.h>

#include "app.h"

int par_processes = 1;
long par_wanted;

void par_start(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (par_wanted > 1) {
        app_fail("this build has one process");
    }
}

int par_first(void)
{
    return 1;
}

void *par_malloc(size_t size)
{
    return app_memory(1, size);
}

void par_distribute(void *variable, size_t size)
{
    (void)variable;
    (void)size;
}

double par_create(void (*work)(int process))
{
    double start = app_now();
    work(0);
    return app_now() - start;
}

void par_barrier(unsigned number)
{
    (void)number;
}

void par_lock(unsigned number)
{
    (void)number;
}

void par_unlock(unsigned number)
{
    (void)number;
}

/* With one process, nothing that it could wait for will ever happen. */
void par_wait(unsigned lock)
{
    app_fail("the only process waits for a condition of lock %u", lock);
}

void par_wake_all(unsigned lock)
{
    (void)lock;
}

void par_end(void)
{
    exit(0);
}
