/* Barnes-Hut: bodies that attract each other; what is far away counts as one.
 *
 * Space is a cube of small cubes, in the order of a curve. In each step every process
 * gets cubes in a row of that order, of as much cost as any other's, builds the trees
 * of the bodies in them in shared memory, and after a barrier makes of the roots of
 * all these trees the top of the tree, which each has for itself. Then it computes the
 * forces on its bodies, and after another barrier moves them (compare Shan and Singh
 * 1998). The tree does not depend on the number of processes. Barriers only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "par.h"

/* Cubes a side: 2 to this. */
#define LEVELS 5
#define CUBES (1 << 3 * LEVELS)

/* Cells of the top: all cubes of coarser levels. */
#define TOP_CELLS ((CUBES - 1) / 7)

#define NOTHING (-1)

static long bodies = 32768, steps = 3;

/* No body is so far from the centre of a cube that it is in: below 1 / sqrt(3). */
static const double opening = 0.57;

static const double softening = 0.02, time_step = 0.02;

typedef struct {
    double mass;
    double place[3], speed[3];
    /* Cells and bodies it was compared with. */
    long cost;
} body;

/* A cube of space. Children are cells from 0, bodies from CELLS_END on, or nothing. */
typedef struct {
    double mass, centre[3], side;
    int child[8];
} cell;

/* What processes share. */
typedef struct {
    double low[3], side;
    /* The tree of each cube: a cell, a body, or nothing. */
    int root[CUBES];
} space;

/* What a process knows: where bodies are, by cubes, and which part is its own. */
typedef struct {
    int *cube;
    /* Bodies in the order of the cubes, where each cube begins, and which cubes are its own. */
    int *order, *begin;
    int first, last;
    /* The top of the tree. */
    cell *top;
    double (*force)[3];
} view;

static body *body_of;
static cell *cell_of;
static space *shared;

/* Cells of each process. */
static long cells_each;

/* As children, cells of all processes are numbers below this, bodies from here on, and
 * cells of the top from there on. */
static long bodies_from, top_from;

/* Bits of three numbers, one after the other. */
static int interleave(const int cell[3])
{
    int mixed = 0;
    for (int bit = 0; bit < LEVELS; bit++) {
        for (int axis = 0; axis < 3; axis++) {
            mixed |= (cell[axis] >> bit & 1) << (3 * bit + axis);
        }
    }
    return mixed;
}

static int cube_of(const body *of)
{
    int at[3];
    for (int axis = 0; axis < 3; axis++) {
        at[axis] = (int)((of->place[axis] - shared->low[axis]) / shared->side * (1 << LEVELS));
    }
    return interleave(at);
}

/* A cube that holds all; every process finds the same. */
static void find_cube(double low[3], double *side)
{
    double high[3] = { -1e30, -1e30, -1e30 };
    low[0] = low[1] = low[2] = 1e30;
    for (long which = 0; which < bodies; which++) {
        for (int axis = 0; axis < 3; axis++) {
            low[axis] = fmin(low[axis], body_of[which].place[axis]);
            high[axis] = fmax(high[axis], body_of[which].place[axis]);
        }
    }
    *side = 0;
    for (int axis = 0; axis < 3; axis++) {
        *side = fmax(*side, 1.0001 * (high[axis] - low[axis]));
    }
}

static int compare(const void *one, const void *other)
{
    return cube_of(one) - cube_of(other);
}

/* Plummer's model, dense in the middle, without those far out; neighbours together. */
static void fill(void)
{
    app_random random = { 1 };
    shared = G_MALLOC(sizeof *shared);
    body_of = G_MALLOC((size_t)bodies * sizeof *body_of);
    cell_of = G_MALLOC((size_t)par_processes * (size_t)cells_each * sizeof *cell_of);
    for (long which = 0; which < bodies; which++) {
        double inner = 0.97 * app_random_unit(&random) + 0.0005;
        double far = 1 / sqrt(pow(inner, -2.0 / 3) - 1);
        double fast = 0.5 * sqrt(2) * pow(1 + far * far, -0.25);
        double height = 2 * app_random_unit(&random) - 1;
        double turn = 6.283185307179586 * app_random_unit(&random);
        double flat = sqrt(1 - height * height);
        double way[3] = { flat * cos(turn), flat * sin(turn), height };
        body_of[which].mass = 1 / (double)bodies;
        body_of[which].cost = 1;
        for (int axis = 0; axis < 3; axis++) {
            body_of[which].place[axis] = far * way[axis];
            body_of[which].speed[axis] = fast * way[(axis + 1) % 3];
        }
    }
    find_cube(shared->low, &shared->side);
    qsort(body_of, (size_t)bodies, sizeof *body_of, compare);
}

