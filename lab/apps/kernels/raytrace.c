/* Ray tracer: a picture of spheres on spheres on a floor, with mirrors and shadows.
 *
 * The picture is cut into tiles. Each process has a queue of tiles, guarded by a
 * lock, and when it is empty takes tiles from the end of the others'. The spheres are
 * shared, too, in a tree of boxes: everybody reads them, nobody changes them. Locks
 * only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "par.h"

/* Pixels a side of a tile, which fills a page. */
#define TILE 32

/* Small spheres on a sphere. */
#define CHILDREN 9

/* The most spheres in a leaf of the tree. */
#define LEAF 4

/* Mirrors seen in mirrors. */
#define MIRRORS 5

static long side = 1024, generations = 4, samples = 2;

typedef struct {
    double of[3];
} vector;

typedef struct {
    vector centre;
    double radius;
} sphere;

/* A box: of spheres from..from+count, or with two boxes in it if count is 0. */
typedef struct {
    vector low, high;
    int from, count, left, right;
} box;

/* Tiles next..end of a process, on a page of its own. */
typedef struct {
    long next, end;
    char rest[4096 - 2 * sizeof(long)];
} queue;

typedef struct {
    uint32_t pixel[TILE * TILE];
} tile;

static sphere *spheres;
static box *boxes;
static queue *queues;
static tile *picture;
static int sphere_count, box_count;

static vector add(vector one, vector other, double factor)
{
    for (int axis = 0; axis < 3; axis++) {
        one.of[axis] += factor * other.of[axis];
    }
    return one;
}

static double dot(vector one, vector other)
{
    return one.of[0] * other.of[0] + one.of[1] * other.of[1] + one.of[2] * other.of[2];
}

static vector unit(vector of)
{
    double scale = 1 / sqrt(dot(of, of));
    return (vector){ { of.of[0] * scale, of.of[1] * scale, of.of[2] * scale } };
}

/* A sphere and, with smaller ones around it, its children's children. */
static void grow(vector centre, double radius, long left)
{
    spheres[sphere_count++] = (sphere){ centre, radius };
    for (int child = 0; child < CHILDREN && left > 0; child++) {
        double height = 1 - 2 * (child + 0.5) / CHILDREN, turn = 2.399963 * child + (double)left;
        double flat = sqrt(1 - height * height);
        vector away = { { flat * cos(turn), height, flat * sin(turn) } };
        grow(add(centre, away, radius * 4 / 3), radius / 3, left - 1);
    }
}

static int compare_axis;

static int compare(const void *one, const void *other)
{
    double difference = ((const sphere *)one)->centre.of[compare_axis] -
                        ((const sphere *)other)->centre.of[compare_axis];
    return (difference > 0) - (difference < 0);
}

/* The box of spheres from..from+count, and those in it. */
static int enclose(int from, int count)
{
    int number = box_count++;
    box *here = &boxes[number];
    *here = (box){ .low = { { 1e9, 1e9, 1e9 } }, .high = { { -1e9, -1e9, -1e9 } } };
    for (int which = from; which < from + count; which++) {
        for (int axis = 0; axis < 3; axis++) {
            double centre = spheres[which].centre.of[axis], radius = spheres[which].radius;
            here->low.of[axis] = fmin(here->low.of[axis], centre - radius);
            here->high.of[axis] = fmax(here->high.of[axis], centre + radius);
        }
    }
    here->from = from;
    if (count <= LEAF) {
        here->count = count;
        return number;
    }
    vector size = add(here->high, here->low, -1);
    compare_axis = size.of[1] > size.of[0];
    compare_axis = size.of[2] > size.of[compare_axis] ? 2 : compare_axis;
    qsort(spheres + from, (size_t)count, sizeof *spheres, compare);
    int left = enclose(from, count / 2), right = enclose(from + count / 2, count - count / 2);
    boxes[number].left = left;
    boxes[number].right = right;
    return number;
}

