/* Says how it will use the pages of "advised", which another node has written, one
 * step for each line of input; answers each with a line. */
#include <errno.h>
#include <pagemesh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096, PAGES = 64 };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s (%d)\n", what, pagemesh_error_message(), errno);
        exit(1);
    }
}

/* Every page holds its number. */
static void read_all(const volatile uint64_t *word)
{
    for (uint64_t page = 0; page < PAGES; page++) {
        check(word[page * PAGE / sizeof *word] == page, "another number");
    }
}

static void step(const char *said)
{
    char line[16];
    puts(said);
    fflush(stdout);
    check(fgets(line, sizeof line, stdin) != NULL, "no more input");
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_segment_t *segment = pagemesh_open(mesh, "advised", PAGEMESH_RDWR);
    check(segment != NULL, "open");
    uint64_t *memory = pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(memory != NULL, "map");
    step("mapped");
    check(pagemesh_advise(segment, 0, 0, PAGEMESH_ADVICE_WILLNEED) == 0, "will need");
    step("announced");
    read_all(memory);
    step("read");
    check(pagemesh_advise(segment, 0, 2 * PAGE, PAGEMESH_ADVICE_DONTNEED) == 0, "do not need");
    step("dropped");
    check(pagemesh_advise(segment, 0, 0, PAGEMESH_ADVICE_RANDOM) == 0, "random");
    read_all(memory);
    check(pagemesh_advise(segment, 0, 0, PAGEMESH_ADVICE_SEQUENTIAL) == 0, "sequential");
    check(pagemesh_advise(segment, 0, 0, PAGEMESH_ADVICE_NORMAL) == 0, "normal");
    check(pagemesh_advise(segment, 0, 0, 9) == -1 && errno == EINVAL, "no such advice");
    const uint64_t end = (uint64_t)PAGES * PAGE;
    check(pagemesh_advise(segment, end, PAGE, PAGEMESH_ADVICE_WILLNEED) == -1, "outside");
    check(pagemesh_advise(NULL, 0, 0, PAGEMESH_ADVICE_NORMAL) == -1, "no segment");
    const uint64_t offsets[] = {0, 7, 9 * PAGE, end - 1, end};
    check(pagemesh_will_need(segment, offsets, 4) == 0, "will need these");
    check(pagemesh_will_need(segment, offsets, 0) == 0, "will need none");
    check(pagemesh_will_need(segment, offsets, 5) == -1 && errno == EINVAL, "one outside");
    check(pagemesh_will_need(segment, NULL, 1) == -1, "no offsets");
    read_all(memory);
    step("read again");
    return 0;
}
