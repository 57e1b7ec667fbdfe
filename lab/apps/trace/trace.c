/* What a TreadMarks program does to memory, written down for a forecast.
 *
 *     TMK_TRACE=DIRECTORY TMK_TRACE_NODES=8 LD_PRELOAD=libtmktrace.so.0 ./jacobi
 *
 * stands in for libpagemesh: all processes run on this host, forked at Tmk_startup. Each has
 * a view of the heap of its own. It sees what the others have stored when it touches a page
 * for the first time after it has synchronized, and they what it has stored when it
 * synchronizes next, as under policy `release`. Between two synchronizations each of them may touch nothing until
 * it stops at a page for the first time, to read and then to write; that, the time of
 * its processor in between, how many bytes of the page it changed, and its locks and
 * barriers become DIRECTORY/RANK.trace, one line each (lab/forecast/src/trace.rs):
 *
 *     w NANOSECONDS    computes
 *     l PAGE           reads a page for the first time since it last synchronized
 *     s PAGE BYTES     stores to it, and changes so many bytes until it synchronizes
 *     b BARRIER        reaches a barrier
 *     a LOCK           takes a lock
 *     r LOCK           gives it back
 *     c LOCK SIGNALS   waits for a condition, until there were so many signals of it
 *     g LOCK           signals a condition
 *     n                asks for the time
 *
 * What stopping takes is left out.
 *
 * Each process has a clock of its own, of what it has computed, and who would come to a lock
 * first takes it first, however this host divides its processors: so work is dealt out as
 * among nodes with a processor each.
 *
 * With TMK_TRACE_PLAIN set they share one heap, nothing stops, and no pages are written
 * down: what a program computes, without any of what looking at it costs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <Tmk.h>

#define PAGE ((size_t)TMK_PAGE_SIZE)
#define HEAP ((size_t)1 << 33)
#define HEAP_AT ((char *)0x200000000000)
#define PAGES (HEAP / PAGE)
#define MOST_EVENTS ((size_t)1 << 27)
#define LOCKS 65536
#define BARRIERS 64
#define SENT 1024
#define SUMS 64
#define LONGEST 64

int Tmk_proc_id, Tmk_nprocs = 1;

typedef struct {
    uint32_t kind, extra;
    uint64_t number;
} event;

typedef struct {
    _Atomic uint64_t number; /* and one; 0: nobody uses it */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint64_t signals;
    /* When it was given back. */
    uint64_t free_at;
} lock;

typedef struct {
    _Atomic uint64_t number;
    pthread_barrier_t barrier;
} barrier;

/* What processes share beside the heap. */
typedef struct {
    _Atomic size_t used;
    lock lock[LOCKS];
    barrier barrier[BARRIERS];
    pthread_mutex_t sending;
    /* Of each process: its clock, and what it waits for: 0 for nothing. */
    _Atomic uint64_t time[TMK_NPROCS];
    _Atomic uint64_t waits[TMK_NPROCS];
    /* The last arrival at a barrier, and at the next one. */
    _Atomic uint64_t last[2];
    _Atomic int sums;
    struct {
        size_t begin, end;
    } sum[SUMS];
    _Atomic int sent;
    struct {
        void *at;
        int size, from;
        char bytes[LONGEST];
    } message[SENT];
} shared;

enum { NOTHING, READ, WRITTEN };

static shared *all;
static char *back, *twins;
static unsigned char *state;
static uint32_t *touched;
static size_t touches;
static event *events;
static size_t count;
static size_t *store_of;
static uint64_t since, per_stop;
/* This process's clock, how many barriers it has passed, and how many locks it has. */
static uint64_t clock_here;
static size_t passed, locks_held;
static int received, on, plain;
static const char *directory;

static void fail(const char *what)
{
    perror(what);
    _exit(1);
}

static uint64_t processor_time(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *memory(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        fail("tmk trace: no memory");
    }
    return at;
}

static void add(char kind, uint64_t number, uint32_t extra)
{
    if (count == MOST_EVENTS) {
        static const char words[] = "tmk trace: the run is too long\n";
        if (write(2, words, sizeof words - 1) < 0) {
            _exit(2);
        }
        _exit(1);
    }
    events[count++] = (event){ (uint32_t)kind, extra, number };
}

