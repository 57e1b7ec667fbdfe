#include "par.h"

#include <Tmk.h>

#include "app.h"

/* Barriers of this layer; those of programs are below. */
#define BEFORE_WORK 0x7ffffff0u
#define AFTER_WORK 0x7ffffff1u

int par_processes = 1;
long par_wanted;

void par_start(int argc, char **argv)
{
    if (app_sequential) {
        app_fail("--sequential: start the program whose name ends with -single");
    }
    Tmk_startup(argc, argv);
    par_processes = Tmk_nprocs;
    if (par_wanted != 0 && par_wanted != Tmk_nprocs) {
        Tmk_errexit("%ld processes are wanted, but the launcher started %d\n", par_wanted,
                    Tmk_nprocs);
    }
    if (Tmk_nprocs > PAR_PROCESSES) {
        Tmk_errexit("there are at most %d processes\n", PAR_PROCESSES);
    }
}

int par_first(void)
{
    return Tmk_proc_id == 0;
}

void *par_malloc(size_t size)
{
    void *memory = Tmk_malloc(size < TMK_PAGE_SIZE ? TMK_PAGE_SIZE : size);
    if (memory == NULL) {
        Tmk_errexit("no shared memory for %zu bytes\n", size);
    }
    return memory;
}

void par_distribute(void *variable, size_t size)
{
    if (Tmk_proc_id == 0) {
        Tmk_distribute(variable, (int)size);
    }
}

double par_create(void (*work)(int process))
{
    Tmk_barrier(BEFORE_WORK);
    double start = app_now();
    work(Tmk_proc_id);
    Tmk_barrier(AFTER_WORK);
    return app_now() - start;
}

void par_barrier(unsigned number)
{
    Tmk_barrier(number);
}

void par_lock(unsigned number)
{
    Tmk_lock_acquire(number);
}

void par_unlock(unsigned number)
{
    Tmk_lock_release(number);
}

void par_wait(unsigned lock)
{
    Tmk_lock_cond_wait(lock, 0);
}

void par_wake_all(unsigned lock)
{
    Tmk_lock_cond_broadcast(lock, 0);
}

void par_end(void)
{
    Tmk_exit(0);
}