/* Sorts bodies by cubes, and finds out which cubes are this process's. */
static void divide(view *in, int process, int processes)
{
    long all = 0, before = 0;
    long *cost = app_memory(CUBES, sizeof *cost);
    memset(in->begin, 0, (CUBES + 1) * sizeof *in->begin);
    for (long which = 0; which < bodies; which++) {
        int cube = in->cube[which] = cube_of(&body_of[which]);
        in->begin[cube + 1]++;
        cost[cube] += body_of[which].cost;
        all += body_of[which].cost;
    }
    in->first = in->last = CUBES;
    for (int cube = 0; cube < CUBES; cube++) {
        in->begin[cube + 1] += in->begin[cube];
        /* The last process also has the empty cubes behind the last body. */
        int whose = before < all ? (int)(before * processes / all) : processes - 1;
        in->first = whose >= process && cube < in->first ? cube : in->first;
        in->last = whose > process && cube < in->last ? cube : in->last;
        before += cost[cube];
    }
    for (long which = 0; which < bodies; which++) {
        in->order[in->begin[in->cube[which]]++] = (int)which;
    }
    memmove(in->begin + 1, in->begin, CUBES * sizeof *in->begin);
    in->begin[0] = 0;
    free(cost);
}

static int new_cell(long *next, long end, double side)
{
    if (*next == end) {
        app_fail("barnes: too many cells; two bodies are in one place");
    }
    cell *fresh = &cell_of[*next];
    memset(fresh, 0, sizeof *fresh);
    fresh->side = side;
    for (int which = 0; which < 8; which++) {
        fresh->child[which] = NOTHING;
    }
    return (int)(*next)++;
}

/* In which eighth of a cube a body is; moves the cube's corner there. */
static int eighth(const body *of, double *low, double half)
{
    int which = 0;
    for (int axis = 0; axis < 3; axis++) {
        if (of->place[axis] >= low[axis] + half) {
            which |= 1 << axis;
            low[axis] += half;
        }
    }
    return which;
}

/* Adds a body to a tree, whose cube begins at `low`. */
static void insert(int *tree, long number, double low[3], double side, long *next, long end)
{
    while (*tree != NOTHING) {
        if (*tree >= bodies_from) {
            /* Another body: both go into a cell of their own. */
            int other = *tree, inner = new_cell(next, end, side);
            double corner[3];
            memcpy(corner, low, sizeof corner);
            cell_of[inner].child[eighth(&body_of[other - bodies_from], corner, side / 2)] = other;
            *tree = inner;
        }
        side /= 2;
        tree = &cell_of[*tree].child[eighth(&body_of[number], low, side)];
    }
    *tree = (int)(bodies_from + number);
}

/* What a child is: its mass, and where. */
static double weight(const cell *top, int child, const double **place)
{
    if (child >= top_from) {
        *place = top[child - top_from].centre;
        return top[child - top_from].mass;
    }
    if (child >= bodies_from) {
        *place = body_of[child - bodies_from].place;
        return body_of[child - bodies_from].mass;
    }
    *place = cell_of[child].centre;
    return cell_of[child].mass;
}

/* Sums up the children of a cell. */
static void weigh(const cell *top, cell *here)
{
    for (int which = 0; which < 8; which++) {
        const double *place;
        if (here->child[which] == NOTHING) {
            continue;
        }
        double mass = weight(top, here->child[which], &place);
        here->mass += mass;
        for (int axis = 0; axis < 3; axis++) {
            here->centre[axis] += mass * place[axis];
        }
    }
    for (int axis = 0; axis < 3 && here->mass > 0; axis++) {
        here->centre[axis] /= here->mass;
    }
}

static void weigh_tree(int tree)
{
    for (int which = 0; which < 8; which++) {
        int child = cell_of[tree].child[which];
        if (child != NOTHING && child < bodies_from) {
            weigh_tree(child);
        }
    }
    weigh(NULL, &cell_of[tree]);
}

/* The trees of this process's cubes. */
static void build(const view *in, int process)
{
    long next = process * cells_each, end = next + cells_each;
    double side = shared->side / (1 << LEVELS);
    for (int cube = in->first; cube < in->last; cube++) {
        int tree = NOTHING;
        for (int at = in->begin[cube]; at < in->begin[cube + 1]; at++) {
            double low[3];
            for (int axis = 0; axis < 3; axis++) {
                int step = 0;
                for (int bit = 0; bit < LEVELS; bit++) {
                    step |= (cube >> (3 * bit + axis) & 1) << bit;
                }
                low[axis] = shared->low[axis] + step * side;
            }
            insert(&tree, in->order[at], low, side, &next, end);
        }
        if (tree != NOTHING && tree < bodies_from) {
            weigh_tree(tree);
        }
        /* Most cubes are empty in every step: their page stays as it is. */
        if (shared->root[cube] != tree) {
            shared->root[cube] = tree;
        }
    }
}

/* The top: cells of each level follow those of the next finer one. */
static void build_top(view *in)
{
    int base = 0, below = 0;
    double side = shared->side / (1 << LEVELS);
    for (int count = CUBES / 8; count > 0; count /= 8) {
        side *= 2;
        for (int number = 0; number < count; number++) {
            cell *here = &in->top[base + number];
            memset(here, 0, sizeof *here);
            here->side = side;
            for (int which = 0; which < 8; which++) {
                int child = number * 8 + which;
                if (count == CUBES / 8) {
                    here->child[which] = shared->root[child];
                } else {
                    int empty = in->top[below + child].mass == 0;
                    here->child[which] = empty ? NOTHING : (int)(top_from + below + child);
                }
            }
            weigh(in->top, here);
        }
        below = base;
        base += count;
    }
}

