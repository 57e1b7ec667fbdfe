/* Ocean: the elliptic solver of ocean models, an equation of Poisson on a square
 * grid by red-black relaxation and multigrid.
 *
 * Each process has a band of rows of every grid; a relaxation of one colour reads
 * the other colour, of the neighbours' bands only the rows next to its own. Grids
 * that are too small to divide are process 0's. Cycles of the shape of a V, from the
 * finest grid to the coarsest and back, until the residual is small. Barriers only. */
#include <math.h>

#include "app.h"
#include "par.h"

#define GRIDS 16

/* Grids with fewer cells a side are not divided. */
#define DIVIDED_FROM 64

#define PI 3.141592653589793

/* Distance of the numbers that processes store, so that none shares a page. */
#define APART 512

static long cells = 2048, most_cycles = 30;

/* Relative to the residual at first. */
static const double enough = 1e-9;

/* Relaxations before going to a coarser grid, and after; on the coarsest. */
static const int before = 2, after = 2, coarsest = 20;

/* One grid: cells a side, the solution and the right side with their borders. */
typedef struct {
    long side;
    double *value, *right;
} grid;

/* From the finest to the coarsest. */
static grid grids[GRIDS];
static int levels;

/* The largest residual of each process. */
static double *residuals;

/* Cycles done, and the residual at the end; of process 0. */
static long cycles;
static double first_residual, last_residual;

static size_t at(const grid *in, long row, long column)
{
    return (size_t)(row * (in->side + 1) + column);
}

/* The right side for which sin(pi x) sin(2 pi y) is the solution. */
static double force(double x, double y)
{
    return 5 * PI * PI * sin(PI * x) * sin(2 * PI * y);
}

static void fill(void)
{
    for (long side = cells; side >= 2; side /= 2) {
        grid *here = &grids[levels++];
        size_t size = (size_t)((side + 1) * (side + 1)) * sizeof(double);
        here->side = side;
        here->value = G_MALLOC(size);
        here->right = G_MALLOC(size);
    }
    for (long row = 1; row < cells; row++) {
        for (long column = 1; column < cells; column++) {
            grids[0].right[at(&grids[0], row, column)] =
                force((double)row / (double)cells, (double)column / (double)cells);
        }
    }
    residuals = G_MALLOC((size_t)par_processes * APART * sizeof(double));
}

/* The inner rows of a grid that a process has: all of a small one, if it is the first. */
static void rows_of(const grid *in, int process, long *begin, long *end)
{
    if (in->side < DIVIDED_FROM) {
        *begin = 1;
        *end = process == 0 ? in->side : 1;
        return;
    }
    app_part(in->side - 1, process, par_processes, begin, end);
    *begin += 1;
    *end += 1;
}

/* Barriers between processes that have parts of this grid, or of the next finer one. */
static void meet(const grid *in)
{
    if (in->side >= DIVIDED_FROM) {
        BARRIER(1);
    }
}

/* One colour, in rows begin..end. */
static void relax_colour(const grid *in, int colour, long begin, long end)
{
    double square = 1.0 / ((double)in->side * (double)in->side);
    long width = in->side + 1;
    for (long row = begin; row < end; row++) {
        double *value = in->value + row * width;
        const double *right = in->right + row * width;
        for (long column = 1 + (row + colour) % 2; column < in->side; column += 2) {
            value[column] = 0.25 * (value[column - width] + value[column + width] +
                                    value[column - 1] + value[column + 1] +
                                    square * right[column]);
        }
    }
}

static void relax(const grid *in, int times, int process)
{
    long begin, end;
    rows_of(in, process, &begin, &end);
    for (int turn = 0; turn < 2 * times; turn++) {
        relax_colour(in, turn % 2, begin, end);
        meet(in);
    }
}

static double residual_at(const grid *in, long row, long column)
{
    size_t here = at(in, row, column), width = (size_t)in->side + 1;
    double scale = (double)in->side * (double)in->side;
    return in->right[here] + scale * (in->value[here - width] + in->value[here + width] +
                                      in->value[here - 1] + in->value[here + 1] -
                                      4 * in->value[here]);
}

