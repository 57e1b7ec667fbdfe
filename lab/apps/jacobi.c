/* Jacobi: a plate whose rim has a fixed temperature; every point inside becomes
 * the mean of its four neighbours, again and again (T22: a form of successive
 * over-relaxation, 2000 x 1000).
 *
 * Each process has a band of rows. A row's new points go into private memory and
 * from there into the grid, as soon as the row below it does not need the old ones
 * any more; so what is private stays in the nearest caches.
 *
 * Neighbours need each other's outermost rows. Each process has a halo: a private copy of
 * the `halo` rows above its band, and of those below it. It computes them, too, one less
 * with each iteration, and so has all it needs for `halo` iterations: a round. Then it
 * publishes its outermost rows on borders and meets the others. Borders of a round are read
 * while those of the next are written, so one barrier a round is enough. No locks.
 * With `--halo 1` that is one in each iteration, as in the paper.
 */
#include <string.h>

#include <Tmk.h>

#include "app.h"

static long rows = 2000, columns = 1000, iterations = 100, halo = 8;

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

/* Rows begin..end. The first of them and the `halo` rows above it are in private memory, if
 * there is a neighbour above, and so are the last and those below: the page of the grid in
 * which two bands meet would go back and forth. */
typedef struct {
    long begin, end;
    float *above, *below;
    /* Where the new points of two rows go. */
    float *scratch;
} band;

static float *row_of(float *plate, const band *band, long row)
{
    if (row <= band->begin && band->above != NULL) {
        return band->above + (row - (band->begin - halo)) * columns;
    }
    if (row >= band->end - 1 && band->below != NULL) {
        return band->below + (row - (band->end - 1)) * columns;
    }
    return plate + row * columns;
}

static float *next_of(const band *band, long row)
{
    return band->scratch + row % 2 * columns;
}

static void relax(float *plate, const band *band, long row)
{
    const float *above = row_of(plate, band, row - 1);
    const float *here = row_of(plate, band, row);
    const float *below = row_of(plate, band, row + 1);
    float *next = next_of(band, row);
    float left = here[0], point = here[1];
    for (long column = 1; column < columns - 1; column++) {
        float right = here[column + 1];
        next[column] = 0.25f * (above[column] + below[column] + left + right);
        left = point;
        point = right;
    }
}

static void renew(float *plate, const band *band, long row)
{
    memcpy(row_of(plate, band, row) + 1, next_of(band, row) + 1,
           (size_t)(columns - 2) * sizeof(float));
}

/* One iteration, of the band and `extra` rows of each halo. */
static void sweep(float *plate, const band *band, long extra)
{
    long begin = band->begin - (band->above == NULL ? 0 : extra);
    long end = band->end + (band->below == NULL ? 0 : extra);
    relax(plate, band, begin);
    for (long row = begin + 1; row < end; row++) {
        relax(plate, band, row);
        renew(plate, band, row - 1);
    }
    renew(plate, band, end - 1);
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
    fill(plate, 0, rows);
    float *scratch = app_memory((size_t)(2 * columns), sizeof(float));
    band all = { .begin = 1, .end = rows - 1, .scratch = scratch };
    double begun = app_now();
    for (long iteration = 0; iteration < iterations; iteration++) {
        sweep(plate, &all, 0);
    }
    double took = app_now() - begun;
    free(scratch);
    return took;
}

/* In shared memory: what each process publishes of the first rows of its band and of the
 * last ones, in even rounds and in odd ones. Each has pages of its own. */
static float *borders;

enum { FIRST, LAST, SIDES };

static size_t border_size(void)
{
    size_t page = TMK_PAGE_SIZE / sizeof(float);
    return ((size_t)(halo * columns) + page - 1) / page * page;
}

static float *border_of(int process, int side, long round)
{
    return borders + (((size_t)process * SIDES + (size_t)side) * 2 + (size_t)(round % 2)) *
                         border_size();
}

static void copy_rows(float *to, const float *from, long count)
{
    memcpy(to, from, (size_t)(count * columns) * sizeof(float));
}

