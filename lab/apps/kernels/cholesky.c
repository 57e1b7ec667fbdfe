/* Sparse Cholesky: a symmetric matrix is factored into a lower triangle and its
 * transpose. The matrix is that of a grid in three dimensions, each point coupled to
 * its six neighbours, in the order of a nested dissection (George 1973).
 *
 * Columns of the same structure, those of a separator, are panels: dense, with the
 * rows of the separator and of the ring around the region it cuts. A panel is a task
 * as soon as all panels that update it are done; small regions are a task as a whole.
 * Tasks wait in one queue, guarded by a lock, with a condition for those who find it
 * empty. What panels look like every process knows; their numbers are shared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "par.h"

#define LOCK_OF_QUEUE 0

/* Doubles of a page. */
#define PAGE 512

/* Points of a region that is not divided further. */
#define REGION 8

static long edge = 32, layers = 32, width = 32, region_task = 512;

/* Columns first..first+columns, and the rows of them: these, and then others. */
typedef struct {
    long first, columns, rows;
    /* The first of them, those of its separator, are consecutive. */
    long own;
    long *row;
    size_t place;
    long task;
    /* Panels that update this one, in their order, and those that this one updates. */
    long *from, froms, *to, tos;
} panel;

/* Tasks: ready ones next..end of `ready`, and how many updates each still awaits. */
typedef struct {
    long next, end, done;
    long lists[];
} queue;

typedef struct {
    long low[3], high[3];
} region;

static panel *panels;
static long panel_count, points, numbered;

/* The number of each point in the order of elimination, the point of each number, and
 * the panel of each number. */
static long *number_of, *point_of, *panel_of;

/* Panels first..last of a task. */
static struct {
    long first, last;
} *tasks;
static long task_count;
static size_t doubles;

static double *values;
static queue *waiting;

static long *ready(void)
{
    return waiting->lists;
}

static long *awaited(void)
{
    return waiting->lists + task_count;
}

static long point(const long at[3])
{
    return (at[2] * edge + at[1]) * edge + at[0];
}

static long volume(const region *of)
{
    long points_in = 1;
    for (int axis = 0; axis < 3; axis++) {
        points_in *= of->high[axis] - of->low[axis];
    }
    return points_in;
}

/* Calls for each point of a box. */
static void each_point(const region *of, void (*call)(long point))
{
    long at[3];
    for (at[2] = of->low[2]; at[2] < of->high[2]; at[2]++) {
        for (at[1] = of->low[1]; at[1] < of->high[1]; at[1]++) {
            for (at[0] = of->low[0]; at[0] < of->high[0]; at[0]++) {
                call(point(at));
            }
        }
    }
}

static void give_number(long here)
{
    number_of[here] = numbered;
    point_of[numbered++] = here;
}

/* Points on the six faces outside a region; their points, later their numbers. */
static long *ring, ring_size;

static void note_in_ring(long here)
{
    ring[ring_size++] = here;
}

static void find_ring(const region *of)
{
    const long size[3] = { edge, edge, layers };
    ring = app_memory((size_t)(2 * edge * (edge + 2 * layers) + 1), sizeof *ring);
    ring_size = 0;
    for (int axis = 0; axis < 3; axis++) {
        region face = *of;
        face.low[axis] = of->low[axis] - 1;
        face.high[axis] = of->low[axis];
        if (face.low[axis] >= 0) {
            each_point(&face, note_in_ring);
        }
        face.low[axis] = of->high[axis];
        face.high[axis] = of->high[axis] + 1;
        if (face.high[axis] <= size[axis]) {
            each_point(&face, note_in_ring);
        }
    }
}

/* Panels of columns first..numbered. Their rows below are points of the ring, which have
 * no numbers yet. */
static void add_panels(const region *of, long first, long task)
{
    long end = numbered;
    find_ring(of);
    for (long begin = first; begin < end; begin += width) {
        panel *here = &panels[panel_count];
        here->first = begin;
        here->columns = begin + width < end ? width : end - begin;
        here->own = end - begin;
        here->rows = here->own + ring_size;
        here->row = app_memory((size_t)here->rows, sizeof(long));
        for (long at = 0; at < here->rows; at++) {
            here->row[at] = at < here->own ? begin + at : ring[at - here->own];
        }
        here->task = task >= 0 ? task : task_count++;
        panel_count++;
    }
    free(ring);
}

/* Numbers the points of a region: those of both halves, then those between them. */
static void dissect(const region *of, long task)
{
    int longest = 0;
    for (int axis = 1; axis < 3; axis++) {
        int longer = of->high[axis] - of->low[axis] > of->high[longest] - of->low[longest];
        longest = longer ? axis : longest;
    }
    long first = numbered, length = of->high[longest] - of->low[longest];
    if (task < 0 && volume(of) <= region_task) {
        task = task_count++;
    }
    if (volume(of) <= REGION || length < 3) {
        each_point(of, give_number);
    } else {
        region left = *of, right = *of, between = *of;
        long middle = of->low[longest] + length / 2;
        left.high[longest] = between.low[longest] = middle;
        right.low[longest] = between.high[longest] = middle + 1;
        dissect(&left, task);
        dissect(&right, task);
        first = numbered;
        each_point(&between, give_number);
    }
    add_panels(of, first, task);
}

