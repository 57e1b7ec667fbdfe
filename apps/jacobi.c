/* Jacobi: a plate whose rim has a fixed temperature; every point inside becomes
 * the mean of its four neighbours, again and again (T22: a form of successive
 * over-relaxation, 2000 x 1000).
 *
 * Each process has a band of rows. It computes into private memory, waits for the
 * others, and copies into the shared grid; only the rows between two bands
 * interest two processes, and all others are copied before it waits. Two barriers an
 * iteration, no locks. */
#include <string.h>

#include <Tmk.h>

#include "app.h"

static long rows = 2000, columns = 1000, iterations = 100;

/* The grid, in shared memory. */
static float *grid;

/* Warm rim, and inside a pattern in which every point changes: rows begin..end,
 * which do not depend on others, so that everybody can fill its own. */
static void fill(float *plate, long begin, long end)
{
    for (long row = begin; row < end; row++) {
        app_random random = { (uint64_t)row + 1 };
        for (long column = 0; column < columns; column++) {
            int rim = row == 0 || column == 0 || row == rows - 1 || column == columns - 1;
            double point = app_random_unit(&random);
            plate[row * columns + column] = rim ? 1.0f : (float)point;
        }
    }
}

/* One iteration for rows begin..end, from the plate into scratch memory. */
static void relax(const float *plate, float *scratch, long begin, long end)
{
    for (long row = begin; row < end; row++) {
        const float *above = plate + (row - 1) * columns;
        const float *here = plate + row * columns;
        const float *below = plate + (row + 1) * columns;
        float *next = scratch + (row - begin) * columns;
        for (long column = 1; column < columns - 1; column++) {
            next[column] = 0.25f * (above[column] + below[column] + here[column - 1] +
                                    here[column + 1]);
        }
    }
}

/* Copies rows from..upto, of those that begin at `begin` in scratch memory. */
static void copy(float *plate, const float *scratch, long begin, long from, long upto)
{
    for (long row = from; row < upto; row++) {
        memcpy(plate + row * columns + 1, scratch + (row - begin) * columns + 1,
               (size_t)(columns - 2) * sizeof(float));
    }
}

/* So many rows at each end of a band lie on pages of which others read something. */
static long edge_of(long begin, long end)
{
    long edge = 2 + TMK_PAGE_SIZE / (columns * (long)sizeof(float));
    return 2 * edge < end - begin ? edge : (end - begin + 1) / 2;
}

static double sum(const float *plate)
{
    double all = 0;
    for (long point = 0; point < rows * columns; point++) {
        all += plate[point];
    }
    return all;
}

static double solve_alone(float *plate)
{
    float *scratch = app_memory((size_t)(rows * columns), sizeof(float));
    fill(plate, 0, rows);
    double begun = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        relax(plate, scratch, 1, rows - 1);
        copy(plate, scratch, 1, 1, rows - 1);
    }
    double took = app_now() - begun;
    free(scratch);
    return took;
}

/* How the rows next to a band are at first belongs to filling the grid. */
static void see_neighbours(long begin, long end)
{
    volatile float seen = 0;
    for (long column = 0; column < columns; column++) {
        seen += grid[(begin - 1) * columns + column] + grid[end * columns + column];
    }
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        grid = Tmk_malloc((size_t)(rows * columns) * sizeof(float));
        if (grid == NULL) {
            app_fail("no shared memory");
        }
        Tmk_distribute(&grid, sizeof grid);
    }
    Tmk_barrier(0);

    long begin, end;
    app_part(rows - 2, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    begin++;
    end++;
    /* The first and the last process have the rim, too. */
    fill(grid, begin - (Tmk_proc_id == 0), end + (Tmk_proc_id == Tmk_nprocs - 1));
    Tmk_barrier(3);
    see_neighbours(begin, end);
    Tmk_barrier(3);
    float *scratch = app_memory((size_t)((end - begin) * columns) + 1, sizeof(float));
    long edge = edge_of(begin, end);
    double begun = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        relax(grid, scratch, begin, end);
        copy(grid, scratch, begin, begin + edge, end - edge);
        Tmk_barrier(1);
        copy(grid, scratch, begin, begin, begin + edge);
        copy(grid, scratch, begin, end - edge, end);
        Tmk_barrier(2);
    }
    double took = app_now() - begun;
    free(scratch);
    return took;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "rows", &rows, NULL, "rows of the grid" },
        { "columns", &columns, NULL, "columns of the grid" },
        { "iterations", &iterations, NULL, "how often to compute it anew" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "heat in a plate, by Jacobi's method", options);
    if (rows < 3 || columns < 3) {
        app_fail("a grid has at least 3 rows and columns");
    }
    size_t size = (size_t)(rows * columns);
    float *alone = app_sequential ? app_memory(size, sizeof(float)) : NULL;
    if (app_sequential) {
        double took = solve_alone(alone);
        app_report("jacobi", 1, took, "sum=%.6f", sum(alone));
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        app_report("jacobi", Tmk_nprocs, took, "sum=%.6f", sum(grid));
        if (app_check) {
            alone = app_memory(size, sizeof(float));
            solve_alone(alone);
            if (memcmp(alone, grid, size * sizeof(float)) != 0) {
                app_fail("jacobi: the grids differ");
            }
        }
    }
    Tmk_exit(0);
}