static long tiles(void)
{
    return (side / TILE) * (side / TILE);
}

static void fill(void)
{
    long most = 0;
    for (long left = generations, each = 1; left >= 0; left--, each *= CHILDREN) {
        most += each;
    }
    spheres = G_MALLOC((size_t)most * sizeof *spheres);
    boxes = G_MALLOC((size_t)(2 * most) * sizeof *boxes);
    queues = G_MALLOC((size_t)par_processes * sizeof *queues);
    picture = G_MALLOC((size_t)tiles() * sizeof *picture);
    grow((vector){ { 0, 0, 0 } }, 1, generations);
    enclose(0, sphere_count);
    for (int process = 0; process < par_processes; process++) {
        app_part(tiles(), process, par_processes, &queues[process].next, &queues[process].end);
    }
}

/* How far along a ray a box begins; more than `most` if the ray passes it. */
static double reach(const box *of, vector from, vector inverse, double most)
{
    double first = 0, last = most;
    for (int axis = 0; axis < 3; axis++) {
        double low = (of->low.of[axis] - from.of[axis]) * inverse.of[axis];
        double high = (of->high.of[axis] - from.of[axis]) * inverse.of[axis];
        double near = low < high ? low : high, far = low < high ? high : low;
        first = near > first ? near : first;
        last = far < last ? far : last;
    }
    return first <= last ? first : 2 * most + 1;
}

/* The first sphere that a ray meets before `*most`, which becomes how far it is; or -1. */
static int meet(vector from, vector way, double *most)
{
    int stack[64], height = 0, found = -1;
    vector inverse = { { 1 / way.of[0], 1 / way.of[1], 1 / way.of[2] } };
    stack[height++] = 0;
    while (height > 0) {
        const box *here = &boxes[stack[--height]];
        if (reach(here, from, inverse, *most) > *most) {
            continue;
        }
        if (here->count == 0) {
            stack[height++] = here->left;
            stack[height++] = here->right;
        }
        for (int which = here->from; which < here->from + here->count; which++) {
            vector away = add(from, spheres[which].centre, -1);
            double middle = -dot(away, way);
            double inside = middle * middle - dot(away, away) +
                            spheres[which].radius * spheres[which].radius;
            double far = inside > 0 ? middle - sqrt(inside) : 0;
            if (far > 1e-6 && far < *most) {
                *most = far;
                found = which;
            }
        }
    }
    return found;
}

/* What comes along a ray: red, green, blue. */
static vector trace(vector from, vector way, int mirrors)
{
    static const vector light = { { 0.48, 0.8, -0.36 } };
    static const double floor_height = -1.6;
    double far = 1e6;
    int which = meet(from, way, &far);
    double down = (floor_height - from.of[1]) / way.of[1];
    int on_floor = down > 1e-6 && down < far;
    if (which < 0 && !on_floor) {
        double high = 0.5 + 0.5 * way.of[1];
        return (vector){ { 0.3 + 0.2 * high, 0.4 + 0.3 * high, 0.6 + 0.4 * high } };
    }
    far = on_floor ? down : far;
    vector place = add(from, way, far), colour, upright = { { 0, 1, 0 } };
    if (on_floor) {
        long odd = (long)floor(place.of[0]) + (long)floor(place.of[2]);
        colour = odd & 1 ? (vector){ { 0.8, 0.8, 0.7 } } : (vector){ { 0.2, 0.3, 0.2 } };
    } else {
        upright = unit(add(place, spheres[which].centre, -1));
        colour = (vector){ { 0.7, 0.5, 0.3 } };
    }
    double dark = 1e6, bright = dot(upright, light);
    vector off = add(place, upright, 1e-6);
    bright = bright > 0 && meet(off, light, &dark) < 0 ? bright : 0;
    vector seen = add((vector){ { 0, 0, 0 } }, colour, 0.15 + 0.7 * bright);
    if (mirrors > 0) {
        vector back = add(way, upright, -2 * dot(way, upright));
        seen = add(seen, trace(off, back, mirrors - 1), on_floor ? 0.1 : 0.4);
    }
    return seen;
}