static int compare(const void *one, const void *other)
{
    long difference = *(const long *)one - *(const long *)other;
    return (difference > 0) - (difference < 0);
}

/* Rows of the ring become numbers, which they have once all is dissected. */
static void number_rings(void)
{
    for (long which = 0; which < panel_count; which++) {
        panel *here = &panels[which];
        for (long at = here->own; at < here->rows; at++) {
            here->row[at] = number_of[here->row[at]];
        }
        qsort(here->row + here->own, (size_t)(here->rows - here->own), sizeof(long), compare);
        for (long at = here->first; at < here->first + here->columns; at++) {
            panel_of[at] = which;
        }
    }
}

static void add_update(panel *from, panel *to)
{
    if (to->froms % 16 == 0) {
        to->from = realloc(to->from, (size_t)(to->froms + 16) * sizeof(long));
        if (to->from == NULL) {
            app_fail("no memory for the order of panels");
        }
    }
    to->from[to->froms++] = from - panels;
    from->to[from->tos++] = to - panels;
}

/* Where each panel's numbers are, and which panels it updates. */
static void lay_out(void)
{
    long last_task = -1;
    for (long which = 0; which < panel_count; which++) {
        panel *here = &panels[which];
        if (here->task != last_task) {
            doubles = (doubles + PAGE - 1) / PAGE * PAGE;
            tasks[here->task].first = which;
            last_task = here->task;
        }
        tasks[here->task].last = which + 1;
        here->place = doubles;
        doubles += (size_t)(here->rows * here->columns);
        here->to = app_memory((size_t)here->rows, sizeof(long));
        long latest = which;
        for (long at = here->columns; at < here->rows; at++) {
            long other = panel_of[here->row[at]];
            if (other != latest) {
                add_update(here, &panels[other]);
                latest = other;
            }
        }
    }
}

/* What all processes know. */
static void analyse(void)
{
    points = edge * edge * layers;
    panels = app_memory((size_t)points, sizeof *panels);
    tasks = app_memory((size_t)points, sizeof *tasks);
    number_of = app_memory((size_t)points, sizeof *number_of);
    point_of = app_memory((size_t)points, sizeof *point_of);
    panel_of = app_memory((size_t)points, sizeof *panel_of);
    region all = { { 0, 0, 0 }, { edge, edge, layers } };
    dissect(&all, -1);
    number_rings();
    lay_out();
}

/* A number of the matrix, by points of the grid. */
static double coupling(long one, long other)
{
    if (one == other) {
        return 6.5;
    }
    app_random random = { (uint64_t)(one < other ? one : other) };
    return -0.5 - 0.5 * app_random_unit(&random);
}

static int are_neighbours(long one, long other)
{
    long away = labs(one % edge - other % edge) + labs(one / edge % edge - other / edge % edge) +
                labs(one / edge / edge - other / edge / edge);
    return away <= 1;
}

static double *column_of(const panel *in, long column)
{
    return values + in->place + (size_t)(column * in->rows);
}

/* The matrix's numbers, stored where the triangle's will be. */
static void assemble(const panel *into)
{
    for (long column = 0; column < into->columns; column++) {
        long one = point_of[into->first + column];
        for (long at = column; at < into->rows; at++) {
            long other = point_of[into->row[at]];
            column_of(into, column)[at] = are_neighbours(one, other) ? coupling(one, other) : 0;
        }
    }
}

/* Subtracts the product of a panel that is done and its transpose. */
static void update(const panel *from, const panel *into, double *sum, long *place)
{
    long first = from->columns, last, end = into->first + into->columns;
    while (from->row[first] < into->first) {
        first++;
    }
    for (last = first; last < from->rows && from->row[last] < end; last++) {
    }
    for (long at = first, to = 0; at < from->rows; at++) {
        while (into->row[to] != from->row[at]) {
            to++;
        }
        place[at] = to;
    }
    for (long column = first; column < last; column++) {
        memset(sum + column, 0, (size_t)(from->rows - column) * sizeof *sum);
        for (long k = 0; k < from->columns; k++) {
            const double *source = column_of(from, k);
            double factor = source[column];
            for (long at = column; at < from->rows; at++) {
                sum[at] += factor * source[at];
            }
        }
        double *target = column_of(into, from->row[column] - into->first);
        for (long at = column; at < from->rows; at++) {
            target[place[at]] -= sum[at];
        }
    }
}