/* What was computed since, without what a stop itself takes. */
static void worked(uint64_t now, uint64_t without)
{
    uint64_t took = now - since;
    if (took > without) {
        clock_here += took - without;
        add('w', took - without, 0);
    }
}

/* A first access. Called by the kernel in the middle of the program. */
static void stopped(int number, siginfo_t *info, void *context)
{
    uint64_t now = processor_time();
    char *at = info->si_addr;
    if (at < HEAP_AT || at >= HEAP_AT + HEAP) {
        signal(number, SIG_DFL);
        return;
    }
    size_t page = (size_t)(at - HEAP_AT) / PAGE;
    char *here = HEAP_AT + page * PAGE;
    int writes = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    worked(now, per_stop);
    if (state[page] == NOTHING) {
        touched[touches++] = (uint32_t)page;
    }
    if (mprotect(here, PAGE, PROT_READ | PROT_WRITE) != 0) {
        fail("tmk trace: mprotect");
    }
    if (state[page] == NOTHING) {
        memcpy(here, back + page * PAGE, PAGE);
    }
    if (writes) {
        memcpy(twins + page * PAGE, here, PAGE);
        store_of[page] = count;
        add('s', page, 0);
        state[page] = WRITTEN;
    } else {
        add('l', page, 0);
        state[page] = READ;
    }
    if (!writes && mprotect(here, PAGE, PROT_READ) != 0) {
        fail("tmk trace: mprotect");
    }
    since = processor_time();
}

/* Whether processes add to what is so far into the heap. */
static int is_sum(size_t at)
{
    for (int which = 0; which < atomic_load(&all->sums); which++) {
        if (at >= all->sum[which].begin && at < all->sum[which].end) {
            return 1;
        }
    }
    return 0;
}

/* Adds what was added to the doubles of a page; how many bytes of it changed. */
static uint32_t publish_sums(size_t page)
{
    uint32_t bytes = 0;
    for (size_t at = page * PAGE; at < (page + 1) * PAGE; at += sizeof(double)) {
        double *now = (double *)(HEAP_AT + at), *then = (double *)(twins + at);
        if (is_sum(at) && *now != *then) {
            Tmk_add_double((double *)(back + at), *now - *then);
            *then = *now;
            bytes += (uint32_t)sizeof(double);
        }
    }
    return bytes;
}

/* Lets the others see what changed in a page; how many bytes that are. */
static uint32_t publish(size_t page)
{
    const char *now = HEAP_AT + page * PAGE, *then = twins + page * PAGE;
    volatile char *seen = back + page * PAGE;
    uint32_t bytes = publish_sums(page);
    for (size_t word = 0; word < PAGE; word += sizeof(uint64_t)) {
        if (memcmp(now + word, then + word, sizeof(uint64_t)) == 0) {
            continue;
        }
        for (size_t at = word; at < word + sizeof(uint64_t); at++) {
            if (now[at] != then[at]) {
                seen[at] = now[at];
                bytes++;
            }
        }
    }
    return bytes;
}

/* The program is about to synchronize: what it touched it touches anew afterwards. */
static void pause_here(void)
{
    if (!on) {
        return;
    }
    worked(processor_time(), 0);
    for (size_t which = 0; which < touches; which++) {
        size_t page = touched[which];
        if (state[page] == WRITTEN) {
            events[store_of[page]].extra = publish(page);
        }
        state[page] = NOTHING;
    }
    if (touches > 0 && mprotect(HEAP_AT, HEAP, PROT_NONE) != 0) {
        fail("tmk trace: mprotect");
    }
    touches = 0;
}

static void go_on(void)
{
    int sent = atomic_load(&all->sent);
    for (; received < sent; received++) {
        if (all->message[received].from != Tmk_proc_id) {
            memcpy(all->message[received].at, all->message[received].bytes,
                   (size_t)all->message[received].size);
        }
    }
    since = processor_time();
}

