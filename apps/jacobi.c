/* Jacobi: a plate whose rim has a fixed temperature; every point inside becomes
 * the mean of its four neighbours, again and again (T22: a form of successive
 * over-relaxation, 2000 x 1000).
 *
 * Each process has a band of rows. A row's new points go into private memory and
 * from there into the grid, as soon as the row below it does not need the old ones
 * any more; so what is private stays in the nearest caches. Only the rows between
 * two bands interest two processes: these are copied when all have computed. Two
 * barriers an iteration, no locks.
 */
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

/* Rows begin..end. So many at each end are copied later than the others, since they
 * lie on pages of which somebody else reads something. */
typedef struct {
    long begin, end, edge;
    float *scratch;
} band;

static band band_of(long begin, long end, long edge)
{
    /* Two rows are enough for those between the edges. */
    float *scratch = app_memory((size_t)((2 * edge + 2) * columns), sizeof(float));
    return (band){ begin, end, edge, scratch };
}

static int waits(const band *band, long row)
{
    return row < band->begin + band->edge || row >= band->end - band->edge;
}

/* Where the new points of a row are. */
static float *next_of(const band *band, long row)
{
    long place;
    if (row < band->begin + band->edge) {
        place = row - band->begin;
    } else if (row >= band->end - band->edge) {
        place = band->edge + row - (band->end - band->edge);
    } else {
        place = 2 * band->edge + row % 2;
    }
    return band->scratch + place * columns;
}

static void relax(const float *plate, const band *band, long row)
{
    const float *above = plate + (row - 1) * columns;
    const float *here = plate + row * columns;
    const float *below = plate + (row + 1) * columns;
    float *next = next_of(band, row);
    for (long column = 1; column < columns - 1; column++) {
        next[column] = 0.25f * (above[column] + below[column] + here[column - 1] +
                                here[column + 1]);
    }
}

static void copy(float *plate, const band *band, long row)
{
    memcpy(plate + row * columns + 1, next_of(band, row) + 1,
           (size_t)(columns - 2) * sizeof(float));
}

/* One iteration, but for the copying of the edges. */
static void sweep(float *plate, const band *band)
{
    for (long row = band->begin; row < band->end; row++) {
        relax(plate, band, row);
        if (row > band->begin && !waits(band, row - 1)) {
            copy(plate, band, row - 1);
        }
    }
    if (!waits(band, band->end - 1)) {
        copy(plate, band, band->end - 1);
    }
}

static void copy_edges(float *plate, const band *band)
{
    long inner = band->begin + band->edge;
    for (long row = band->begin; row < inner; row++) {
        copy(plate, band, row);
    }
    long last = band->end - band->edge;
    for (long row = last > inner ? last : inner; row < band->end; row++) {
        copy(plate, band, row);
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
    band all = band_of(1, rows - 1, 0);
    fill(plate, 0, rows);
    double begun = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        sweep(plate, &all);
    }
    double took = app_now() - begun;
    free(all.scratch);
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
    band own = band_of(begin, end, edge_of(begin, end));
    double begun = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        sweep(grid, &own);
        Tmk_barrier(1);
        copy_edges(grid, &own);
        Tmk_barrier(2);
    }
    double took = app_now() - begun;
    free(own.scratch);
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
