/* Jacobi: a plate whose rim has a fixed temperature; every point inside becomes
 * the mean of its four neighbours, again and again (T22: a form of successive
 * over-relaxation, 2000 x 1000).
 *
 * Each process has a band of rows. A row's new points go into private memory and
 * from there into the grid, as soon as the row below it does not need the old ones
 * any more; so what is private stays in the nearest caches. Only a band's first and
 * last row interest somebody else. Until the end these are not in the grid but on
 * borders, of which each has two, used by turns: neighbours read the one of the
 * iteration before while the other is written. So one barrier an iteration is enough.
 * No locks.
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

/* A row on a border, as it is before even iterations and before odd ones. */
typedef struct {
    float *before[2];
} border;

/* Rows begin..end, and the two next to them. */
typedef struct {
    long begin, end;
    border above, first, last, below;
    /* Where the new points of two rows between the first and the last go. */
    float *scratch;
} band;

/* Where the points of a row are before an iteration. */
static const float *points_of(const float *plate, const band *band, long row, long turn)
{
    if (row <= band->begin) {
        return (row < band->begin ? &band->above : &band->first)->before[turn % 2];
    }
    if (row >= band->end - 1) {
        return (row >= band->end ? &band->below : &band->last)->before[turn % 2];
    }
    return plate + row * columns;
}

/* Where its new points go. */
static float *next_of(const band *band, long row, long turn)
{
    if (row == band->begin) {
        return band->first.before[(turn + 1) % 2];
    }
    return row == band->end - 1 ? band->last.before[(turn + 1) % 2]
                                : band->scratch + row % 2 * columns;
}

static void relax(const float *plate, const band *band, long row, long turn)
{
    const float *above = points_of(plate, band, row - 1, turn);
    const float *here = points_of(plate, band, row, turn);
    const float *below = points_of(plate, band, row + 1, turn);
    float *next = next_of(band, row, turn);
    for (long column = 1; column < columns - 1; column++) {
        next[column] = 0.25f * (above[column] + below[column] + here[column - 1] +
                                here[column + 1]);
    }
}

static void copy(float *plate, long row, const float *points)
{
    memcpy(plate + row * columns + 1, points + 1, (size_t)(columns - 2) * sizeof(float));
}

/* One iteration. */
static void sweep(float *plate, const band *band, long turn)
{
    for (long row = band->begin; row < band->end; row++) {
        relax(plate, band, row, turn);
        if (row - 1 > band->begin) {
            copy(plate, row - 1, next_of(band, row - 1, turn));
        }
    }
    if (band->begin == band->end - 1) {
        memcpy(band->last.before[(turn + 1) % 2], next_of(band, band->begin, turn),
               (size_t)columns * sizeof(float));
    }
}

/* A whole row of the grid, which stays as it is. */
static border rim(float *plate, long row)
{
    return (border){ { plate + row * columns, plate + row * columns } };
}

/* Two rows, to begin with as this one of the grid. */
static border border_at(float *memory, size_t apart, const float *plate, long row)
{
    border made = { { memory, memory + apart } };
    for (int turn = 0; turn < 2; turn++) {
        memcpy(made.before[turn], plate + row * columns, (size_t)columns * sizeof(float));
    }
    return made;
}

static double sum(const float *plate)
{
    double all = 0;
    for (long point = 0; point < rows * columns; point++) {
        all += plate[point];
    }
    return all;
}

/* A band that has the rim above and below it, and borders that nobody else sees. */
static band lonely(float *plate, long begin, long end)
{
    float *memory = app_memory((size_t)(6 * columns), sizeof(float));
    return (band){
        .begin = begin,
        .end = end,
        .above = rim(plate, 0),
        .first = border_at(memory + 2 * columns, (size_t)columns, plate, begin),
        .last = border_at(memory + 4 * columns, (size_t)columns, plate, end - 1),
        .below = rim(plate, rows - 1),
        .scratch = memory,
    };
}

/* All iterations, with `meet` after each; then the grid is whole. */
static void solve(float *plate, const band *band, void (*meet)(void))
{
    for (long turn = 0; turn < iterations; turn++) {
        sweep(plate, band, turn);
        meet();
    }
    copy(plate, band->begin, points_of(plate, band, band->begin, iterations));
    copy(plate, band->end - 1, points_of(plate, band, band->end - 1, iterations));
}

static void alone(void)
{
}

static double solve_alone(float *plate)
{
    fill(plate, 0, rows);
    band all = lonely(plate, 1, rows - 1);
    double begun = app_now();
    solve(plate, &all, alone);
    double took = app_now() - begun;
    free(all.scratch);
    return took;
}

/* In shared memory: the borders of each process, those of its first row and those of its
 * last one. Each has pages of its own, since others write the next one. */
static float *borders;

enum { FIRST, LAST, SIDES };

static size_t border_size(void)
{
    size_t page = TMK_PAGE_SIZE / sizeof(float);
    return ((size_t)columns + page - 1) / page * page;
}

static float *border_of(int process, int side)
{
    return borders + ((size_t)process * SIDES + (size_t)side) * 2 * border_size();
}

static border of_neighbour(int process, int side)
{
    float *memory = border_of(process, side);
    return (border){ { memory, memory + border_size() } };
}

static void see(border neighbour)
{
    volatile float seen = 0;
    for (long column = 0; column < columns; column++) {
        seen += neighbour.before[0][column] + neighbour.before[1][column];
    }
}

/* Exchanges borders with those next to this process. How they are at first belongs to
 * filling the grid. */
static void introduce(band *band)
{
    int me = Tmk_proc_id;
    int others_above = me > 0, others_below = me < Tmk_nprocs - 1;
    if (others_above) {
        band->first = border_at(border_of(me, FIRST), border_size(), grid, band->begin);
        band->above = of_neighbour(me - 1, LAST);
    }
    if (others_below) {
        band->last = border_at(border_of(me, LAST), border_size(), grid, band->end - 1);
        band->below = of_neighbour(me + 1, FIRST);
    }
    Tmk_barrier(1);
    see(band->above);
    see(band->below);
    Tmk_barrier(1);
}

static void *shared(size_t points)
{
    void *memory = Tmk_malloc(points * sizeof(float));
    if (memory == NULL) {
        app_fail("no shared memory");
    }
    return memory;
}

static void together(void)
{
    Tmk_barrier(2);
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

    long begin, end;
    app_part(rows - 2, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    begin++;
    end++;
    /* The first and the last process have the rim, too. */
    fill(grid, begin - (Tmk_proc_id == 0), end + (Tmk_proc_id == Tmk_nprocs - 1));
    band own = lonely(grid, begin, end);
    introduce(&own);
    double begun = app_now();
    solve(grid, &own, together);
    Tmk_barrier(3);
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
    if (rows - 2 < Tmk_nprocs) {
        app_fail("jacobi: fewer rows inside than processes");
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
