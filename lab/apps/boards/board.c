/* A board of PageMesh: the newest whole state wins, the writer waits for nobody. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include <pagemesh.h>

#include "board.h"

#ifndef PAGEMESH_VIEWS
#error "this pagemesh.h has no boards yet"
#else

struct board {
    pagemesh_t *mesh;
    pagemesh_board_t *board;
    size_t size;
    uint64_t seen;
};

static void check(int good, const char *what)
{
    if (!good) {
        board_fail(what, pagemesh_error_message());
    }
}

/* Both sides create: the first one does, the others open. */
struct board *board_open(const struct place *place, int writes)
{
    struct board *board = calloc(1, sizeof *board);
    check(board != NULL, "memory");
    (void)writes;
    board->size = place->size;
    board->mesh = pagemesh_connect(NULL);
    check(board->mesh != NULL, "no daemon");
    board->board = pagemesh_board_create(board->mesh, place->name, place->size, 1, 0600);
    check(board->board != NULL, "no board");
    return board;
}

void board_publish(struct board *board, const void *state)
{
    check(pagemesh_board_publish(board->board, state, board->size) >= 0, "not published");
}

int board_wait(struct board *board, void *state, int timeout_ms)
{
    pagemesh_state_t found;
    if (pagemesh_board_wait(board->board, board->seen, timeout_ms * INT64_C(1000000)) < 0) {
        check(errno == ETIMEDOUT || errno == EINTR, "no wait");
        return 0;
    }
    ssize_t length = pagemesh_board_read(board->board, state, board->size, &found);
    check(length >= 0, "no state");
    if ((size_t)length != board->size || found.number <= board->seen) {
        return 0;
    }
    board->seen = found.number;
    return 1;
}

#endif
