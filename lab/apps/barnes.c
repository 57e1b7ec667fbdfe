/* Barnes-Hut: bodies that attract each other; what is far away counts as one.
 *
 * In each step process 0 builds the tree of cells in shared memory and deals the
 * bodies out in the order of the tree, so that each process gets neighbours that
 * cost as much as any other's, as the last step showed. All compute the forces on
 * their bodies, reading the tree, and move them. Barriers only. */
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"

static long bodies = 4096, steps = 4;

static const double opening = 1.0, softening = 0.05, time_step = 0.025;

typedef struct {
    double mass;
    double place[3], speed[3], force[3];
    /* Cells and bodies it was compared with. */
    long cost;
} body;

/* A cube of space; children are cells from 0, or bodies as ~number. */
typedef struct {
    double mass;
    double centre[3];
    int child[8];
} cell;

/* What processes share, and where the parts of it begin. */
typedef struct {
    double low[3], side;
    int cells;
    body *body;
    cell *cell;
    /* Bodies in the order of the tree. */
    int *order;
    /* Where in that order the part of each process begins; one more for the end. */
    long part[TMK_NPROCS + 1];
} space;

static space *shared;

/* Plummer's model: dense in the middle. */
static void fill(body *all)
{
    app_random random = { 1 };
    memset(all, 0, (size_t)bodies * sizeof *all);
    for (long which = 0; which < bodies; which++) {
        double inner = 0.999 * app_random_unit(&random) + 0.0005;
        double far = 1 / sqrt(pow(inner, -2.0 / 3) - 1);
        double fast = 0.5 * sqrt(2) * pow(1 + far * far, -0.25);
        double height = 2 * app_random_unit(&random) - 1;
        double turn = 6.283185307179586 * app_random_unit(&random);
        double flat = sqrt(1 - height * height);
        double way[3] = { flat * cos(turn), flat * sin(turn), height };
        all[which].mass = 1 / (double)bodies;
        all[which].cost = 1;
        for (int axis = 0; axis < 3; axis++) {
            all[which].place[axis] = far * way[axis];
            all[which].speed[axis] = fast * way[(axis + 1) % 3];
        }
    }
}

static long most_cells(void)
{
    return 4 * bodies + 64;
}

static int new_cell(space *in)
{
    if (in->cells == most_cells()) {
        app_fail("barnes: too many cells; two bodies are in one place");
    }
    cell *fresh = &in->cell[in->cells];
    memset(fresh, 0, sizeof *fresh);
    for (int which = 0; which < 8; which++) {
        fresh->child[which] = in->cells; /* itself: no child */
    }
    return in->cells++;
}

/* In which eighth of a cube a body is; moves the cube's corner there. */
static int eighth(const body *of, double *low, double side)
{
    int which = 0;
    for (int axis = 0; axis < 3; axis++) {
        if (of->place[axis] >= low[axis] + side) {
            which |= 1 << axis;
            low[axis] += side;
        }
    }
    return which;
}

static void insert(space *in, int number)
{
    double low[3], side = in->side;
    int at = 0;
    memcpy(low, in->low, sizeof low);
    for (;;) {
        side /= 2;
        int *child = &in->cell[at].child[eighth(&in->body[number], low, side)];
        if (*child == at) {
            *child = ~number;
            return;
        }
        if (*child < 0) {
            /* Another body: both go into a cell of their own. */
            int other = ~*child;
            double corner[3];
            memcpy(corner, low, sizeof corner);
            int inner = new_cell(in);
            in->cell[inner].child[eighth(&in->body[other], corner, side / 2)] = ~other;
            *child = inner;
        }
        at = *child;
    }
}

/* Sums up what is in a cell, and notes its bodies in order. */
static void weigh(space *in, int at, long *noted)
{
    cell *here = &in->cell[at];
    for (int which = 0; which < 8; which++) {
        int child = here->child[which];
        if (child == at) {
            continue;
        }
        if (child >= 0) {
            weigh(in, child, noted);
        } else {
            in->order[(*noted)++] = ~child;
        }
        const double *place = child >= 0 ? in->cell[child].centre : in->body[~child].place;
        double mass = child >= 0 ? in->cell[child].mass : in->body[~child].mass;
        here->mass += mass;
        for (int axis = 0; axis < 3; axis++) {
            here->centre[axis] += mass * place[axis];
        }
    }
    for (int axis = 0; axis < 3; axis++) {
        here->centre[axis] /= here->mass;
    }
}

static void build(space *in)
{
    double high[3] = { -1e30, -1e30, -1e30 };
    in->low[0] = in->low[1] = in->low[2] = 1e30;
    for (long which = 0; which < bodies; which++) {
        for (int axis = 0; axis < 3; axis++) {
            double place = in->body[which].place[axis];
            in->low[axis] = fmin(in->low[axis], place);
            high[axis] = fmax(high[axis], place);
        }
    }
    in->side = 0;
    for (int axis = 0; axis < 3; axis++) {
        in->side = fmax(in->side, 1.0001 * (high[axis] - in->low[axis]));
    }
    in->cells = 0;
    new_cell(in);
    for (int which = 0; which < bodies; which++) {
        insert(in, which);
    }
    long noted = 0;
    weigh(in, 0, &noted);
}

