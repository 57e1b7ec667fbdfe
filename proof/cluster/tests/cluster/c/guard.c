/* What the library does about calls that would take its memory away. Says
 * "guarded" if all is as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <pagemesh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 4 };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s (%d)\n", what, pagemesh_error_message(), errno);
        exit(1);
    }
}

static void check_refused(int failed, int expected, const char *what)
{
    check(failed && errno == expected, what);
}

int main(void)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    pagemesh_segment_t *segment = pagemesh_open(mesh, "guarded", PAGEMESH_RDWR);
    check(segment != NULL, "open");
    char *memory = pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(memory != NULL, "map");
    volatile uint64_t *word = (volatile uint64_t *)memory;
    *word += 1;

    const int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
    const size_t all = (size_t)PAGES * PAGE;
    check_refused(munmap(memory + PAGE, PAGE) != 0, EINVAL, "munmap of a part");
    check_refused(munmap(memory - PAGE, all + PAGE) != 0, EINVAL, "munmap of more");
    check_refused(mmap(memory, PAGE, rw, anon | MAP_FIXED, -1, 0) == MAP_FAILED, EEXIST, "mmap over it");
    check_refused(mremap(memory, all, all * 2, MREMAP_MAYMOVE) == MAP_FAILED, EINVAL, "mremap");
    check_refused(madvise(memory, all, MADV_REMOVE) != 0, EINVAL, "MADV_REMOVE");
    check_refused(madvise(memory, all, MADV_DOFORK) != 0, EINVAL, "MADV_DOFORK");

    char *own = mmap(NULL, 2 * PAGE, rw, anon, -1, 0);
    check(own != MAP_FAILED, "mmap elsewhere");
    own[0] = 5;
    check_refused(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED, EINVAL,
                  "mremap onto it");
    own = mremap(own, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    check(own != MAP_FAILED && own[0] == 5, "mremap elsewhere");
    check(madvise(own, PAGE, MADV_DONTNEED) == 0 && own[0] == 0, "madvise elsewhere");
    check(mmap(own, PAGE, rw, anon | MAP_FIXED, -1, 0) == own, "mmap over something else");
    check(munmap(own, 4 * PAGE) == 0, "munmap elsewhere");

    /* Harmless: the page is there again when it is touched. */
    check(madvise(memory, all, MADV_DONTNEED) == 0, "MADV_DONTNEED");
    *word += 1;
    check(mprotect(memory, all, PROT_READ) == 0 && *word >= 2, "mprotect");
    check(mprotect(memory, all, rw) == 0, "mprotect back");
    *word += 1;
    check(munmap(memory, all) == 0, "munmap of all");
    check(pagemesh_unmap(memory) != 0, "it is unmapped");
    check(pagemesh_close(segment) == 0, "close");
    pagemesh_disconnect(mesh);
    puts("guarded");
    return 0;
}
