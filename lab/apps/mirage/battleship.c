/* Battleship: two players, one page, and nothing but memory to agree by (MR12-MR14).
 *
 * Each player's field is one half of the page. The loop is the paper's:
 *   P1 scan the own field, again and again, until there is a new shot,
 *   P2 answer it: hit or miss,
 *   P3 shoot into the other's field,
 *   P4 look at that place until the answer is there.
 * Whoever has hit all the other's ships has won. By the default seed that takes
 * 789 turns, as in the paper. Further processes, if any, only watch. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "shared.h"

enum { CELLS = 1024, SHIPS = 17, WATER = 0, SHOT = 1, HIT = 2, MISS = 3 };

static long seed = 4177, yielding, holding, turns = CELLS, games = 1;

/* What one player has of his own. */
typedef struct {
    unsigned char ship[CELLS]; /* his ships */
    short order[CELLS];        /* where he shoots, one after the other */
    int hits, hurt;            /* his hits, and his ships that were hit */
    long turn;
} player;

static void set_up(player *one, int number)
{
    app_random random = { (uint64_t)seed * 2 + (uint64_t)number };
    memset(one, 0, sizeof *one);
    for (int ships = 0; ships < SHIPS;) {
        int cell = (int)app_random_below(&random, CELLS);
        ships += !one->ship[cell];
        one->ship[cell] = 1;
    }
    for (int cell = 0; cell < CELLS; cell++) {
        one->order[cell] = (short)cell;
    }
    for (int last = CELLS - 1; last > 0; last--) {
        int other = (int)app_random_below(&random, (uint32_t)last + 1);
        short kept = one->order[last];
        one->order[last] = one->order[other];
        one->order[other] = kept;
    }
}

static void give_way(void)
{
    if (yielding) {
        sched_yield();
    }
}

/* P1: where the new shot is. */
static int scan(const volatile unsigned char *own)
{
    for (;;) {
        for (int cell = 0; cell < CELLS; cell++) {
            if (own[cell] == SHOT) {
                return cell;
            }
        }
        give_way();
    }
}

/* P4: what became of a shot. */
static unsigned char wait_for(const volatile unsigned char *cell)
{
    while (*cell == SHOT) {
        give_way();
    }
    return *cell;
}

/* Plays until somebody has won, or all turns are over; every shot is answered. */
static void play(player *me, volatile unsigned char *own, volatile unsigned char *other, int begins)
{
    for (int first = begins;; first = 0) {
        int shot = first ? -1 : scan(own);
        int over = me->turn == turns;
        if (holding) {
            shared_hold((void *)own);
        }
        if (shot >= 0) {
            own[shot] = me->ship[shot] ? HIT : MISS;
            me->hurt += me->ship[shot];
            over |= me->hurt == SHIPS;
        }
        int target = over ? 0 : me->order[me->turn++];
        if (!over) {
            other[target] = SHOT;
        }
        if (holding) {
            shared_release((void *)own);
        }
        if (over) {
            return;
        }
        me->hits += wait_for(&other[target]) == HIT;
        if (me->hits == SHIPS || (me->turn == turns && !begins)) {
            return;
        }
    }
}

/* Every shot was answered by the truth, and nothing else was written. */
static void check(const player *me, const player *other, const unsigned char *theirs)
{
    int hits = 0;
    for (int cell = 0; cell < CELLS; cell++) {
        long when = 0;
        while (me->order[when] != cell) {
            when++;
        }
        unsigned char expected = when >= me->turn ? WATER : other->ship[cell] ? HIT : MISS;
        if (theirs[cell] != expected) {
            app_fail("cell %d is %d, not %d", cell, theirs[cell], expected);
        }
        hits += expected == HIT;
    }
    if (hits != me->hits) {
        app_fail("%d hits, of which %d were told", hits, me->hits);
    }
}

/* One game, on an empty page. How long it took. */
static double play_on(unsigned char *page, player *players)
{
    int me = shared_rank;
    shared_barrier();
    if (me == 0) {
        memset(page, WATER, 4096);
    }
    shared_barrier();
    double start = app_now();
    if (me < 2) {
        play(&players[me], page + me * 2048, page + (1 - me) * 2048, me == 0);
    }
    double took = app_now() - start;
    shared_barrier();
    if (me < 2) {
        check(&players[me], &players[1 - me], page + (1 - me) * 2048);
    }
    return took;
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "seed", &seed, NULL, "where ships are and where shots go" },
        { "yield", &yielding, NULL, "1: give the processor away while waiting" },
        { "hold", &holding, NULL, "1: keep the page during P2 and P3, where that can be said" },
        { "turns", &turns, NULL, "stop after so many" },
        { "games", &games, NULL, "play so many, one after the other" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "Battleship: two players, one page", options);
    if (turns < 1 || turns > CELLS) {
        app_fail("--turns is 1 to %d", CELLS);
    }
    if (games < 1) {
        app_fail("--games is 1 at least");
    }
    shared_begin(2);
    if (shared_size < 2) {
        app_fail("two have to play");
    }
    unsigned char *page = shared_segment(0, 4096);
    double took = 0;
    player players[2];
    for (long game = 0; game < games; game++) {
        set_up(&players[0], 0);
        set_up(&players[1], 1);
        took += play_on(page, players);
    }
    if (shared_rank == 0) {
        app_report("battleship", shared_size, took / (double)games, "turns=%ld hits=%d hurt=%d",
                   players[0].turn, players[0].hits, players[0].hurt);
    }
    return shared_end();
}
