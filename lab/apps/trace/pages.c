/* The pages of a program's heap, in the order in which it touches them.
 *
 *     PAGE_TRACE=FILE LD_PRELOAD=libpagetrace.so.0 sort ...
 *
 * stands in for malloc and for anonymous mmap. All that they give lies in one region, of which the
 * program sees OPEN pages at a time: a touch of any other page stops its thread, a thread of ours
 * writes it down and shows the page in place of the one that was shown first. What goes on among the
 * shown pages is not seen, so any replacement that keeps far more pages than these can be
 * compared by the trace. A first store to a page that was shown for a load is a touch, too.
 *
 * FILE gets a number of 32 bits for each touch: twice the page, and one for a store. Calls of the
 * kernel touch pages as the program does. Nothing is reused below a page, nothing is returned to
 * the kernel; programs that fork share their memory with their children, so they must not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP ((uint64_t)1 << 1)
#endif

#define PAGE ((size_t)4096)
#define REGION ((size_t)8 << 30)
#define OPEN 64
#define HEADER ((size_t)16)
#define CLASSES 256
#define EVENTS 4096

static char *region;
static _Atomic size_t used;
static int faults = -1, out = -1;
static uint32_t events[EVENTS];
static size_t count;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static char *shown[OPEN];
static unsigned next_shown;

/* Free blocks of each class, and what guards them. */
static void *free_blocks[CLASSES];
static atomic_flag guard = ATOMIC_FLAG_INIT;

static void die(const char *why) {
    ssize_t ignored = write(2, why, strlen(why));
    (void)ignored;
    _exit(99);
}

static void make_region(void) {
    int memory = (int)syscall(SYS_memfd_create, "pagetrace", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, (off_t)REGION) != 0)
        die("pagetrace: no memory file\n");
    void *at = (void *)syscall(SYS_mmap, NULL, REGION, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, memory, 0);
    if (at == MAP_FAILED)
        die("pagetrace: no region\n");
    close(memory);
    region = at;
}

/* So many bytes that nobody has had, which begin at a multiple of `align`. */
static char *fresh(size_t size, size_t align) {
    if (region == NULL)
        make_region();
    size_t before = atomic_load(&used), at;
    do {
        at = (before + align - 1) & ~(align - 1);
        if (at + size > REGION)
            return NULL;
    } while (!atomic_compare_exchange_weak(&used, &before, at + size));
    return region + at;
}

/* Classes are four between two powers of two. */
static unsigned class_of(size_t size, size_t *rounded) {
    unsigned power = 5;
    while (((size_t)1 << (power + 1)) <= size)
        power++;
    size_t step = (size_t)1 << (power - 2), base = (size_t)1 << power;
    size_t quarter = size <= base ? 0 : (size - base + step - 1) / step;
    *rounded = base + quarter * step;
    return (power - 5) * 4 + (unsigned)quarter;
}

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&guard, memory_order_acquire))
        ;
}

static void unlock(void) { atomic_flag_clear_explicit(&guard, memory_order_release); }

/* A block has its size in front, and what its own beginning is before it was aligned. */
typedef struct {
    uint64_t size;
    uint64_t shift;
} header;

