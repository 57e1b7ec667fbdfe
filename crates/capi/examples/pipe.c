/* A pipe of two pages, used by its two pointers: one process asks, the other one answers.
 *
 *     cc pipe.c -o pipe $(pkg-config --cflags --libs pagemesh)
 *     pagemesh sandbox 2 -- ./pipe
 *
 * Each process stores to one page, and reads the other one as it was sent last. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagemesh.h>

#define ROUNDS 1000

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, pagemesh_error_message());
        exit(1);
    }
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_job_t *job = pagemesh_job_open(mesh);
    check(job != NULL, "join the job");
    int asks = pagemesh_job_rank(job) == 0;
    pagemesh_pipe_t *pipe =
        pagemesh_pipe_create(mesh, "example.pipe", PAGEMESH_PIPE_SIZE, PAGEMESH_PIPE_FREE, 0600);
    check(pipe != NULL, "open the pipe");
    const void *from;
    void *to;
    check(pagemesh_pipe_pointers(pipe, &from, &to) == 0, "pointers");
    const uint64_t *read = (const uint64_t *)from;
    uint64_t *write = (uint64_t *)to;
    for (uint64_t round = 0; round < 2 * ROUNDS; round++) {
        if ((round % 2 == 0) == asks) {
            check(pagemesh_pipe_wait_writable(pipe, PAGEMESH_FOREVER) == 0, "wait");
            *write = round * round;
            check(pagemesh_pipe_write_done(pipe, sizeof *write) == 0, "write");
        } else {
            check(pagemesh_pipe_wait_readable(pipe, PAGEMESH_FOREVER) == sizeof *read, "wait");
            check(*read == round * round, "the number");
            check(pagemesh_pipe_read_done(pipe) == 0, "read");
        }
    }
    check(pagemesh_pipe_close(pipe) == 0, "close");
    check(pagemesh_barrier_wait(pagemesh_job_segment(job), 0, 2) == 0, "barrier");
    if (asks) {
        check(pagemesh_remove(mesh, "example.pipe") == 0, "remove");
        printf("%d questions were answered\n", ROUNDS);
    }
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return 0;
}