/* Deals out bodies: each process gets as much of the cost. */
static void deal(space *in, int processes)
{
    long all = 0, before = 0;
    for (long which = 0; which < bodies; which++) {
        all += in->body[which].cost;
    }
    int process = 0;
    for (long at = 0; at < bodies; at++) {
        while (process < processes && before >= all * process / processes) {
            in->part[process++] = at;
        }
        before += in->body[in->order[at]].cost;
    }
    while (process <= processes) {
        in->part[process++] = bodies;
    }
}

/* Adds the pull of something at a place. */
static void attract(body *of, double force[3], const double *place, double mass)
{
    double away[3], square = softening * softening;
    for (int axis = 0; axis < 3; axis++) {
        away[axis] = place[axis] - of->place[axis];
        square += away[axis] * away[axis];
    }
    double factor = mass / (square * sqrt(square));
    for (int axis = 0; axis < 3; axis++) {
        force[axis] += factor * away[axis];
    }
    of->cost++;
}

static void pull(const space *in, body *of, double force[3], int at, double side)
{
    const cell *here = &in->cell[at];
    double square = 0;
    for (int axis = 0; axis < 3; axis++) {
        double away = here->centre[axis] - of->place[axis];
        square += away * away;
    }
    if (side * side < opening * opening * square) {
        attract(of, force, here->centre, here->mass);
        return;
    }
    for (int which = 0; which < 8; which++) {
        int child = here->child[which];
        if (child == at) {
            continue;
        }
        if (child >= 0) {
            pull(in, of, force, child, side / 2);
        } else if (&in->body[~child] != of) {
            attract(of, force, in->body[~child].place, in->body[~child].mass);
        }
    }
}

static void find_forces(space *in, int process)
{
    for (long at = in->part[process]; at < in->part[process + 1]; at++) {
        body *of = &in->body[in->order[at]];
        double force[3] = { 0, 0, 0 };
        of->cost = 1;
        pull(in, of, force, 0, in->side);
        memcpy(of->force, force, sizeof force);
    }
}

static void move(space *in, int process)
{
    for (long at = in->part[process]; at < in->part[process + 1]; at++) {
        body *of = &in->body[in->order[at]];
        for (int axis = 0; axis < 3; axis++) {
            of->speed[axis] += time_step * of->force[axis];
            of->place[axis] += time_step * of->speed[axis];
        }
    }
}

static double energy(const space *in)
{
    double all = 0;
    for (long which = 0; which < bodies; which++) {
        for (int axis = 0; axis < 3; axis++) {
            double speed = in->body[which].speed[axis];
            all += 0.5 * in->body[which].mass * speed * speed;
        }
    }
    return all;
}

static double solve_alone(space *in)
{
    fill(in->body);
    double start = app_now();
    for (long step = 0; step < steps; step++) {
        build(in);
        deal(in, 1);
        find_forces(in, 0);
        move(in, 0);
    }
    return app_now() - start;
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc(sizeof *shared);
        body *body_memory = Tmk_malloc((size_t)bodies * sizeof(body));
        cell *cell_memory = Tmk_malloc((size_t)most_cells() * sizeof(cell));
        int *order_memory = Tmk_malloc((size_t)bodies * sizeof(int));
        if (!shared || !body_memory || !cell_memory || !order_memory) {
            app_fail("no shared memory");
        }
        shared->body = body_memory;
        shared->cell = cell_memory;
        shared->order = order_memory;
        fill(shared->body);
        Tmk_distribute(&shared, sizeof shared);
    }
    Tmk_barrier(0);
    double start = app_now();
    for (long step = 0; step < steps; step++) {
        if (Tmk_proc_id == 0) {
            build(shared);
            deal(shared, Tmk_nprocs);
        }
        Tmk_barrier(1);
        find_forces(shared, Tmk_proc_id);
        Tmk_barrier(2);
        move(shared, Tmk_proc_id);
        Tmk_barrier(3);
    }
    return app_now() - start;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "bodies", &bodies, NULL, "how many bodies" },
        { "steps", &steps, NULL, "how many steps" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "bodies that attract each other, by Barnes and Hut's method", options);
    if (bodies < 2 || bodies > 100000000) {
        app_fail("there are 2 to 100 million bodies");
    }
    space *alone = app_memory(1, sizeof *alone);
    alone->body = app_memory((size_t)bodies, sizeof(body));
    alone->cell = app_memory((size_t)most_cells(), sizeof(cell));
    alone->order = app_memory((size_t)bodies, sizeof(int));
    if (app_sequential) {
        double took = solve_alone(alone);
        app_report("barnes", 1, took, "kinetic=%.9g", energy(alone));
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        app_report("barnes", Tmk_nprocs, took, "kinetic=%.9g", energy(shared));
        if (app_check) {
            solve_alone(alone);
            if (memcmp(alone->body, shared->body, (size_t)bodies * sizeof(body)) != 0) {
                app_fail("barnes: alone the bodies go elsewhere");
            }
        }
    }
    Tmk_exit(0);
}
