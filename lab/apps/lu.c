/* LU: a dense matrix is factored into a lower and an upper triangle, block by
 * block, without pivoting.
 *
 * Blocks lie in memory one after the other and are dealt out to the processes like
 * a chess board. For each block of the diagonal: its owner factors it; after a
 * barrier the owners of its row and column divide by it; after another all
 * update what is below and to the right. Barriers only. */
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"

static long size = 512, edge = 32;

/* Blocks a side. */
static long blocks;

/* Processes a side of the board: down and across. */
static int down, across;

static double *shared;

static double *block_of(double *matrix, long row, long column)
{
    return matrix + (row * blocks + column) * edge * edge;
}

static void fill(double *matrix)
{
    app_random random = { 1 };
    for (long row = 0; row < blocks; row++) {
        for (long column = 0; column < blocks; column++) {
            double *block = block_of(matrix, row, column);
            for (long at = 0; at < edge * edge; at++) {
                int diagonal = row == column && at / edge == at % edge;
                block[at] = app_random_unit(&random) + (diagonal ? (double)size : 0);
            }
        }
    }
}

/* Factors a block of the diagonal in its place. */
static void factor(double *block)
{
    for (long k = 0; k < edge; k++) {
        for (long row = k + 1; row < edge; row++) {
            double ratio = block[row * edge + k] /= block[k * edge + k];
            for (long column = k + 1; column < edge; column++) {
                block[row * edge + column] -= ratio * block[k * edge + column];
            }
        }
    }
}

/* A block right of the diagonal: divides by the diagonal's lower triangle. */
static void divide_row(const double *diagonal, double *block)
{
    for (long k = 0; k < edge; k++) {
        for (long row = k + 1; row < edge; row++) {
            double ratio = diagonal[row * edge + k];
            for (long column = 0; column < edge; column++) {
                block[row * edge + column] -= ratio * block[k * edge + column];
            }
        }
    }
}

/* A block below the diagonal: divides by the diagonal's upper triangle. */
static void divide_column(const double *diagonal, double *block)
{
    for (long row = 0; row < edge; row++) {
        for (long k = 0; k < edge; k++) {
            double ratio = block[row * edge + k] /= diagonal[k * edge + k];
            for (long column = k + 1; column < edge; column++) {
                block[row * edge + column] -= ratio * diagonal[k * edge + column];
            }
        }
    }
}

static void update(const double *left, const double *above, double *block)
{
    for (long row = 0; row < edge; row++) {
        for (long k = 0; k < edge; k++) {
            double ratio = left[row * edge + k];
            for (long column = 0; column < edge; column++) {
                block[row * edge + column] -= ratio * above[k * edge + column];
            }
        }
    }
}

static int owner(long row, long column)
{
    return (int)(row % down) * across + (int)(column % across);
}

static void nobody_waits(unsigned barrier)
{
    (void)barrier;
}

/* What process number `rank` of down * across does. */
static void solve(double *matrix, int rank, void (*wait)(unsigned))
{
    for (long k = 0; k < blocks; k++) {
        double *diagonal = block_of(matrix, k, k);
        if (owner(k, k) == rank) {
            factor(diagonal);
        }
        wait(1);
        for (long other = k + 1; other < blocks; other++) {
            if (owner(k, other) == rank) {
                divide_row(diagonal, block_of(matrix, k, other));
            }
            if (owner(other, k) == rank) {
                divide_column(diagonal, block_of(matrix, other, k));
            }
        }
        wait(2);
        for (long row = k + 1; row < blocks; row++) {
            for (long column = k + 1; column < blocks; column++) {
                if (owner(row, column) == rank) {
                    update(block_of(matrix, row, k), block_of(matrix, k, column),
                           block_of(matrix, row, column));
                }
            }
        }
    }
}

static double solve_alone(double *matrix)
{
    down = across = 1;
    fill(matrix);
    double start = app_now();
    solve(matrix, 0, nobody_waits);
    return app_now() - start;
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc((size_t)(size * size) * sizeof(double));
        if (shared == NULL) {
            app_fail("no shared memory");
        }
        fill(shared);
        Tmk_distribute(&shared, sizeof shared);
    }
    for (down = (int)sqrt((double)Tmk_nprocs); Tmk_nprocs % down != 0; down--) {
    }
    across = Tmk_nprocs / down;
    Tmk_barrier(0);
    double start = app_now();
    solve(shared, Tmk_proc_id, Tmk_barrier);
    Tmk_barrier(0);
    return app_now() - start;
}

/* The sum of the diagonal of the upper triangle. */
static double trace(double *matrix)
{
    double sum = 0;
    for (long at = 0; at < size; at++) {
        sum += block_of(matrix, at / edge, at / edge)[at % edge * (edge + 1)];
    }
    return sum;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "size", &size, NULL, "rows and columns of the matrix" },
        { "block", &edge, NULL, "rows and columns of a block" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "LU factorization of a dense matrix", options);
    if (edge < 1 || size < edge || size % edge != 0) {
        app_fail("the matrix must consist of whole blocks");
    }
    blocks = size / edge;
    double *alone = app_memory((size_t)(size * size), sizeof(double));
    if (app_sequential) {
        double took = solve_alone(alone);
        app_report("lu", 1, took, "trace=%.9g", trace(alone));
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        app_report("lu", Tmk_nprocs, took, "trace=%.9g", trace(shared));
        if (app_check) {
            solve_alone(alone);
            if (memcmp(alone, shared, (size_t)(size * size) * sizeof(double)) != 0) {
                app_fail("lu: alone the triangles are others");
            }
        }
    }
    Tmk_exit(0);
}