/* Factors a panel after all updates. */
static void factor(const panel *of)
{
    for (long k = 0; k < of->columns; k++) {
        double *column = column_of(of, k), root = sqrt(column[k]);
        for (long at = k; at < of->rows; at++) {
            column[at] /= root;
        }
        for (long other = k + 1; other < of->columns; other++) {
            double *target = column_of(of, other), ratio = column[other];
            for (long at = other; at < of->rows; at++) {
                target[at] -= ratio * column[at];
            }
        }
    }
}

static void do_task(long task, double *sum, long *place)
{
    for (long which = tasks[task].first; which < tasks[task].last; which++) {
        const panel *here = &panels[which];
        assemble(here);
        for (long at = 0; at < here->froms; at++) {
            update(&panels[here->from[at]], here, sum, place);
        }
        factor(here);
    }
}

/* With the lock: what awaited this task may be ready. */
static void finish(long task)
{
    for (long which = tasks[task].first; which < tasks[task].last; which++) {
        for (long at = 0; at < panels[which].tos; at++) {
            long other = panels[panels[which].to[at]].task;
            if (other != task && --awaited()[other] == 0) {
                ready()[waiting->end++] = other;
            }
        }
    }
    waiting->done++;
    WAKE_ALL(LOCK_OF_QUEUE);
}

static void work(int process)
{
    double *sum = app_memory((size_t)points, sizeof *sum);
    long *place = app_memory((size_t)points, sizeof *place);
    (void)process;
    LOCK(LOCK_OF_QUEUE);
    while (waiting->done < task_count) {
        if (waiting->next == waiting->end) {
            WAIT(LOCK_OF_QUEUE);
            continue;
        }
        long task = ready()[waiting->next++];
        UNLOCK(LOCK_OF_QUEUE);
        do_task(task, sum, place);
        LOCK(LOCK_OF_QUEUE);
        finish(task);
    }
    UNLOCK(LOCK_OF_QUEUE);
    free(sum);
    free(place);
}

static void fill(void)
{
    values = G_MALLOC(doubles * sizeof *values);
    waiting = G_MALLOC(sizeof *waiting + (size_t)(2 * task_count) * sizeof(long));
    for (long which = 0; which < panel_count; which++) {
        for (long at = 0; at < panels[which].froms; at++) {
            long task = panels[which].task;
            awaited()[task] += panels[panels[which].from[at]].task != task;
        }
    }
    for (long task = 0; task < task_count; task++) {
        if (awaited()[task] == 0) {
            ready()[waiting->end++] = task;
        }
    }
}

/* The matrix and a vector, multiplied at the grid's points. */
static double product_at(const double *vector, long here)
{
    const long steps[3] = { 1, edge, edge * edge };
    double sum = coupling(here, here) * vector[number_of[here]];
    for (int axis = 0; axis < 3; axis++) {
        for (int side = -1; side <= 1; side += 2) {
            long other = here + side * steps[axis];
            if (other >= 0 && other < points && are_neighbours(here, other)) {
                sum += coupling(here, other) * vector[number_of[other]];
            }
        }
    }
    return sum;
}

/* The product of the triangles and a vector is that of the matrix and the vector. */
static void check(void)
{
    double *vector = app_memory((size_t)points, sizeof *vector);
    double *product = app_memory((size_t)points, sizeof *product);
    app_random random = { 2 };
    for (long at = 0; at < points; at++) {
        vector[at] = app_random_unit(&random) - 0.5;
    }
    for (long which = 0; which < panel_count; which++) {
        const panel *in = &panels[which];
        for (long column = 0; column < in->columns; column++) {
            double above = 0;
            for (long at = column; at < in->rows; at++) {
                above += column_of(in, column)[at] * vector[in->row[at]];
            }
            for (long at = column; at < in->rows; at++) {
                product[in->row[at]] += column_of(in, column)[at] * above;
            }
        }
    }
    double away = 0;
    for (long here = 0; here < points; here++) {
        away = fmax(away, fabs(product[number_of[here]] - product_at(vector, here)));
    }
    if (!(away < 1e-10)) {
        app_fail("cholesky: the triangles' product is %g away from the matrix", away);
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "edge", &edge, NULL, "points along two edges of the grid" },
        { "layers", &layers, NULL, "points along the third; 1 makes it flat" },
        { "width", &width, NULL, "the most columns of a panel" },
        { "task", &region_task, NULL, "points of the regions that are one task" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Cholesky factorization of a sparse matrix", options);
    if (edge < 2 || edge > 1000 || layers < 1 || layers > 1000 || width < 1 || region_task < 1) {
        app_fail("edges have 2 to 1000 points, panels a column, tasks a point");
    }
    MAIN_INITENV(argc, argv);
    analyse();
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(values);
    DISTRIBUTE(waiting);
    double took = CREATE(work);
    if (par_first()) {
        double sum = 0;
        for (long which = 0; which < panel_count; which++) {
            for (long column = 0; column < panels[which].columns; column++) {
                sum += column_of(&panels[which], column)[column];
            }
        }
        app_report("cholesky", par_processes, took, "panels=%ld tasks=%ld sum=%.17g", panel_count,
                   task_count, sum);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
