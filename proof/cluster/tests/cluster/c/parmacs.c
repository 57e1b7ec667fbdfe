/* A program in the manner of SPLASH, after the steps of docs/treadmarks.md: the header is
 * the one that stands there. */
#include <stdio.h>

#include "parmacs.h"

MAIN_ENV

#define VALUES 5000

struct global {
    LOCKDEC(idlock)
    LOCKDEC(sumlock)
    BARDEC(start)
    int next_id;
    long sum, values[VALUES];
};

static struct global *Global;
static int P;

static void work(void)
{
    int id, i;
    long sum = 0;
    LOCK(Global->idlock);
    id = Global->next_id++;
    UNLOCK(Global->idlock);
    for (i = id; i < VALUES; i += P) {
        Global->values[i] *= 2;
    }
    BARRIER(Global->start, P);
    /* What the next process has doubled. */
    for (i = (id + 1) % P; i < VALUES; i += P) {
        sum += Global->values[i];
    }
    LOCK(Global->sumlock);
    Global->sum += sum;
    UNLOCK(Global->sumlock);
}

int main(int argc, char **argv)
{
    MAIN_INITENV(,);
    P = Tmk_nprocs;
    if (Tmk_proc_id == 0) {
        int i;
        Global = G_MALLOC(sizeof *Global);
        LOCKINIT(Global->idlock);
        LOCKINIT(Global->sumlock);
        BARINIT(Global->start);
        for (i = 0; i < VALUES; i++) {
            Global->values[i] = i;
        }
        Tmk_distribute(&Global, sizeof Global);
    }
    Tmk_barrier(1000000);
    work();
    Tmk_barrier(1000000);
    if (Tmk_proc_id == 0) {
        printf("the sum of %d is %ld\n", P, Global->sum);
        fflush(stdout);
    }
    MAIN_END;
}