static void *take(size_t size) {
    size_t rounded;
    if (size > REGION / 2) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned class = class_of(size + HEADER, &rounded);
    lock();
    char *block = free_blocks[class];
    if (block != NULL)
        memcpy(&free_blocks[class], block + HEADER, sizeof(void *));
    unlock();
    if (block == NULL)
        block = fresh(rounded, rounded >= PAGE ? PAGE : HEADER);
    if (block == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    ((header *)block)->size = rounded - HEADER;
    ((header *)block)->shift = 0;
    return block + HEADER;
}

void *malloc(size_t size) { return take(size); }

static header *header_of(void *block) { return (header *)((char *)block - HEADER); }

static void give(void *block) {
    if (block == NULL)
        return;
    header *mine = header_of(block);
    char *start = (char *)mine - mine->shift;
    size_t rounded;
    unsigned class = class_of(((header *)start)->size + HEADER, &rounded);
    lock();
    memcpy(start + HEADER, &free_blocks[class], sizeof(void *));
    free_blocks[class] = start;
    unlock();
}

void free(void *block) { give(block); }

size_t malloc_usable_size(void *block) { return block == NULL ? 0 : header_of(block)->size; }

void *calloc(size_t number, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(number, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    size_t before = atomic_load(&used);
    char *block = take(bytes);
    /* Fresh memory is zeros, and need not be touched. */
    if (block != NULL && (size_t)(block - region) < before)
        memset(block, 0, bytes);
    return block;
}

void *realloc(void *block, size_t size) {
    if (block == NULL)
        return take(size);
    size_t old = header_of(block)->size;
    if (size <= old && size + HEADER > old / 4)
        return block;
    void *moved = take(size);
    if (moved != NULL) {
        memcpy(moved, block, old < size ? old : size);
        give(block);
    }
    return moved;
}

void *aligned_alloc(size_t align, size_t size) {
    if (align <= HEADER)
        return take(size);
    char *block = take(size + align + HEADER);
    if (block == NULL)
        return NULL;
    uintptr_t at = ((uintptr_t)block + align - 1) & ~(uintptr_t)(align - 1);
    if (at == (uintptr_t)block)
        return block;
    header *mine = header_of((void *)at);
    uint64_t all = header_of(block)->size;
    mine->shift = at - (uintptr_t)block;
    mine->size = all - mine->shift;
    return (void *)at;
}

void *memalign(size_t align, size_t size) { return aligned_alloc(align, size); }
void *valloc(size_t size) { return aligned_alloc(PAGE, size); }

int posix_memalign(void **block, size_t align, size_t size) {
    *block = aligned_alloc(align, size);
    return *block == NULL ? ENOMEM : 0;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    int wanted = MAP_PRIVATE | MAP_ANONYMOUS;
    int usual = PROT_READ | PROT_WRITE;
    int special = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB;
    if ((flags & wanted) == wanted && (flags & special) == 0 && protection == usual) {
        void *mine = fresh((size + PAGE - 1) & ~(PAGE - 1), PAGE);
        if (mine != NULL)
            return mine;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(at, size, protection, flags, file, offset);
}

int munmap(void *at, size_t size) {
    /* What was given away once is not given again. */
    if (region != NULL && (char *)at >= region && (char *)at < region + REGION)
        return 0;
    return (int)syscall(SYS_munmap, at, size);
}

static void flush(void) {
    size_t bytes = count * sizeof events[0];
    if (write(out, events, bytes) != (ssize_t)bytes)
        die("pagetrace: the trace cannot be written\n");
    count = 0;
}

static void note(const char *page, int store) {
    pthread_mutex_lock(&writing);
    events[count++] = (uint32_t)((size_t)(page - region) / PAGE * 2 + (size_t)store);
    if (count == EVENTS)
        flush();
    pthread_mutex_unlock(&writing);
}

/* The page that was shown first is not shown any more. */
static void make_way_for(char *page) {
    char *oldest = shown[next_shown];
    if (oldest != NULL && madvise(oldest, PAGE, MADV_DONTNEED) != 0)
        die("pagetrace: a page cannot be hidden\n");
    shown[next_shown] = page;
    next_shown = (next_shown + 1) % OPEN;
}

static void show(char *page, uint64_t flags) {
    if (flags & UFFD_PAGEFAULT_FLAG_WP) {
        struct uffdio_writeprotect open = {{(uintptr_t)page, PAGE}, 0};
        note(page, 1);
        if (ioctl(faults, UFFDIO_WRITEPROTECT, &open) != 0 && errno != ENOENT)
            die("pagetrace: a page cannot be opened\n");
        return;
    }
    int store = (flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0;
    make_way_for(page);
    if (flags & UFFD_PAGEFAULT_FLAG_MINOR) {
        struct uffdio_continue shown_again = {{(uintptr_t)page, PAGE}, 0, 0};
        shown_again.mode = store ? 0 : UFFDIO_CONTINUE_MODE_WP;
        if (ioctl(faults, UFFDIO_CONTINUE, &shown_again) != 0 && errno != EEXIST)
            die("pagetrace: a page cannot be shown\n");
    } else {
        struct uffdio_zeropage zeros = {{(uintptr_t)page, PAGE}, 0, 0};
        store = 1;
        if (ioctl(faults, UFFDIO_ZEROPAGE, &zeros) != 0 && errno != EEXIST)
            die("pagetrace: a page cannot be made\n");
    }
    note(page, store);
}

static void *watch(void *nothing) {
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == (ssize_t)sizeof message)
        if (message.event == UFFD_EVENT_PAGEFAULT) {
            uintptr_t at = message.arg.pagefault.address & ~(uintptr_t)(PAGE - 1);
            show((char *)at, message.arg.pagefault.flags);
        }
    return nothing;
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("PAGE_TRACE");
    pthread_t thread;
    if (name == NULL)
        return;
    unsetenv("LD_PRELOAD");
    out = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {UFFD_API, UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM |
                             UFFD_FEATURE_WP_HUGETLBFS_SHMEM, 0};
    struct uffdio_register all = {{0, REGION}, 0, 0};
    if (region == NULL)
        make_region();
    all.range.start = (uintptr_t)region;
    all.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
    if (out < 0 || faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0)
        die("pagetrace: no trace, or no userfaultfd\n");
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        die("pagetrace: no thread\n");
    if (ioctl(faults, UFFDIO_REGISTER, &all) != 0)
        die("pagetrace: this kernel tells too little of faults\n");
    madvise(region, REGION, MADV_DONTNEED);
}

__attribute__((destructor)) static void end(void) {
    if (out < 0)
        return;
    pthread_mutex_lock(&writing);
    flush();
    pthread_mutex_unlock(&writing);
}
