/* TSP: the shortest round trip through all cities, by branch and bound (T22: 19
 * cities).
 *
 * Beginnings of tours wait in a shared priority queue, the most promising first,
 * under a lock. Short beginnings are taken out, extended by every next city, and
 * put back; long ones are solved by whoever took them, without the others. The
 * length of the best tour is read without its lock, to give up early: an old
 * value costs work, but nothing is wrong. Locks only, but for start and end.
 *
 * Alone, the same search is made in the same order, without locks. That is the base
 * of speedups. `--depth-first=1` searches depth first alone, with no queue, which
 * tries more tours: a parallel program compared with that would seem to gain what
 * the order gains. */
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"

#define MOST_CITIES 32
#define MOST_BEGINNINGS 100000

static long cities = 19, alone_below = 17, depth_first;
static const char *file = "data/cities.txt";

/* Distances in metres, and the two shortest ways from each city: no tour pays less
 * than half of that for it. */
static int distance[MOST_CITIES][MOST_CITIES];
static int toll[MOST_CITIES];

/* A tour, or the beginning of one. */
typedef struct {
    int length;
    int bound;
    int count;
    unsigned char city[MOST_CITIES];
} tour;

/* A beginning in the queue, by the place where it is kept: the queue itself stays on
 * few pages, which travel with its lock. */
typedef struct {
    int bound;
    int kept;
} entry;

/* What processes share. */
typedef struct {
    tour best;
    /* Its length is read all the time, and on another page than what the lock of the
     * queue guards. */
    char apart[4096 - sizeof(tour)];
    int waiting;
    /* Processes that extend or solve something. */
    int busy;
    /* A heap of beginnings by their bounds; behind it, places that are free again. */
    int used;
    entry queue[MOST_BEGINNINGS];
    tour kept[MOST_BEGINNINGS];
} pool;

static pool *shared;

/* The queue's, and the best tour's. */
enum { QUEUE, BEST };

static void read_cities(void)
{
    double latitude[MOST_CITIES], longitude[MOST_CITIES];
    FILE *input = fopen(file, "r");
    if (input == NULL) {
        app_fail("cannot read %s", file);
    }
    for (long city = 0; city < cities; city++) {
        if (fscanf(input, "%lf %lf %*[^\n]", &latitude[city], &longitude[city]) != 2) {
            app_fail("%s: not a city on line %ld", file, city + 1);
        }
    }
    fclose(input);
    const double degree = 3.14159265358979323846 / 180, radius = 6371000;
    for (long from = 0; from < cities; from++) {
        for (long to = 0; to < cities; to++) {
            double north = sin((latitude[to] - latitude[from]) * degree / 2);
            double east = sin((longitude[to] - longitude[from]) * degree / 2);
            double chord = north * north + cos(latitude[from] * degree) *
                                               cos(latitude[to] * degree) * east * east;
            distance[from][to] = (int)(2 * radius * asin(sqrt(chord)));
        }
    }
}

static void find_tolls(void)
{
    for (long city = 0; city < cities; city++) {
        int first = INT32_MAX / 4, second = INT32_MAX / 4;
        for (long other = 0; other < cities; other++) {
            int way = distance[city][other];
            if (other != city && way < first) {
                second = first;
                first = way;
            } else if (other != city && way < second) {
                second = way;
            }
        }
        toll[city] = first + second;
    }
}

/* No tour that begins so is shorter. */
static int bound_of(const tour *begun)
{
    long twice = 0;
    unsigned seen = 0;
    for (int place = 0; place < begun->count; place++) {
        seen |= 1u << begun->city[place];
    }
    for (long city = 0; city < cities; city++) {
        if (!(seen >> city & 1)) {
            twice += toll[city];
        }
    }
    return begun->length + (int)(twice / 2);
}

