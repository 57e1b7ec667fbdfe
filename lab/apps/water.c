/* Water: molecules that move under the forces between their atoms, all pairs
 * within half the box (T22: 343 molecules, 5 steps).
 *
 * A molecule is three charged atoms held together by springs. Each process has
 * some molecules, and computes the forces between each of them and the half of
 * all molecules that follows it, round the table. It adds them up in private
 * memory first, and then to the shared forces. There are two ways to do that:
 *
 * - The forces are sums (Tmk_sum_doubles). A process adds to those of the others'
 *   molecules, without a lock, and shares nothing else than the places of its own.
 *   Two barriers a step.
 * - With --per-lock=1 everything is shared, and a lock guards each molecule: that is the
 *   paper's program, with the modification it made to spare locks. A greater number
 *   has a lock guard several molecules in a row. Three barriers a step. */
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"
#include "molecules.h"

#define LOCK_OF_ENERGY 0
#define LOCK_OF_GROUP(group) (1 + (unsigned)(group))

static long steps = 5, per_lock;

/* Shared where there are locks, else what a process knows. */
static box *shared;

/* The forces at the beginning. */
static void fill_forces(box *water, forces *force)
{
    all_forces(water, 0, molecules, force);
    for (long which = 0; which < molecules; which++) {
        add_forces(&water->of[which], force[which]);
    }
}

static double solve_alone(box *water)
{
    forces *force = app_memory((size_t)molecules, sizeof *force);
    molecules_fill(water);
    fill_forces(water, force);
    double start = app_now();
    for (long step = 0; step < steps; step++) {
        water->kinetic = 0;
        for (long which = 0; which < molecules; which++) {
            kick(&water->of[which]);
            drift(&water->of[which]);
        }
        memset(force, 0, (size_t)molecules * sizeof *force);
        water->potential = all_forces(water, 0, molecules, force);
        for (long which = 0; which < molecules; which++) {
            add_forces(&water->of[which], force[which]);
            water->kinetic += kick(&water->of[which]);
        }
    }
    double took = app_now() - start;
    free(force);
    return took;
}

static int is_zero(const forces *force)
{
    static const forces nothing;
    return memcmp(force, &nothing, sizeof nothing) == 0;
}

/* Adds private forces to those of the molecules that one lock guards. */
static void share_group(forces *force, long group)
{
    long end = (group + 1) * per_lock, which = group * per_lock;
    end = end < molecules ? end : molecules;
    while (which < end && is_zero(&force[which])) {
        which++;
    }
    if (which == end) {
        return;
    }
    Tmk_lock_acquire(LOCK_OF_GROUP(group));
    for (; which < end; which++) {
        add_forces(&shared->of[which], force[which]);
    }
    Tmk_lock_release(LOCK_OF_GROUP(group));
}

/* Adds private forces to the shared ones, first to our own molecules'. */
static void share_forces(forces *force, long begin, double energy)
{
    long groups = (molecules + per_lock - 1) / per_lock;
    for (long step = 0; step < groups; step++) {
        share_group(force, (begin / per_lock + step) % groups);
    }
    Tmk_lock_acquire(LOCK_OF_ENERGY);
    shared->potential += energy;
    Tmk_lock_release(LOCK_OF_ENERGY);
}

static void step_with_locks(forces *force, long begin, long end)
{
    for (long which = begin; which < end; which++) {
        kick(&shared->of[which]);
        drift(&shared->of[which]);
    }
    if (Tmk_proc_id == 0) {
        shared->potential = shared->kinetic = 0;
    }
    Tmk_barrier(1);
    memset(force, 0, (size_t)molecules * sizeof *force);
    double energy = all_forces(shared, begin, end, force);
    share_forces(force, begin, energy);
    Tmk_barrier(2);
    double kinetic = 0;
    for (long which = begin; which < end; which++) {
        kinetic += kick(&shared->of[which]);
    }
    Tmk_lock_acquire(LOCK_OF_ENERGY);
    shared->kinetic += kinetic;
    Tmk_lock_release(LOCK_OF_ENERGY);
    Tmk_barrier(3);
}