/* What a process may wait for, beside conditions of locks. */
#define SOMETHING UINT64_MAX
#define CONDITION_OF(number) (1 + (uint64_t)(number))

static void set_clock(uint64_t at_least)
{
    clock_here = clock_here < at_least ? at_least : clock_here;
    atomic_store(&all->time[Tmk_proc_id], clock_here);
}

/* Whether a process that waits for nothing may yet do something before now. */
static int is_behind(int rank)
{
    uint64_t time = atomic_load(&all->time[rank]);
    return atomic_load(&all->waits[rank]) == 0 &&
           (time < clock_here || (time == clock_here && rank < Tmk_proc_id));
}

/* Waits until nobody is behind, but not with a lock for which who is behind may wait. */
static void take_turn(void)
{
    /* Ever longer: whoever wakes takes the processor from who computes. */
    struct timespec shortly = { 0, 20000 };
    set_clock(0);
    for (int rank = 0; rank < Tmk_nprocs && locks_held == 0; rank++) {
        while (rank != Tmk_proc_id && is_behind(rank)) {
            nanosleep(&shortly, NULL);
            shortly.tv_nsec += shortly.tv_nsec < 400000 ? shortly.tv_nsec : 0;
        }
    }
}

/* What the kernel takes for a stop, beside what the handler sees. */
static void calibrate(void)
{
    enum { TIMES = 512 };
    uint64_t seen = 0;
    on = 1;
    /* The first time pages get their memory. */
    for (int turn = 0; turn < 2; turn++) {
        count = 0;
        since = processor_time();
        for (size_t page = 0; page < TIMES; page++) {
            ((volatile char *)HEAP_AT)[page * PAGE] = 0;
        }
        /* What the handler wrote down is to be seen here: no call tells the compiler of it. */
        atomic_signal_fence(memory_order_seq_cst);
        seen = 0;
        for (size_t at = 0; at < count; at++) {
            seen += events[at].kind == 'w' ? events[at].number : 0;
        }
        pause_here();
    }
    per_stop = seen / TIMES;
    if (per_stop == 0) {
        fprintf(stderr, "tmk trace: stops take no time, which cannot be\n");
        _exit(1);
    }
    count = 0;
    on = 0;
}

static void prepare(void)
{
    int file = memfd_create("tmk trace", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)HEAP) != 0) {
        fail("tmk trace: memfd");
    }
    char *heap;
    if (plain) {
        heap = mmap(HEAP_AT, HEAP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    } else {
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        heap = mmap(HEAP_AT, HEAP, PROT_NONE, kind, -1, 0);
    }
    back = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (heap != HEAP_AT || back == MAP_FAILED || all == MAP_FAILED) {
        fail("tmk trace: mmap");
    }
    pthread_mutexattr_t with;
    pthread_mutexattr_init(&with);
    pthread_mutexattr_setpshared(&with, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&all->sending, &with);
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    for (int which = 0; which < LOCKS; which++) {
        pthread_mutex_init(&all->lock[which].mutex, &with);
        pthread_cond_init(&all->lock[which].cond, &cond);
    }
    pthread_barrierattr_t barriers;
    pthread_barrierattr_init(&barriers);
    pthread_barrierattr_setpshared(&barriers, PTHREAD_PROCESS_SHARED);
    for (int which = 0; which < BARRIERS; which++) {
        pthread_barrier_init(&all->barrier[which].barrier, &barriers, (unsigned)Tmk_nprocs);
    }
}

/* What each process has for itself. */
static void prepare_own(void)
{
    twins = memory(HEAP);
    state = memory(PAGES);
    touched = memory(PAGES * sizeof *touched);
    store_of = memory(PAGES * sizeof *store_of);
    events = memory(MOST_EVENTS * sizeof *events);
    struct sigaction action = { .sa_sigaction = stopped, .sa_flags = SA_SIGINFO | SA_NODEFER };
    if (sigaction(SIGSEGV, &action, NULL) != 0) {
        fail("tmk trace: sigaction");
    }
}

