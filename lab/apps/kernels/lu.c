/* LU: a dense matrix is factored into a lower and an upper triangle, block by
 * block, without pivoting.
 *
 * Blocks are dealt to the processes like a chess board. With --contiguous=1 the
 * blocks of a process lie together, each on memory of its own; with 0 the matrix
 * is one array of rows, and a row of a block shares its page with other processes'
 * blocks. For each block of the diagonal its owner factors it, then the owners of
 * its row and column divide by it, then all update the rest. Barriers only. */
#include <math.h>

#include "app.h"
#include "par.h"

static long size = 2048, edge = 32, contiguous = 1;

/* Blocks a side. */
static long blocks;

/* Processes a side of the board: down and across. */
static int down = 1, across = 1;

static double *matrix;

/* Where each block begins, in doubles; the same in all processes. */
static long *places;

/* Doubles from a row of a block to the next. */
static long stride;

static int owner(long row, long column)
{
    return (int)(row % down) * across + (int)(column % across);
}

static double *block_of(long row, long column)
{
    return matrix + places[row * blocks + column];
}

static double element_at_first(long row, long column)
{
    app_random random = { (uint64_t)(row * size + column) };
    return app_random_unit(&random) + (row == column ? (double)size : 0);
}

static double *element(long row, long column)
{
    return block_of(row / edge, column / edge) + row % edge * stride + column % edge;
}

static void place_blocks(void)
{
    for (down = (int)sqrt((double)par_processes); par_processes % down != 0; down--) {
    }
    across = par_processes / down;
    blocks = size / edge;
    stride = contiguous ? edge : size;
    places = app_memory((size_t)(blocks * blocks), sizeof *places);
    long next = 0;
    for (int process = 0; process < par_processes; process++) {
        for (long at = 0; at < blocks * blocks; at++) {
            long row = at / blocks, column = at % blocks;
            if (owner(row, column) != process) {
                continue;
            }
            places[at] = contiguous ? next : row * edge * size + column * edge;
            next += edge * edge;
        }
    }
}

static void fill(void)
{
    matrix = G_MALLOC((size_t)(size * size) * sizeof *matrix);
    for (long row = 0; row < size; row++) {
        for (long column = 0; column < size; column++) {
            *element(row, column) = element_at_first(row, column);
        }
    }
}

/* row -= ratio * other, so many numbers. */
static void subtract(double *restrict row, const double *restrict other, double ratio, long count)
{
    for (long at = 0; at < count; at++) {
        row[at] -= ratio * other[at];
    }
}

/* Factors a block of the diagonal in its place. */
static void factor(double *block)
{
    for (long k = 0; k < edge; k++) {
        const double *pivot = block + k * stride;
        for (long row = k + 1; row < edge; row++) {
            double *here = block + row * stride;
            here[k] /= pivot[k];
            subtract(here + k + 1, pivot + k + 1, here[k], edge - k - 1);
        }
    }
}

/* A block right of the diagonal: divides by the diagonal's lower triangle. */
static void divide_row(const double *diagonal, double *block)
{
    for (long row = 1; row < edge; row++) {
        for (long k = 0; k < row; k++) {
            subtract(block + row * stride, block + k * stride, diagonal[row * stride + k], edge);
        }
    }
}

/* A block below the diagonal: divides by the diagonal's upper triangle. */
static void divide_column(const double *diagonal, double *block)
{
    for (long row = 0; row < edge; row++) {
        double *here = block + row * stride;
        for (long k = 0; k < edge; k++) {
            const double *pivot = diagonal + k * stride;
            here[k] /= pivot[k];
            subtract(here + k + 1, pivot + k + 1, here[k], edge - k - 1);
        }
    }
}

static void update(const double *left, const double *above, double *block)
{
    for (long row = 0; row < edge; row++) {
        for (long k = 0; k < edge; k++) {
            subtract(block + row * stride, above + k * stride, left[row * stride + k], edge);
        }
    }
}

static void divide_by_diagonal(long k, int process)
{
    const double *diagonal = block_of(k, k);
    for (long other = k + 1; other < blocks; other++) {
        if (owner(k, other) == process) {
            divide_row(diagonal, block_of(k, other));
        }
        if (owner(other, k) == process) {
            divide_column(diagonal, block_of(other, k));
        }
    }
}

static void work(int process)
{
    for (long k = 0; k < blocks; k++) {
        if (owner(k, k) == process) {
            factor(block_of(k, k));
        }
        BARRIER(1);
        divide_by_diagonal(k, process);
        BARRIER(2);
        for (long row = k + 1; row < blocks; row++) {
            for (long column = k + 1; column < blocks; column++) {
                if (owner(row, column) == process) {
                    update(block_of(row, k), block_of(k, column), block_of(row, column));
                }
            }
        }
    }
}

/* The product of the triangles and a vector is that of the matrix and the vector. */
static void check(void)
{
    double *vector = app_memory((size_t)size, sizeof *vector);
    double *upper = app_memory((size_t)size, sizeof *upper);
    app_random random = { 2 };
    for (long at = 0; at < size; at++) {
        vector[at] = app_random_unit(&random) - 0.5;
    }
    for (long row = 0; row < size; row++) {
        for (long column = row; column < size; column++) {
            upper[row] += *element(row, column) * vector[column];
        }
    }
    double away = 0, large = 0;
    for (long row = 0; row < size; row++) {
        double product = upper[row], right = 0;
        for (long column = 0; column < size; column++) {
            product += column < row ? *element(row, column) * upper[column] : 0;
            right += element_at_first(row, column) * vector[column];
        }
        away = fmax(away, fabs(product - right));
        large = fmax(large, fabs(right));
    }
    if (!(away < 1e-12 * large * sqrt((double)size))) {
        app_fail("lu: the triangles' product is %g of %g away from the matrix", away, large);
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "size", &size, NULL, "rows and columns of the matrix" },
        { "block", &edge, NULL, "rows and columns of a block" },
        { "contiguous", &contiguous, NULL, "1: a block lies together; 0: a row of the matrix" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "LU factorization of a dense matrix", options);
    if (edge < 1 || size < edge || size % edge != 0) {
        app_fail("the matrix must consist of whole blocks");
    }
    MAIN_INITENV(argc, argv);
    place_blocks();
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(matrix);
    double took = CREATE(work);
    if (par_first()) {
        double sum = 0;
        for (long at = 0; at < size; at++) {
            sum += *element(at, at) + *element(at, size - 1 - at);
        }
        app_report("lu", par_processes, took, "sum=%.17g", sum);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
