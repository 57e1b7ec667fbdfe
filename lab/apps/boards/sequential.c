/* A state in a segment of policy sequential, whose number is odd while it is written. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <time.h>

#include <pagemesh.h>

#include "board.h"

/* The state begins behind its number, in the same page. */
enum { BEFORE = 64 };

struct board {
    pagemesh_t *mesh;
    pagemesh_segment_t *segment;
    char *memory;
    size_t size;
    uint64_t seen;
};

static void check(int good, const char *what)
{
    if (!good) {
        board_fail(what, pagemesh_error_message());
    }
}

static _Atomic uint64_t *number_of(struct board *board)
{
    return (_Atomic uint64_t *)(void *)board->memory;
}

struct board *board_open(const struct place *place, int writes)
{
    struct board *board = calloc(1, sizeof *board);
    check(board != NULL, "memory");
    (void)writes;
    board->size = place->size;
    board->mesh = pagemesh_connect(NULL);
    check(board->mesh != NULL, "no daemon");
    board->segment = pagemesh_create(board->mesh, place->name, BEFORE + place->size, NULL);
    check(board->segment != NULL, "no segment");
    board->memory = pagemesh_map(board->segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(board->memory != NULL, "no mapping");
    return board;
}

void board_publish(struct board *board, const void *state)
{
    atomic_fetch_add(number_of(board), 1);
    memcpy(board->memory + BEFORE, state, board->size);
    atomic_fetch_add(number_of(board), 1);
}

static int64_t now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int board_wait(struct board *board, void *state, int timeout_ms)
{
    int64_t limit = now() + timeout_ms * INT64_C(1000000);
    for (;;) {
        uint64_t number = atomic_load(number_of(board));
        if (number != board->seen && number % 2 == 0) {
            memcpy(state, board->memory + BEFORE, board->size);
            atomic_thread_fence(memory_order_acquire);
            if (atomic_load(number_of(board)) == number) {
                board->seen = number;
                return 1;
            }
        }
        int64_t left = limit - now();
        if (left <= 0) {
            return 0;
        }
        if (number == board->seen || number % 2 == 1) {
            pagemesh_wait_change(board->segment, 0, (uint8_t)number, left);
        }
    }
}
