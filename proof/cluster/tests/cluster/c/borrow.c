/* Allocates as programs do, and says what is wrong. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#undef NDEBUG
#define LARGE (3u << 20)

/* Whether the kernel shows a file of shared memory at this address, not anonymous memory. */
static int lies_in_a_segment(void *place)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;

    assert(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (uintptr_t)place &&
            (uintptr_t)place < to)
            found = strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return found;
}

static void fill(unsigned char *place, size_t size, unsigned seed)
{
    for (size_t at = 0; at < size; at += 509)
        place[at] = (unsigned char)(at * 7 + seed);
}

static void check(const unsigned char *place, size_t size, unsigned seed)
{
    for (size_t at = 0; at < size; at += 509)
        assert(place[at] == (unsigned char)(at * 7 + seed));
}

static void kinds(void)
{
    unsigned char *small = malloc(1000), *large = malloc(LARGE), *zero;
    void *place;

    assert(!lies_in_a_segment(small) && lies_in_a_segment(large));
    assert((uintptr_t)large % 16 == 0 && malloc_usable_size(large) >= LARGE);
    assert(malloc_usable_size(small) >= 1000 && malloc_usable_size(NULL) == 0);
    fill(large, LARGE, 1);
    free(large);
    /* Memory that was in use is zero again. */
    zero = calloc(LARGE, 2);
    assert(lies_in_a_segment(zero));
    for (size_t at = 0; at < 2 * LARGE; at++)
        assert(zero[at] == 0);
    /* Shorter, longer, small, large again. */
    fill(zero, LARGE, 2);
    zero = realloc(zero, LARGE);
    check(zero, LARGE, 2);
    zero = realloc(zero, 5 * LARGE);
    check(zero, LARGE, 2);
    zero = realloc(zero, 2000);
    assert(!lies_in_a_segment(zero));
    check(zero, 2000, 2);
    zero = reallocarray(zero, LARGE, 1);
    assert(lies_in_a_segment(zero));
    check(zero, 2000, 2);
    for (size_t align = 8; align <= 4u << 20; align *= 2) {
        assert(posix_memalign(&place, align, LARGE) == 0);
        assert((uintptr_t)place % align == 0 && lies_in_a_segment(place));
        fill(place, LARGE, 3);
        check(place, LARGE, 3);
        free(place);
    }
    assert(posix_memalign(&place, 24, LARGE) == EINVAL);
    place = valloc(LARGE);
    assert((uintptr_t)place % 4096 == 0);
    free(place);
    /* More than there is, and more than can be. */
    errno = 0;
    assert(!malloc((size_t)1 << 40) && errno == ENOMEM);
    errno = 0;
    assert(!calloc(SIZE_MAX / 2, 4) && errno == ENOMEM);
    check(zero, 2000, 2);
    free(zero);
    free(small);
    free(NULL);
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;

    for (unsigned round = 0; round < 200; round++) {
        size_t size = ((seed * 7919 + round * 104729) % 40 + 16) << 16;
        unsigned char *place = malloc(size);
        assert(place);
        fill(place, size, seed + round);
        if (round % 3 == 0) {
            place = realloc(place, size + (1u << 20));
            assert(place);
        }
        check(place, size, seed + round);
        free(place);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[4];

    for (uintptr_t id = 0; id < 4; id++)
        assert(pthread_create(&ids[id], NULL, work, (void *)id) == 0);
    for (int id = 0; id < 4; id++)
        assert(pthread_join(ids[id], NULL) == 0);
}

/* A child sees what was there at the fork; neither sees what the other stores then. */
static void children(void)
{
    unsigned char *place = malloc(LARGE), *more;
    int status, ready[2], go[2];
    char byte;

    fill(place, LARGE, 4);
    assert(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        assert(read(go[0], &byte, 1) == 1);
        check(place, LARGE, 4);
        assert(lies_in_a_segment(place));
        fill(place, LARGE, 5);
        more = malloc(LARGE);
        assert(more && lies_in_a_segment(more));
        fill(more, LARGE, 6);
        assert(write(ready[1], "r", 1) == 1);
        assert(read(go[0], &byte, 1) == 1);
        check(place, LARGE, 5);
        check(more, LARGE, 6);
        free(more);
        free(place);
        /* A child of the child. */
        more = malloc(LARGE);
        fill(more, LARGE, 7);
        pid_t second = fork();
        if (second == 0) {
            check(more, LARGE, 7);
            _exit(0);
        }
        assert(waitpid(second, &status, 0) == second && status == 0);
        _exit(0);
    }
    fill(place, LARGE, 8);
    assert(write(go[1], "g", 1) == 1);
    assert(read(ready[0], &byte, 1) == 1);
    check(place, LARGE, 8);
    more = malloc(LARGE);
    fill(more, LARGE, 9);
    assert(write(go[1], "g", 1) == 1);
    assert(waitpid(child, &status, 0) == child && status == 0);
    check(place, LARGE, 8);
    check(more, LARGE, 9);
    free(more);
    free(place);
    assert(system("exit 7") >> 8 == 7);
}

static void refused(void)
{
    unsigned char *place = malloc(LARGE);

    fill(place, LARGE, 1);
    errno = 0;
    assert(fork() == -1 && errno == ENOMEM);
    check(place, LARGE, 1);
    free(place);
    /* With nothing to copy it is possible. */
    pid_t child = fork();
    int status;
    assert(child >= 0);
    if (child == 0)
        _exit(0);
    assert(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "refused") == 0) {
        refused();
    } else {
        kinds();
        threads();
        children();
    }
    puts("done");
    return 0;
}
