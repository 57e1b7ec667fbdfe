/* FFT in six steps: the Fourier transform of n = m * m complex numbers, as the
 * rows of an m by m matrix.
 *
 * Transpose, transform each row, multiply by the roots of order n, transpose,
 * transform each row, transpose (Bailey 1990). A process has a band of rows; in the
 * transpositions it reads a square from every other band, in tiles that stay in the
 * cache, and begins with the band after its own. Barriers only. */
#include <math.h>

#include "app.h"
#include "par.h"

/* Rows and columns of a tile of the transposition. */
#define TILE 16

#define TWO_PI 6.283185307179586

typedef struct {
    double real, imaginary;
} number;

static long logarithm = 22;

/* n, and m with n = m * m. */
static long count, edge;

/* The numbers, and as much again to transpose to. */
static number *numbers, *turned;

/* Roots of one: of order n to the powers 0..m, and of order m. */
static number *fine, *coarse;

static number times(number one, number other)
{
    return (number){ one.real * other.real - one.imaginary * other.imaginary,
                     one.real * other.imaginary + one.imaginary * other.real };
}

/* The root of order n to this power, below n. */
static number root(long power)
{
    return times(coarse[power / edge], fine[power % edge]);
}

static void fill_roots(void)
{
    fine = app_memory((size_t)edge, sizeof(number));
    coarse = app_memory((size_t)edge, sizeof(number));
    for (long power = 0; power < edge; power++) {
        double angle = -TWO_PI * (double)power;
        fine[power] = (number){ cos(angle / (double)count), sin(angle / (double)count) };
        coarse[power] = (number){ cos(angle / (double)edge), sin(angle / (double)edge) };
    }
}

static number next_random(app_random *random)
{
    double real = app_random_unit(random) - 0.5;
    return (number){ real, app_random_unit(random) - 0.5 };
}

static void fill(void)
{
    app_random random = { 1 };
    numbers = G_MALLOC((size_t)count * sizeof(number));
    turned = G_MALLOC((size_t)count * sizeof(number));
    for (long at = 0; at < count; at++) {
        numbers[at] = next_random(&random);
    }
}

/* Transforms a row in its place. */
static void transform(number *row)
{
    for (long at = 1, mirror = 0; at < edge; at++) {
        long bit = edge / 2;
        for (; mirror & bit; bit /= 2) {
            mirror ^= bit;
        }
        mirror |= bit;
        if (at < mirror) {
            number kept = row[at];
            row[at] = row[mirror];
            row[mirror] = kept;
        }
    }
    for (long half = 1; half < edge; half *= 2) {
        long stride = edge / 2 / half;
        for (long begin = 0; begin < edge; begin += 2 * half) {
            for (long at = 0; at < half; at++) {
                number *one = &row[begin + at], *other = one + half;
                number moved = times(*other, coarse[at * stride]);
                *other = (number){ one->real - moved.real, one->imaginary - moved.imaginary };
                one->real += moved.real;
                one->imaginary += moved.imaginary;
            }
        }
    }
}

/* Columns from..to of a matrix become that part of rows begin..end of another. */
static void transpose_square(const number *from_matrix, number *to, long begin, long end, long from,
                             long until)
{
    for (long row = begin; row < end; row += TILE) {
        for (long column = from; column < until; column += TILE) {
            long last_row = row + TILE < end ? row + TILE : end;
            long last_column = column + TILE < until ? column + TILE : until;
            for (long i = row; i < last_row; i++) {
                for (long j = column; j < last_column; j++) {
                    to[i * edge + j] = from_matrix[j * edge + i];
                }
            }
        }
    }
}

/* Rows of this process, from the bands of all, beginning with the next one's. */
static void transpose(const number *from, number *to, int process)
{
    long begin, end;
    app_part(edge, process, par_processes, &begin, &end);
    for (int step = 1; step <= par_processes; step++) {
        long first, last;
        app_part(edge, (process + step) % par_processes, par_processes, &first, &last);
        transpose_square(from, to, begin, end, first, last);
    }
}

static void work(int process)
{
    long begin, end;
    app_part(edge, process, par_processes, &begin, &end);
    transpose(numbers, turned, process);
    BARRIER(1);
    for (long row = begin; row < end; row++) {
        transform(turned + row * edge);
        for (long column = 0; column < edge; column++) {
            number *here = &turned[row * edge + column];
            *here = times(*here, root(row * column));
        }
    }
    BARRIER(2);
    transpose(turned, numbers, process);
    BARRIER(3);
    for (long row = begin; row < end; row++) {
        transform(numbers + row * edge);
    }
    BARRIER(4);
    transpose(numbers, turned, process);
}

/* One number of the result, by its definition. */
static number directly(long which)
{
    app_random random = { 1 };
    number sum = { 0, 0 };
    for (long at = 0; at < count; at++) {
        long power = (long)((size_t)at * (size_t)which % (size_t)count);
        number part = times(next_random(&random), root(power));
        sum.real += part.real;
        sum.imaginary += part.imaginary;
    }
    return sum;
}

/* Some numbers by their definition, and all by Parseval's theorem. */
static void check(void)
{
    app_random random = { 1 };
    double before = 0, after = 0;
    for (long at = 0; at < count; at++) {
        number was = next_random(&random);
        before += was.real * was.real + was.imaginary * was.imaginary;
        after += turned[at].real * turned[at].real + turned[at].imaginary * turned[at].imaginary;
    }
    if (!(fabs(after / (double)count / before - 1) < 1e-10)) {
        app_fail("fft: the transform has another energy");
    }
    for (long which = 0; which < count; which += count / 4 + 1) {
        number found = turned[which], right = directly(which);
        double away = hypot(found.real - right.real, found.imaginary - right.imaginary);
        if (!(away < 1e-9 * sqrt((double)count))) {
            app_fail("fft: number %ld is %g away from its definition", which, away);
        }
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "log", &logarithm, NULL, "logarithm of how many numbers, to the base 2; even" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Fourier transform in six steps", options);
    if (logarithm < 2 || logarithm > 32 || logarithm % 2 != 0) {
        app_fail("the logarithm is even, from 2 to 32");
    }
    edge = 1L << logarithm / 2;
    count = edge * edge;
    fill_roots();
    MAIN_INITENV(argc, argv);
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(numbers);
    DISTRIBUTE(turned);
    double took = CREATE(work);
    if (par_first()) {
        number sum = { 0, 0 };
        for (long at = 0; at < count; at += 17) {
            sum.real += turned[at].real;
            sum.imaginary += turned[at].imaginary;
        }
        app_report("fft", par_processes, took, "sum=%.17g,%.17g", sum.real, sum.imaginary);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