void Tmk_startup(int argc, char *const *argv)
{
    (void)argc;
    (void)argv;
    const char *nodes = getenv("TMK_TRACE_NODES");
    directory = getenv("TMK_TRACE");
    plain = getenv("TMK_TRACE_PLAIN") != NULL;
    Tmk_nprocs = nodes == NULL ? 0 : atoi(nodes);
    if (directory == NULL || Tmk_nprocs < 1 || Tmk_nprocs > TMK_NPROCS) {
        fprintf(stderr, "tmk trace: TMK_TRACE names a directory, TMK_TRACE_NODES how many processes\n");
        exit(2);
    }
    fflush(NULL);
    prepare();
    for (int rank = 1; rank < Tmk_nprocs; rank++) {
        pid_t child = fork();
        if (child < 0) {
            fail("tmk trace: fork");
        }
        if (child == 0) {
            Tmk_proc_id = rank;
            break;
        }
    }
    prepare_own();
    if (!plain) {
        calibrate();
    }
    on = 1;
    clock_here = 0;
    pthread_barrier_wait(&all->barrier[BARRIERS - 1].barrier);
    since = processor_time();
}

static void keep(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.trace", directory, Tmk_proc_id);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fail(path);
    }
    for (size_t at = 0; at < count; at++) {
        const event *one = &events[at];
        switch (one->kind) {
        case 'n':
            fprintf(file, "n\n");
            break;
        case 's':
            fprintf(file, "s %llu %u\n", (unsigned long long)one->number, one->extra);
            break;
        case 'c':
            fprintf(file, "c %llu %u\n", (unsigned long long)one->number, one->extra);
            break;
        default:
            fprintf(file, "%c %llu\n", (char)one->kind, (unsigned long long)one->number);
        }
    }
    if (fclose(file) != 0) {
        fail(path);
    }
}

void Tmk_exit(int status)
{
    pause_here();
    atomic_store(&all->waits[Tmk_proc_id], SOMETHING);
    fflush(NULL);
    keep();
    int others = 0;
    while (Tmk_proc_id == 0 && wait(&others) > 0) {
        status |= others != 0;
    }
    _exit(status);
}

void *Tmk_malloc(size_t size)
{
    size_t whole = PAGE;
    while (whole < size) {
        whole *= 2;
    }
    if (size < PAGE) {
        for (whole = 16; whole < size;) {
            whole *= 2;
        }
    }
    size_t at = atomic_load(&all->used), begin;
    do {
        begin = (at + whole - 1) / whole * whole;
    } while (!atomic_compare_exchange_weak(&all->used, &at, begin + whole));
    return begin + whole > HEAP ? NULL : HEAP_AT + begin;
}

int Tmk_sum_doubles(double *ptr, size_t number)
{
    size_t begin = (size_t)((char *)ptr - HEAP_AT);
    pthread_mutex_lock(&all->sending);
    int place = atomic_load(&all->sums);
    for (int which = 0; which < place; which++) {
        if (all->sum[which].begin == begin) {
            place = -1;
            break;
        }
    }
    if (place == SUMS) {
        fprintf(stderr, "tmk trace: too many sums\n");
        _exit(1);
    }
    if (place >= 0) {
        all->sum[place].begin = begin;
        all->sum[place].end = begin + number * sizeof(double);
        atomic_store(&all->sums, place + 1);
    }
    pthread_mutex_unlock(&all->sending);
    return 1;
}

void Tmk_free(void *ptr)
{
    (void)ptr;
}

void *Tmk_sbrk(size_t increment)
{
    return Tmk_malloc(increment);
}

void Tmk_distribute(const void *ptr, int size)
{
    pthread_mutex_lock(&all->sending);
    int place = atomic_load(&all->sent);
    if (place == SENT || size > LONGEST) {
        fprintf(stderr, "tmk trace: too much is distributed\n");
        _exit(1);
    }
    all->message[place].at = (void *)(uintptr_t)ptr;
    all->message[place].size = size;
    all->message[place].from = Tmk_proc_id;
    memcpy(all->message[place].bytes, ptr, (size_t)size);
    atomic_store(&all->sent, place + 1);
    pthread_mutex_unlock(&all->sending);
}

