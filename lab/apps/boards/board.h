/* State that one process writes and many watch: what `pagemesh-bench boards` measures, and
 * what each way of moving it must do. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

/* Where a process is, and what it moves. */
struct place {
    const char *name;    /* of the board */
    const char *address; /* of this node */
    size_t size;         /* bytes of a state, a multiple of 8, at least 32 */
    int super;           /* whether datagrams of one state may pass as one packet */
};

struct board;

/* Opens a board to write it, or to watch it. Does not return on failure. */
struct board *board_open(const struct place *place, int writes);

/* Shows a state to all who watch. */
void board_publish(struct board *board, const void *state);

/* Waits until there is a state that was not returned before, and copies it: 1, or 0 if none came
 * in time. */
int board_wait(struct board *board, void *state, int timeout_ms);

/* Ends the process with a message. */
void board_fail(const char *what, const char *why) __attribute__((noreturn));

#endif