/* A tour to begin with: always to the nearest city that is left. */
static tour nearest_first(void)
{
    tour whole;
    memset(&whole, 0, sizeof whole);
    whole.count = 1;
    unsigned open = ((1u << cities) - 1) & ~1u;
    while (open != 0) {
        int last = whole.city[whole.count - 1], nearest = __builtin_ctz(open);
        for (unsigned left = open; left != 0; left &= left - 1) {
            if (distance[last][__builtin_ctz(left)] < distance[last][nearest]) {
                nearest = __builtin_ctz(left);
            }
        }
        whole.length += distance[last][nearest];
        whole.city[whole.count++] = (unsigned char)nearest;
        open &= ~(1u << nearest);
    }
    whole.length += distance[whole.city[whole.count - 1]][0];
    return whole;
}

/* What solving needs of a search: the best so far, and how a better one is kept. */
typedef struct {
    const volatile int *best;
    void (*found)(const tour *);
} search;

/* All tours that begin so: depth first. `open` has the cities that are left,
 * `twice` the sum of their tolls. */
static void solve(const search *how, tour *begun, unsigned open, int twice)
{
    int last = begun->city[begun->count - 1];
    if (open == 0) {
        int home = distance[last][begun->city[0]];
        if (begun->length + home < *how->best) {
            tour whole = *begun;
            whole.length += home;
            how->found(&whole);
        }
        return;
    }
    if (begun->length + twice / 2 >= *how->best) {
        return;
    }
    int length = begun->length;
    for (unsigned left = open; left != 0; left &= left - 1) {
        int city = __builtin_ctz(left);
        begun->city[begun->count++] = (unsigned char)city;
        begun->length = length + distance[last][city];
        solve(how, begun, open & ~(1u << city), twice - toll[city]);
        begun->count--;
    }
    begun->length = length;
}

static void solve_from(const search *how, const tour *begun)
{
    tour mine = *begun;
    unsigned open = (1u << cities) - 1;
    int twice = 0;
    for (int place = 0; place < mine.count; place++) {
        open &= ~(1u << mine.city[place]);
    }
    for (unsigned left = open; left != 0; left &= left - 1) {
        twice += toll[__builtin_ctz(left)];
    }
    solve(how, &mine, open, twice);
}

/* ---- The queue ---- */