/* Passes a barrier. When anybody goes on, the clocks of all are set. */
static void meet(pthread_barrier_t *at)
{
    _Atomic uint64_t *last = &all->last[passed++ % 2];
    uint64_t others = atomic_load(last);
    while (others < clock_here && !atomic_compare_exchange_weak(last, &others, clock_here)) {
    }
    atomic_store(&all->waits[Tmk_proc_id], SOMETHING);
    pthread_barrier_wait(at);
    set_clock(atomic_load(last));
    atomic_store(&all->waits[Tmk_proc_id], 0);
    pthread_barrier_wait(at);
}

void Tmk_barrier(unsigned number)
{
    pause_here();
    add('b', number, 0);
    size_t place = number % (BARRIERS - 1);
    for (;;) {
        uint64_t nobody = 0;
        if (atomic_compare_exchange_strong(&all->barrier[place].number, &nobody, number + 1ull) ||
            nobody == number + 1ull) {
            break;
        }
        place = (place + 1) % (BARRIERS - 1);
    }
    meet(&all->barrier[place].barrier);
    go_on();
}

static lock *lock_of(unsigned number)
{
    size_t place = number * 2654435761u % LOCKS;
    for (;;) {
        uint64_t nobody = 0;
        if (atomic_compare_exchange_strong(&all->lock[place].number, &nobody, number + 1ull) ||
            nobody == number + 1ull) {
            return &all->lock[place];
        }
        place = (place + 1) % LOCKS;
    }
}

void Tmk_lock_acquire(unsigned number)
{
    pause_here();
    add('a', number, 0);
    lock *wanted = lock_of(number);
    take_turn();
    if (pthread_mutex_trylock(&wanted->mutex) != 0) {
        /* Who has it goes first, whatever its clock says. */
        atomic_store(&all->waits[Tmk_proc_id], SOMETHING);
        pthread_mutex_lock(&wanted->mutex);
    }
    set_clock(wanted->free_at);
    atomic_store(&all->waits[Tmk_proc_id], 0);
    locks_held++;
    go_on();
}

void Tmk_lock_release(unsigned number)
{
    pause_here();
    add('r', number, 0);
    lock *held = lock_of(number);
    set_clock(0);
    held->free_at = clock_here;
    locks_held--;
    pthread_mutex_unlock(&held->mutex);
    go_on();
}

void Tmk_lock_cond_wait(unsigned number, unsigned cond)
{
    (void)cond;
    pause_here();
    size_t place = count;
    add('c', number, 0);
    lock *held = lock_of(number);
    uint64_t seen = held->signals;
    set_clock(0);
    held->free_at = clock_here;
    atomic_store(&all->waits[Tmk_proc_id], CONDITION_OF(number));
    while (held->signals == seen) {
        pthread_cond_wait(&held->cond, &held->mutex);
    }
    clock_here = atomic_load(&all->time[Tmk_proc_id]);
    set_clock(held->free_at);
    events[place].extra = (uint32_t)held->signals;
    go_on();
}

/* Those who wait for a condition go on now. */
static void wake_clocks(uint64_t condition)
{
    for (int rank = 0; rank < Tmk_nprocs; rank++) {
        if (atomic_load(&all->waits[rank]) == condition) {
            atomic_store(&all->time[rank], clock_here);
            atomic_store(&all->waits[rank], 0);
        }
    }
}

/* Whoever waits looks again, as it must in any case. */
void Tmk_lock_cond_signal(unsigned number, unsigned cond)
{
    Tmk_lock_cond_broadcast(number, cond);
}

void Tmk_lock_cond_broadcast(unsigned number, unsigned cond)
{
    (void)cond;
    pause_here();
    add('g', number, 0);
    lock *held = lock_of(number);
    held->signals++;
    set_clock(0);
    wake_clocks(CONDITION_OF(number));
    pthread_cond_broadcast(&held->cond);
    go_on();
}

/* Programs measure themselves. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (on) {
        worked(processor_time(), 0);
        add('n', 0, 0);
        since = processor_time();
    }
    return (int)syscall(SYS_clock_gettime, clock, now);
}
