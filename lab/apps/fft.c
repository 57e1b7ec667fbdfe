/* FFT: the Fourier transform of a cube of complex numbers, again and again.
 *
 * Each process has some planes, transforms their rows and columns, and after a
 * barrier gathers its part of the third direction from all planes: the
 * transposition, in which every process reads from every other. The result
 * is the cube turned round, and the input of the next iteration. Barriers only. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"

typedef double _Complex number;

static long edge = 64, iterations = 4;

/* Two cubes, one to read and one to write. */
static number *shared[2];

/* Powers of the edge-th root of one, and where each number goes first. */
static number *roots;
static long *shuffled;

static void prepare(void)
{
    roots = app_memory((size_t)edge, sizeof(number));
    shuffled = app_memory((size_t)edge, sizeof(long));
    for (long at = 0; at < edge; at++) {
        double angle = -6.283185307179586 * (double)at / (double)edge;
        roots[at] = cos(angle) + sin(angle) * I;
        long reversed = 0;
        for (long bit = 1, mirror = edge / 2; bit < edge; bit *= 2, mirror /= 2) {
            reversed |= at & bit ? mirror : 0;
        }
        shuffled[at] = reversed;
    }
}

static void fill(number *cube)
{
    app_random random = { 1 };
    for (long at = 0; at < edge * edge * edge; at++) {
        double real = app_random_unit(&random) - 0.5;
        cube[at] = real + (app_random_unit(&random) - 0.5) * I;
    }
}

/* Transforms a line in its place. */
static void transform(number *line)
{
    for (long at = 0; at < edge; at++) {
        long other = shuffled[at];
        if (at < other) {
            number kept = line[at];
            line[at] = line[other];
            line[other] = kept;
        }
    }
    for (long half = 1; half < edge; half *= 2) {
        for (long begin = 0; begin < edge; begin += 2 * half) {
            for (long at = 0; at < half; at++) {
                number one = line[begin + at];
                number other = line[begin + at + half] * roots[at * (edge / 2 / half)];
                line[begin + at] = one + other;
                line[begin + at + half] = one - other;
            }
        }
    }
}

/* Rows and columns of planes begin..end. */
static void transform_planes(number *cube, number *line, long begin, long end)
{
    for (long plane = begin; plane < end; plane++) {
        number *here = cube + plane * edge * edge;
        for (long row = 0; row < edge; row++) {
            transform(here + row * edge);
        }
        for (long column = 0; column < edge; column++) {
            for (long row = 0; row < edge; row++) {
                line[row] = here[row * edge + column];
            }
            transform(line);
            for (long row = 0; row < edge; row++) {
                here[row * edge + column] = line[row];
            }
        }
    }
}

/* Rows begin..end of all planes become planes of the other cube, whose rows go
 * through the planes of this one. Keeps the numbers as large as they are. */
static void transform_across(const number *cube, number *turned, number *line, long begin, long end)
{
    double scale = 1 / sqrt((double)edge * (double)edge * (double)edge);
    for (long row = begin; row < end; row++) {
        for (long column = 0; column < edge; column++) {
            for (long plane = 0; plane < edge; plane++) {
                line[plane] = cube[(plane * edge + row) * edge + column];
            }
            transform(line);
            for (long plane = 0; plane < edge; plane++) {
                turned[(row * edge + column) * edge + plane] = line[plane] * scale;
            }
        }
    }
}

static number checksum(const number *cube)
{
    number sum = 0;
    for (long at = 0; at < edge * edge * edge; at += 17) {
        sum += cube[at];
    }
    return sum;
}

static double solve_alone(number **cubes)
{
    number *line = app_memory((size_t)edge, sizeof(number));
    fill(cubes[0]);
    double start = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        number *cube = cubes[turn % 2], *turned = cubes[(turn + 1) % 2];
        transform_planes(cube, line, 0, edge);
        transform_across(cube, turned, line, 0, edge);
    }
    double took = app_now() - start;
    free(line);
    return took;
}

static double solve_together(size_t size)
{
    if (Tmk_proc_id == 0) {
        for (int which = 0; which < 2; which++) {
            shared[which] = Tmk_malloc(size);
            if (shared[which] == NULL) {
                app_fail("no shared memory");
            }
        }
        fill(shared[0]);
        Tmk_distribute(shared, sizeof shared);
    }
    Tmk_barrier(0);
    number *line = app_memory((size_t)edge, sizeof(number));
    long begin, end;
    app_part(edge, Tmk_proc_id, Tmk_nprocs, &begin, &end);
    double start = app_now();
    for (long turn = 0; turn < iterations; turn++) {
        number *cube = shared[turn % 2], *turned = shared[(turn + 1) % 2];
        transform_planes(cube, line, begin, end);
        Tmk_barrier(1);
        transform_across(cube, turned, line, begin, end);
        Tmk_barrier(2);
    }
    double took = app_now() - start;
    free(line);
    return took;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "edge", &edge, NULL, "numbers along each edge of the cube, a power of two" },
        { "iterations", &iterations, NULL, "how often it is transformed" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Fourier transform in three dimensions", options);
    if (edge < 2 || (edge & (edge - 1)) != 0) {
        app_fail("the edge is a power of two");
    }
    prepare();
    size_t size = (size_t)(edge * edge * edge) * sizeof(number);
    number *alone[2] = { app_memory(1, size), app_memory(1, size) };
    if (app_sequential) {
        double took = solve_alone(alone);
        number sum = checksum(alone[iterations % 2]);
        app_report("fft", 1, took, "sum=%.9g%+.9gi", creal(sum), cimag(sum));
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together(size);
    if (Tmk_proc_id == 0) {
        number sum = checksum(shared[iterations % 2]);
        app_report("fft", Tmk_nprocs, took, "sum=%.9g%+.9gi", creal(sum), cimag(sum));
        if (app_check) {
            solve_alone(alone);
            if (memcmp(alone[iterations % 2], shared[iterations % 2], size) != 0) {
                app_fail("fft: alone the cube is another one");
            }
        }
    }
    Tmk_exit(0);
}