/* With --per-lock. */
static double solve_with_locks(size_t size)
{
    forces *force = app_memory((size_t)molecules, sizeof *force);
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc(size);
        if (shared == NULL) {
            app_fail("no shared memory");
        }
        molecules_fill(shared);
        fill_forces(shared, force);
        Tmk_distribute(&shared, sizeof shared);
    }
    Tmk_barrier(0);
    long begin, end;
    app_part(molecules, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    double start = app_now();
    for (long step = 0; step < steps; step++) {
        step_with_locks(force, begin, end);
    }
    double took = app_now() - start;
    free(force);
    return took;
}

/* What a process shares where forces are sums, each part on pages of its own. */
typedef struct {
    /* Of its last step, for whoever wants to know. */
    double potential, kinetic;
    /* Where its molecules are; nobody else stores here. */
    double place[][ATOMS][3];
} part;

static char *parts;
/* Forces on the molecules of all parts; of each those that other processes compute. */
static char *sums;
static size_t part_size, sum_size;

static part *part_of(int process)
{
    return (part *)(parts + (size_t)process * part_size);
}

static forces *sums_of(int process)
{
    return (forces *)(sums + (size_t)process * sum_size);
}

static size_t whole_pages(size_t size)
{
    return (size + TMK_PAGE_SIZE - 1) / TMK_PAGE_SIZE * TMK_PAGE_SIZE;
}

static void share_parts(void)
{
    size_t most = (size_t)(molecules / Tmk_nprocs + 1);
    part_size = whole_pages(sizeof(part) + most * sizeof(forces));
    sum_size = whole_pages(most * sizeof(forces));
    if (Tmk_proc_id == 0) {
        parts = Tmk_malloc((size_t)Tmk_nprocs * part_size);
        sums = Tmk_malloc((size_t)Tmk_nprocs * sum_size);
        if (parts == NULL || sums == NULL) {
            app_fail("no shared memory");
        }
        Tmk_sum_doubles((double *)sums, (size_t)Tmk_nprocs * sum_size / sizeof(double));
        Tmk_distribute(&parts, sizeof parts);
        Tmk_distribute(&sums, sizeof sums);
    }
    Tmk_barrier(0);
}

/* Where the others' molecules are now. */
static void look_around(box *mine)
{
    for (int process = 0; process < Tmk_nprocs; process++) {
        long begin, end;
        app_part(molecules, process, Tmk_nprocs, &begin, &end);
        for (long which = begin; which < end && process != Tmk_proc_id; which++) {
            memcpy(mine->of[which].place, part_of(process)->place[which - begin],
                   sizeof mine->of[which].place);
        }
    }
}

/* Makes what this process has in the forces on the others' molecules what it is now:
 * adds what has changed since the last step. So nobody ever has to clear them. */
static void share_changes(forces *force, forces *given)
{
    for (int process = 0; process < Tmk_nprocs; process++) {
        long begin, end;
        app_part(molecules, process, Tmk_nprocs, &begin, &end);
        for (long which = begin; which < end && process != Tmk_proc_id; which++) {
            for (int at = 0; at < ATOMS * 3; at++) {
                double *now = &force[which][0][0] + at, *then = &given[which][0][0] + at;
                if (*now != *then) {
                    Tmk_add_double(&sums_of(process)[which - begin][0][0] + at, *now - *then);
                    *then = *now;
                }
            }
        }
    }
}

static void show_places(const box *mine, long begin, long end)
{
    part *own = part_of(Tmk_proc_id);
    for (long which = begin; which < end; which++) {
        memcpy(own->place[which - begin], mine->of[which].place, sizeof own->place[0]);
    }
}

