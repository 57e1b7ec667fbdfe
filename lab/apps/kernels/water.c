/* Water: molecules that move under the forces between their atoms, all pairs
 * within half the box.
 *
 * Each process has some molecules, and computes the forces between each of them and
 * the half of all molecules that follows it, round the table; in private memory
 * first. Then it adds them to the shared molecules, some of which one lock guards.
 * Sums are made in the order in which processes come: the last digits may differ.
 * Locks and barriers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "molecules.h"
#include "par.h"

#define LOCK_OF_ENERGY 0
#define LOCK_OF_GROUP(group) (1 + (unsigned)(group))

static long steps = 5, per_lock = 32;

static box *shared;

/* The energy after the first step, of process 0. */
static double first_energy;

static void fill(void)
{
    shared = G_MALLOC(sizeof *shared + (size_t)molecules * sizeof(molecule));
    molecules_fill(shared);
    forces *force = app_memory((size_t)molecules, sizeof *force);
    all_forces(shared, 0, molecules, force);
    for (long which = 0; which < molecules; which++) {
        add_forces(&shared->of[which], force[which]);
    }
    free(force);
}

/* Adds private forces to the shared ones, first to this process's molecules. */
static void share_forces(forces *force, long begin)
{
    long groups = (molecules + per_lock - 1) / per_lock;
    for (long step = 0; step < groups; step++) {
        long group = (begin / per_lock + step) % groups, first = group * per_lock;
        long end = first + per_lock < molecules ? first + per_lock : molecules;
        LOCK(LOCK_OF_GROUP(group));
        for (long which = first; which < end; which++) {
            add_forces(&shared->of[which], force[which]);
        }
        UNLOCK(LOCK_OF_GROUP(group));
    }
}

static void add_energy(double potential, double kinetic)
{
    LOCK(LOCK_OF_ENERGY);
    shared->potential += potential;
    shared->kinetic += kinetic;
    UNLOCK(LOCK_OF_ENERGY);
}

static void do_step(forces *force, long begin, long end, int process)
{
    for (long which = begin; which < end; which++) {
        kick(&shared->of[which]);
        drift(&shared->of[which]);
    }
    if (process == 0) {
        shared->potential = shared->kinetic = 0;
    }
    BARRIER(1);
    memset(force, 0, (size_t)molecules * sizeof *force);
    double potential = all_forces(shared, begin, end, force), kinetic = 0;
    /* Forces are added to molecules that others have read: all have, then. */
    BARRIER(2);
    share_forces(force, begin);
    BARRIER(3);
    for (long which = begin; which < end; which++) {
        kinetic += kick(&shared->of[which]);
    }
    add_energy(potential, kinetic);
    BARRIER(4);
}

static void work(int process)
{
    long begin, end;
    forces *force = app_memory((size_t)molecules, sizeof *force);
    app_part(molecules, process, par_processes, &begin, &end);
    for (long step = 0; step < steps; step++) {
        do_step(force, begin, end, process);
        if (process == 0 && step == 0) {
            first_energy = shared->potential + shared->kinetic;
        }
    }
    free(force);
}

/* Nothing moves the water as a whole, and energy stays. */
static void check(double energy)
{
    box *before = app_memory(1, sizeof *before + (size_t)molecules * sizeof(molecule));
    molecules_fill(before);
    for (int axis = 0; axis < 3; axis++) {
        double was = 0, is = 0;
        for (long which = 0; which < molecules; which++) {
            was += molecule_momentum(&before->of[which], axis);
            is += molecule_momentum(&shared->of[which], axis);
        }
        if (!(fabs(is - was) < 1e-7 * (double)molecules)) {
            app_fail("water: the momentum was %g and is %g", was, is);
        }
    }
    if (!(fabs(energy - first_energy) < 0.05 * fabs(shared->kinetic))) {
        app_fail("water: the energy was %g and is %g", first_energy, energy);
    }
    free(before);
}

int main(int argc, char **argv)
{
    molecules = 2744;
    const app_option options[] = {
        { "molecules", &molecules, NULL, "how many molecules" },
        { "steps", &steps, NULL, "how many steps of half a femtosecond" },
        { "per-lock", &per_lock, NULL, "how many molecules one lock guards" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "molecular dynamics of water, all pairs", options);
    if (molecules < 2 || per_lock < 1 || molecules / per_lock >= PAR_LOCKS - 2) {
        app_fail("there are at least 2 molecules, and at most %d locks", PAR_LOCKS);
    }
    side = molecules_side();
    MAIN_INITENV(argc, argv);
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(shared);
    double took = CREATE(work);
    if (par_first()) {
        double energy = shared->potential + shared->kinetic;
        app_report("water", par_processes, took, "energy=%.17g", energy);
        if (app_check) {
            check(energy);
        }
    }
    MAIN_END;
}