static void publish(const band *band, long round)
{
    float *first = border_of(Tmk_proc_id, FIRST, round);
    float *last = border_of(Tmk_proc_id, LAST, round);
    for (long row = 0; row < halo; row++) {
        if (band->above != NULL) {
            copy_rows(first + row * columns, row_of(grid, band, band->begin + row), 1);
        }
        if (band->below != NULL) {
            copy_rows(last + row * columns, row_of(grid, band, band->end - halo + row), 1);
        }
    }
}

static void see(const band *band, long round)
{
    if (band->above != NULL) {
        copy_rows(band->above, border_of(Tmk_proc_id - 1, LAST, round), halo);
    }
    if (band->below != NULL) {
        copy_rows(band->below + columns, border_of(Tmk_proc_id + 1, FIRST, round), halo);
    }
}

/* Takes the rows in which bands meet out of the grid, and shows them to the neighbours, who
 * see both borders once: how they are at first belongs to filling the grid. */
static void introduce(const band *band)
{
    if (band->above != NULL) {
        copy_rows(row_of(grid, band, band->begin), grid + band->begin * columns, 1);
    }
    if (band->below != NULL) {
        copy_rows(row_of(grid, band, band->end - 1), grid + (band->end - 1) * columns, 1);
    }
    publish(band, 0);
    publish(band, 1);
    Tmk_barrier(1);
    see(band, 1);
    see(band, 0);
    Tmk_barrier(1);
}

/* Puts them back. */
static void complete(const band *band)
{
    if (band->above != NULL) {
        copy_rows(grid + band->begin * columns, row_of(grid, band, band->begin), 1);
    }
    if (band->below != NULL) {
        copy_rows(grid + (band->end - 1) * columns, row_of(grid, band, band->end - 1), 1);
    }
}

/* All iterations; between rounds the borders are exchanged. */
static void solve(const band *band)
{
    for (long round = 0, done = 0; done < iterations; round++) {
        long extra = halo < iterations - done ? halo : iterations - done;
        done += extra;
        while (extra-- > 0) {
            sweep(grid, band, extra);
        }
        if (done < iterations) {
            publish(band, round + 1);
            Tmk_barrier(2);
            see(band, round + 1);
        }
    }
    complete(band);
}

static void *shared(size_t points)
{
    void *memory = Tmk_malloc(points * sizeof(float));
    if (memory == NULL) {
        app_fail("no shared memory");
    }
    return memory;
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        grid = shared((size_t)(rows * columns));
        borders = shared((size_t)Tmk_nprocs * SIDES * 2 * border_size());
        Tmk_distribute(&grid, sizeof grid);
        Tmk_distribute(&borders, sizeof borders);
    }
    Tmk_barrier(0);

    size_t side = (size_t)((halo + 1) * columns);
    float *own = app_memory(2 * side + (size_t)(2 * columns), sizeof(float));
    int last = Tmk_proc_id == Tmk_nprocs - 1;
    band band = { .scratch = own + 2 * side };
    app_part(rows - 2, Tmk_proc_id, Tmk_nprocs, &band.begin, &band.end);
    band.begin++;
    band.end++;
    band.above = Tmk_proc_id == 0 ? NULL : own;
    band.below = last ? NULL : own + side;
    /* The first and the last process have the rim, too. */
    fill(grid, band.begin - (Tmk_proc_id == 0), band.end + last);
    introduce(&band);
    double begun = app_now();
    solve(&band);
    Tmk_barrier(3);
    double took = app_now() - begun;
    free(own);
    return took;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "rows", &rows, NULL, "rows of the grid" },
        { "columns", &columns, NULL, "columns of the grid" },
        { "iterations", &iterations, NULL, "how often to compute it anew" },
        { "halo", &halo, NULL, "iterations between two barriers" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "heat in a plate, by Jacobi's method", options);
    if (rows < 3 || columns < 3) {
        app_fail("a grid has at least 3 rows and columns");
    }
    if (halo < 1) {
        app_fail("--halo is at least 1");
    }
    size_t size = (size_t)(rows * columns);
    float *alone = app_sequential ? app_memory(size, sizeof(float)) : NULL;
    if (app_sequential) {
        double took = solve_alone(alone);
        app_report("jacobi", 1, took, "sum=%.6f", sum(alone));
        return 0;
    }
    Tmk_startup(argc, argv);
    if ((rows - 2) / Tmk_nprocs < halo) {
        app_fail("jacobi: a process would have less than --halo=%ld rows: choose a smaller one",
                 halo);
    }
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
