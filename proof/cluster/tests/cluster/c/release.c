/* A segment of policy release: this process writes every second byte of two pages,
 * another one the others; both add to a number under a lock. */
#include <errno.h>
#include <pagemesh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 2 * 4096, TURNS = 50 };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s (%d)\n", what, pagemesh_error_message(), errno);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    check(argc == 2, "one argument");
    int rank = atoi(argv[1]);
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_options_t options = PAGEMESH_OPTIONS_INIT;
    options.policy = 9;
    check(pagemesh_create(mesh, "lazy", SIZE, &options) == NULL && errno == EINVAL, "policy 9");
    options.policy = PAGEMESH_RELEASE;
    pagemesh_segment_t *segment = pagemesh_create(mesh, "lazy", SIZE, &options);
    check(segment != NULL, "create");
    volatile uint8_t *memory = pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(memory != NULL, "map");
    for (uint8_t phase = 1; phase <= 10; phase++) {
        for (int at = 8 + rank; at < SIZE; at += 2) {
            memory[at] = (uint8_t)(phase + 100 * rank);
        }
        check(pagemesh_barrier_wait(segment, 1, 2) == 0, "barrier");
        for (int at = 8; at < SIZE; at++) {
            check(memory[at] == phase + 100 * (at & 1), "another byte");
        }
        check(pagemesh_barrier_wait(segment, 1, 2) == 0, "barrier");
    }
    volatile uint64_t *number = (volatile uint64_t *)memory;
    for (int turn = 0; turn < TURNS; turn++) {
        check(pagemesh_lock(segment, 1) == 0, "lock");
        *number += 1;
        check(pagemesh_unlock(segment, 1) == 0, "unlock");
    }
    check(pagemesh_barrier_wait(segment, 1, 2) == 0, "barrier");
    printf("%llu\n", (unsigned long long)*number);
    return 0;
}