/* The forces on this process's molecules, where they and all others are now. */
static void meet(box *mine, forces *force, forces *given, long begin, long end)
{
    forces *sum = sums_of(Tmk_proc_id);
    /* Nobody adds to forces that somebody still reads. */
    Tmk_barrier(1);
    look_around(mine);
    memset(force, 0, (size_t)molecules * sizeof *force);
    mine->potential = all_forces(mine, begin, end, force);
    share_changes(force, given);
    Tmk_barrier(2);
    for (long which = begin; which < end; which++) {
        add_forces(&mine->of[which], force[which]);
        add_forces(&mine->of[which], sum[which - begin]);
    }
}

static void step_with_sums(box *mine, forces *force, forces *given, long begin, long end)
{
    for (long which = begin; which < end; which++) {
        kick(&mine->of[which]);
        drift(&mine->of[which]);
    }
    show_places(mine, begin, end);
    meet(mine, force, given, begin, end);
    mine->kinetic = 0;
    for (long which = begin; which < end; which++) {
        mine->kinetic += kick(&mine->of[which]);
    }
    part_of(Tmk_proc_id)->potential = mine->potential;
    part_of(Tmk_proc_id)->kinetic = mine->kinetic;
}

/* What a process learns of the others when all is done. */
static void gather(box *mine)
{
    mine->potential = mine->kinetic = 0;
    for (int process = 0; process < Tmk_nprocs; process++) {
        mine->potential += part_of(process)->potential;
        mine->kinetic += part_of(process)->kinetic;
    }
    look_around(mine);
}

static double solve_with_sums(size_t size)
{
    shared = app_memory(1, size);
    forces *force = app_memory((size_t)molecules, sizeof *force);
    forces *given = app_memory((size_t)molecules, sizeof *given);
    molecules_fill(shared);
    share_parts();
    long begin, end;
    app_part(molecules, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    show_places(shared, begin, end);
    meet(shared, force, given, begin, end);
    double start = app_now();
    for (long step = 0; step < steps; step++) {
        step_with_sums(shared, force, given, begin, end);
    }
    Tmk_barrier(3);
    double took = app_now() - start;
    if (Tmk_proc_id == 0) {
        gather(shared);
    }
    free(force);
    free(given);
    return took;
}

static double solve_together(size_t size)
{
    return per_lock == 0 ? solve_with_sums(size) : solve_with_locks(size);
}

static int differs(double one, double other)
{
    return !(fabs(one - other) <= 1e-9 * (1 + fabs(one)));
}

/* Sums are made in another order, so the last digits may differ. */
static void compare(const box *one, const box *other)
{
    int wrong = differs(one->potential, other->potential) || differs(one->kinetic, other->kinetic);
    for (long which = 0; which < molecules; which++) {
        for (int at = 0; at < ATOMS * 3; at++) {
            wrong |= differs(one->of[which].place[at / 3][at % 3],
                             other->of[which].place[at / 3][at % 3]);
        }
    }
    if (wrong) {
        app_fail("water: alone the molecules go elsewhere");
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "molecules", &molecules, NULL, "how many molecules" },
        { "steps", &steps, NULL, "how many steps of half a femtosecond" },
        { "per-lock", &per_lock, NULL, "how many molecules one lock guards; 0: no locks" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "molecular dynamics of water", options);
    if (molecules < 2) {
        app_fail("there are at least 2 molecules");
    }
    side = molecules_side();
    size_t size = sizeof(box) + (size_t)molecules * sizeof(molecule);
    box *alone = app_memory(1, size);
    if (app_sequential) {
        double took = solve_alone(alone);
        app_report("water", 1, took, "energy=%.9g", alone->potential + alone->kinetic);
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together(size);
    if (Tmk_proc_id == 0) {
        app_report("water", Tmk_nprocs, took, "energy=%.9g", shared->potential + shared->kinetic);
        if (app_check) {
            solve_alone(alone);
            compare(alone, shared);
        }
    }
    Tmk_exit(0);
}