/* The residual of a grid becomes the right side of the next, weighted over 3 by 3. */
static void restrict_residual(const grid *from, const grid *to, int process)
{
    static const double weight[3] = { 0.25, 0.5, 0.25 };
    long begin, end;
    rows_of(to, process, &begin, &end);
    for (long row = begin; row < end; row++) {
        for (long column = 1; column < to->side; column++) {
            double sum = 0;
            for (int i = -1; i <= 1; i++) {
                for (int j = -1; j <= 1; j++) {
                    sum += weight[i + 1] * weight[j + 1] *
                           residual_at(from, 2 * row + i, 2 * column + j);
                }
            }
            to->right[at(to, row, column)] = sum;
            to->value[at(to, row, column)] = 0;
        }
    }
    /* Also where process 0 goes on alone: it read what the others have relaxed. */
    meet(from);
}

/* Adds the correction of a coarser grid, linear between its points. */
static void interpolate(const grid *from, const grid *to, int process)
{
    long begin, end;
    rows_of(to, process, &begin, &end);
    for (long row = begin; row < end; row++) {
        for (long column = 1; column < to->side; column++) {
            long up = row / 2, down = (row + 1) / 2;
            long left = column / 2, right = (column + 1) / 2;
            to->value[at(to, row, column)] +=
                0.25 * (from->value[at(from, up, left)] + from->value[at(from, up, right)] +
                        from->value[at(from, down, left)] + from->value[at(from, down, right)]);
        }
    }
    meet(to);
}

static void cycle(int process)
{
    for (int level = 0; level + 1 < levels; level++) {
        relax(&grids[level], before, process);
        restrict_residual(&grids[level], &grids[level + 1], process);
    }
    relax(&grids[levels - 1], coarsest, process);
    for (int level = levels - 2; level >= 0; level--) {
        if (grids[level].side >= DIVIDED_FROM && grids[level + 1].side < DIVIDED_FROM) {
            /* The others wait for what process 0 did alone. */
            BARRIER(2);
        }
        interpolate(&grids[level + 1], &grids[level], process);
        relax(&grids[level], after, process);
    }
}

/* The largest residual of the finest grid, the same in all processes. */
static double largest_residual(int process)
{
    long begin, end;
    double largest = 0;
    rows_of(&grids[0], process, &begin, &end);
    for (long row = begin; row < end; row++) {
        for (long column = 1; column < cells; column++) {
            largest = fmax(largest, fabs(residual_at(&grids[0], row, column)));
        }
    }
    residuals[process * APART] = largest;
    BARRIER(3);
    for (int other = 0; other < par_processes; other++) {
        largest = fmax(largest, residuals[other * APART]);
    }
    BARRIER(4);
    return largest;
}

static void work(int process)
{
    double first = largest_residual(process), now = first;
    long done = 0;
    while (done < most_cycles && now > enough * first) {
        cycle(process);
        now = largest_residual(process);
        done++;
    }
    if (process == 0) {
        cycles = done;
        first_residual = first;
        last_residual = now;
    }
}

/* Near the solution that the equation has, but for the error of the grid. */
static void check(void)
{
    if (!(last_residual <= enough * first_residual)) {
        app_fail("ocean: after %ld cycles the residual is %g of %g", cycles, last_residual,
                 first_residual);
    }
    double width = 1 / (double)cells, away = 0;
    for (long row = 1; row < cells; row++) {
        for (long column = 1; column < cells; column++) {
            double x = (double)row * width, y = (double)column * width;
            double right = sin(PI * x) * sin(2 * PI * y);
            away = fmax(away, fabs(grids[0].value[at(&grids[0], row, column)] - right));
        }
    }
    if (!(away < 5 * width * width + 1e-8)) {
        app_fail("ocean: the solution is %g away", away);
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "cells", &cells, NULL, "cells a side of the finest grid, a power of two" },
        { "cycles", &most_cycles, NULL, "the most cycles" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "red-black multigrid, as in ocean models", options);
    if (cells < DIVIDED_FROM || cells > 32768 || (cells & (cells - 1)) != 0) {
        app_fail("there are %d to 32768 cells a side, a power of two", DIVIDED_FROM);
    }
    MAIN_INITENV(argc, argv);
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(grids);
    DISTRIBUTE(levels);
    DISTRIBUTE(residuals);
    double took = CREATE(work);
    if (par_first()) {
        double sum = 0;
        for (long row = 1; row < cells; row++) {
            double value = grids[0].value[at(&grids[0], row, row * 7 % cells)];
            sum += value * value;
        }
        app_report("ocean", par_processes, took, "cycles=%ld sum=%.17g", cycles, sum);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