static uint32_t pixel(long x, long y)
{
    vector sum = { { 0, 0, 0 } }, eye = { { 1.5, 1.2, -4.5 } };
    for (long sample = 0; sample < samples * samples; sample++) {
        double inside_x = ((double)(sample % samples) + 0.5) / (double)samples;
        double inside_y = ((double)(sample / samples) + 0.5) / (double)samples;
        double right = 2 * ((double)x + inside_x) / (double)side - 1;
        double up = 1 - 2 * ((double)y + inside_y) / (double)side;
        vector way = { { 0.6 * right - 0.3, 0.6 * up - 0.25, 0.95 + 0.2 * right } };
        sum = add(sum, trace(eye, unit(way), MIRRORS), 1 / (double)(samples * samples));
    }
    uint32_t colour = 0;
    for (int axis = 0; axis < 3; axis++) {
        double part = sum.of[axis] < 1 ? sum.of[axis] : 1;
        colour = colour << 8 | (uint32_t)(255 * sqrt(part));
    }
    return colour;
}

/* A tile for this process: the first of its own, or the last of another's; -1 if
 * there is none left. Queues only become shorter. */
static long take(int process)
{
    for (int step = 0; step < par_processes; step++) {
        int other = (process + step) % par_processes;
        long taken = -1;
        LOCK((unsigned)other);
        if (queues[other].next < queues[other].end) {
            taken = step == 0 ? queues[other].next++ : --queues[other].end;
        }
        UNLOCK((unsigned)other);
        if (taken >= 0) {
            return taken;
        }
    }
    return -1;
}

static void draw(long number, uint32_t *pixels)
{
    long left = number % (side / TILE) * TILE, top = number / (side / TILE) * TILE;
    for (long at = 0; at < TILE * TILE; at++) {
        pixels[at] = pixel(left + at % TILE, top + at / TILE);
    }
}

static void work(int process)
{
    for (long number = take(process); number >= 0; number = take(process)) {
        draw(number, picture[number].pixel);
    }
}

/* Some tiles, drawn again. */
static void check(void)
{
    uint32_t again[TILE * TILE];
    for (long number = 0; number < tiles(); number += tiles() / 7 + 1) {
        draw(number, again);
        if (memcmp(again, picture[number].pixel, sizeof again) != 0) {
            app_fail("raytrace: tile %ld is another one", number);
        }
    }
    for (long number = 0; number < tiles(); number++) {
        if (picture[number].pixel[0] == 0) {
            app_fail("raytrace: tile %ld is not drawn", number);
        }
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "side", &side, NULL, "pixels a side" },
        { "generations", &generations, NULL, "spheres on spheres on spheres" },
        { "samples", &samples, NULL, "rays through a pixel, a side" },
        PAR_OPTION,
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "ray tracing of spheres, from queues of tiles", options);
    if (side < TILE || side > 32768 || side % TILE != 0 || generations > 6 || samples < 1) {
        app_fail("the side is a multiple of %d; there are 0 to 6 generations", TILE);
    }
    MAIN_INITENV(argc, argv);
    if (par_first()) {
        fill();
    }
    DISTRIBUTE(spheres);
    DISTRIBUTE(boxes);
    DISTRIBUTE(queues);
    DISTRIBUTE(picture);
    double took = CREATE(work);
    if (par_first()) {
        uint64_t sum = 0;
        for (long number = 0; number < tiles(); number++) {
            for (long at = 0; at < TILE * TILE; at++) {
                sum = sum * 31 + picture[number].pixel[at];
            }
        }
        app_report("raytrace", par_processes, took, "sum=%llu", (unsigned long long)sum);
        if (app_check) {
            check();
        }
    }
    MAIN_END;
}