/* Adds the pull of a child, or of what is in it. */
static void pull(const view *in, const body *of, int child, double force[3], long *cost)
{
    const double *place;
    double mass = weight(in->top, child, &place), away[3], square = 0;
    for (int axis = 0; axis < 3; axis++) {
        away[axis] = place[axis] - of->place[axis];
        square += away[axis] * away[axis];
    }
    ++*cost;
    if (child < bodies_from || child >= top_from) {
        const cell *here = child >= top_from ? &in->top[child - top_from] : &cell_of[child];
        if (here->side * here->side >= opening * opening * square) {
            for (int which = 0; which < 8; which++) {
                if (here->child[which] != NOTHING) {
                    pull(in, of, here->child[which], force, cost);
                }
            }
            return;
        }
    } else if (&body_of[child - bodies_from] == of) {
        return;
    }
    square += softening * softening;
    double factor = mass / (square * sqrt(square));
    for (int axis = 0; axis < 3; axis++) {
        force[axis] += factor * away[axis];
    }
}

/* The forces on this process's bodies, and what they cost (in `cube`). */
static void find_forces(view *in)
{
    for (int at = in->begin[in->first]; at < in->begin[in->last]; at++) {
        long cost = 0;
        memset(in->force[at], 0, sizeof in->force[at]);
        pull(in, &body_of[in->order[at]], (int)top_from + TOP_CELLS - 1, in->force[at], &cost);
        in->cube[in->order[at]] = (int)cost;
    }
}

static void move(const view *in)
{
    for (int at = in->begin[in->first]; at < in->begin[in->last]; at++) {
        body *of = &body_of[in->order[at]];
        of->cost = in->cube[in->order[at]];
        for (int axis = 0; axis < 3; axis++) {
            of->speed[axis] += time_step * in->force[at][axis];
            of->place[axis] += time_step * of->speed[axis];
        }
    }
}

static view new_view(void)
{
    view fresh = { .cube = app_memory((size_t)bodies, sizeof(int)) };
    fresh.order = app_memory((size_t)bodies, sizeof(int));
    fresh.begin = app_memory(CUBES + 1, sizeof(int));
    fresh.top = app_memory(TOP_CELLS, sizeof(cell));
    fresh.force = app_memory((size_t)bodies, sizeof *fresh.force);
    return fresh;
}

static void work(int process)
{
    view mine = new_view();
    for (long step = 0; step < steps; step++) {
        divide(&mine, process, par_processes);
        build(&mine, process);
        BARRIER(1);
        build_top(&mine);
        find_forces(&mine);
        BARRIER(2);
        move(&mine);
        BARRIER(3);
        if (process == 0) {
            find_cube(shared->low, &shared->side);
        }
        BARRIER(4);
    }
}

/* The forces of the tree are those of all bodies, one by one, but for a hundredth. */
static void check(void)
{
    view all = new_view();
    divide(&all, 0, 1);
    build(&all, 0);
    build_top(&all);
    find_forces(&all);
    double away = 0, large = 0;
    for (long at = 0; at < bodies; at += bodies / 50 + 1) {
        double force[3] = { 0, 0, 0 };
        const body *of = &body_of[all.order[at]];
        for (long which = 0; which < bodies; which++) {
            double way[3], square = softening * softening;
            for (int axis = 0; axis < 3; axis++) {
                way[axis] = body_of[which].place[axis] - of->place[axis];
                square += way[axis] * way[axis];
            }
            for (int axis = 0; axis < 3; axis++) {
                force[axis] += body_of[which].mass / (square * sqrt(square)) * way[axis];
            }
        }
        for (int axis = 0; axis < 3; axis++) {
            double difference = force[axis] - all.force[at][axis];
            away += difference * difference;
            large += force[axis] * force[axis];
        }
    }
    if (!(sqrt(away / large) < 0.01)) {
        app_fail("barnes: the forces are %g of theirs away", sqrt(away / large));
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "bodies", &bodies, NULL, "how many bodies" },
        { "steps", &steps, NULL, "how many steps" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "bodies that attract each other, by Barnes and Hut's method", options);
    if (bodies < 2 || bodies > 10000000) {
        app_fail("there are 2 to 10 million bodies");
    }
    MAIN_INITENV(argc, argv);
    cells_each = 2 * bodies + 64;
    bodies_from = par_processes * cells_each;
    top_from = bodies_from + bodies;
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(body_of);
    DISTRIBUTE(cell_of);
    DISTRIBUTE(shared);
    double took = CREATE(work);
    if (par_first()) {
        double sum = 0;
        for (long which = 0; which < bodies; which++) {
            sum += fabs(body_of[which].place[0]) + fabs(body_of[which].speed[1]);
        }
        app_report("barnes", par_processes, took, "sum=%.17g", sum);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