static void put(const tour *begun)
{
    if (shared->waiting == MOST_BEGINNINGS) {
        app_fail("the queue is full: --alone-below=%ld is too small", alone_below);
    }
    int place = shared->waiting++;
    if (place == shared->used) {
        shared->queue[place].kept = shared->used++;
    }
    entry mine = { begun->bound, shared->queue[place].kept };
    shared->kept[mine.kept] = *begun;
    while (place > 0 && shared->queue[(place - 1) / 2].bound > mine.bound) {
        shared->queue[place] = shared->queue[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    shared->queue[place] = mine;
}

static tour take(void)
{
    entry first = shared->queue[0];
    entry last = shared->queue[--shared->waiting];
    int place = 0;
    for (;;) {
        int child = 2 * place + 1;
        if (child >= shared->waiting) {
            break;
        }
        if (child + 1 < shared->waiting &&
            shared->queue[child + 1].bound < shared->queue[child].bound) {
            child++;
        }
        if (shared->queue[child].bound >= last.bound) {
            break;
        }
        shared->queue[place] = shared->queue[child];
        place = child;
    }
    shared->queue[place] = last;
    /* Where it was kept is free. */
    shared->queue[shared->waiting].kept = first.kept;
    return shared->kept[first.kept];
}

/* Puts every tour into the queue that goes one city further. */
static void extend(const tour *begun)
{
    unsigned seen = 0;
    for (int place = 0; place < begun->count; place++) {
        seen |= 1u << begun->city[place];
    }
    for (long city = 0; city < cities; city++) {
        if (seen >> city & 1) {
            continue;
        }
        tour next = *begun;
        next.length += distance[begun->city[begun->count - 1]][city];
        next.city[next.count++] = (unsigned char)city;
        next.bound = bound_of(&next);
        if (next.bound < shared->best.length) {
            put(&next);
        }
    }
}

/* Whether a beginning is solved by whoever took it. */
static int is_short(const tour *begun)
{
    return cities - begun->count < alone_below;
}

/* What is there before the search: one city, and some tour. */
static void begin(void)
{
    tour begun;
    memset(&begun, 0, sizeof begun);
    begun.count = 1;
    shared->best = nearest_first();
    put(&begun);
}

/* ---- Alone ---- */

static void found_alone(const tour *whole)
{
    shared->best = *whole;
}

/* In the order of the parallel search. */
static void search_best_first(const search *how)
{
    while (shared->waiting > 0) {
        tour begun = take();
        if (begun.bound >= shared->best.length) {
            return;
        }
        if (is_short(&begun)) {
            solve_from(how, &begun);
        } else {
            extend(&begun);
        }
    }
}

static double solve_alone(void)
{
    const search how = { &shared->best.length, found_alone };
    double start = app_now();
    begin();
    if (depth_first) {
        tour begun = take();
        solve_from(&how, &begun);
    } else {
        search_best_first(&how);
    }
    return app_now() - start;
}

/* ---- Together ---- */

static void found_together(const tour *whole)
{
    Tmk_lock_acquire(BEST);
    if (whole->length < shared->best.length) {
        shared->best = *whole;
    }
    Tmk_lock_release(BEST);
}

/* The next beginning to solve; 0 if there is none, nor will be. */
static int next_beginning(tour *begun)
{
    Tmk_lock_acquire(QUEUE);
    shared->busy--;
    while (shared->waiting > 0 || shared->busy > 0) {
        if (shared->waiting == 0) {
            /* Somebody may still put something back. */
            Tmk_lock_cond_wait(QUEUE, 0);
            continue;
        }
        *begun = take();
        if (begun->bound >= shared->best.length) {
            /* So are all the others. */
            shared->waiting = 0;
        } else if (is_short(begun)) {
            shared->busy++;
            Tmk_lock_release(QUEUE);
            return 1;
        } else {
            extend(begun);
            Tmk_lock_cond_broadcast(QUEUE, 0);
        }
    }
    Tmk_lock_cond_broadcast(QUEUE, 0);
    Tmk_lock_release(QUEUE);
    return 0;
}

static double solve_together(void)
{
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc(sizeof *shared);
        if (shared == NULL) {
            app_fail("no shared memory");
        }
        begin();
        shared->busy = Tmk_nprocs;
        Tmk_distribute(&shared, sizeof shared);
    }
    Tmk_barrier(0);
    const search how = { &shared->best.length, found_together };
    tour begun;
    double start = app_now();
    while (next_beginning(&begun)) {
        solve_from(&how, &begun);
    }
    Tmk_barrier(0);
    return app_now() - start;
}

/* A tour must come through every city once, and be as long as it says. */
static void verify(const tour *whole)
{
    unsigned seen = 0;
    int length = 0;
    for (long place = 0; place < cities; place++) {
        seen |= 1u << whole->city[place];
        length += distance[whole->city[place]][whole->city[(place + 1) % cities]];
    }
    if (whole->count != cities || seen != (1u << cities) - 1 || length != whole->length) {
        app_fail("tsp: this is no tour");
    }
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "cities", &cities, NULL, "how many of the file's cities" },
        { "alone-below", &alone_below, NULL, "solve alone what has fewer cities left" },
        { "depth-first", &depth_first, NULL, "with --sequential: 1 searches depth first" },
        { "file", NULL, &file, "latitude, longitude and name of a city on each line" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "the shortest round trip through all cities", options);
    if (cities < 3 || cities >= MOST_CITIES || alone_below < 1) {
        app_fail("there must be 3 to %d cities, and at least 1 to solve alone", MOST_CITIES - 1);
    }
    read_cities();
    find_tolls();
    if (app_sequential) {
        shared = app_memory(1, sizeof *shared);
        double took = solve_alone();
        verify(&shared->best);
        app_report("tsp", 1, took, "metres=%d", shared->best.length);
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together();
    if (Tmk_proc_id == 0) {
        verify(&shared->best);
        app_report("tsp", Tmk_nprocs, took, "metres=%d", shared->best.length);
        if (app_check) {
            int together = shared->best.length;
            shared = app_memory(1, sizeof *shared);
            solve_alone();
            if (shared->best.length != together) {
                app_fail("tsp: alone it is %d m", shared->best.length);
            }
        }
    }
    Tmk_exit(0);
}
