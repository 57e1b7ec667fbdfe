/* One process publishes, the others sleep until there is something new.
 *
 *     cc publish.c -o publish $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 3 -- ./publish
 *
 * Process 0 writes a message, then raises the sequence number in the page's
 * first byte. The others wait for that byte to change, without polling and
 * without a message between them, and read. A reader that sleeps too long misses
 * messages but never sees a torn one: it checks the number before and after. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 199309L /* nanosleep */
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <pagemesh.h>

#define MESSAGES 50
#define TEN_SECONDS INT64_C(10000000000)

/* Numbers of the job's barriers. */
enum { STARTED, DONE };

struct board {
    uint8_t sequence; /* even: the text is whole */
    uint8_t unused[7];
    char text[256];
};

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, pagemesh_error_message());
        exit(1);
    }
}

/* The text of a message: one letter, all over. */
static char letter(int sequence)
{
    return (char)('a' + sequence / 2 % 26);
}

static void publish(volatile struct board *board)
{
    struct timespec pause;
    pause.tv_sec = 0;
    pause.tv_nsec = 2000000;
    for (int sequence = 2; sequence <= 2 * MESSAGES; sequence += 2) {
        board->sequence = (uint8_t)(sequence - 1);
        __sync_synchronize();
        for (size_t i = 0; i < sizeof board->text; i++) {
            board->text[i] = letter(sequence);
        }
        __sync_synchronize();
        board->sequence = (uint8_t)sequence;
        nanosleep(&pause, NULL);
    }
}

/* Returns how many messages were seen, or -1 if one was torn. */
static int subscribe(pagemesh_segment_t *segment, volatile struct board *board)
{
    int seen = 0;
    uint8_t last = 0;
    while (last != 2 * MESSAGES) {
        char text[sizeof board->text];
        int sequence = pagemesh_wait_change(segment, 0, last, TEN_SECONDS);
        check(sequence >= 0, "wait for a change");
        last = (uint8_t)sequence;
        if (sequence % 2 != 0) {
            continue; /* being written */
        }
        __sync_synchronize();
        for (size_t i = 0; i < sizeof text; i++) {
            text[i] = board->text[i];
        }
        __sync_synchronize();
        if (board->sequence != last) {
            last = 0; /* changed under our eyes: look again */
            continue;
        }
        seen++;
        for (size_t i = 0; i < sizeof text; i++) {
            if (text[i] != letter(sequence)) {
                return -1;
            }
        }
    }
    return seen;
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_job_t *job = pagemesh_job_open(mesh);
    check(job != NULL, "join the job");
    pagemesh_segment_t *segment = pagemesh_job_segment(job);
    uint32_t rank = pagemesh_job_rank(job);
    uint32_t size = pagemesh_job_size(job);
    volatile struct board *board = (volatile struct board *)pagemesh_map(
        segment, NULL, 0, 0, rank == 0 ? PAGEMESH_RDWR : PAGEMESH_RDONLY);
    check(board != NULL, "map");

    check(pagemesh_barrier_wait(segment, STARTED, size) == 0, "barrier");
    int seen = MESSAGES;
    if (rank == 0) {
        publish(board);
    } else {
        seen = subscribe(segment, board);
    }
    printf("process %" PRIu32 " of %" PRIu32 ": %d messages\n", rank, size, seen);
    check(pagemesh_barrier_wait(segment, DONE, size) == 0, "barrier");

    check(pagemesh_unmap((void *)board) == 0, "unmap");
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return seen > 0 ? 0 : 1;
}
