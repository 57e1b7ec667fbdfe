/* What Tmk.h promises, on several nodes. The first argument says which part. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <Tmk.h>

#define LOCKS 100
#define TURNS 200

static void check(int ok, const char *what)
{
    if (!ok) {
        Tmk_errexit("%s: wrong\n", what);
    }
}

/* Where other processes have them elsewhere. */
static long *shared;
int array[5000];
static struct {
    char name[16];
    double number;
} record;

struct node {
    struct node *next;
    int value;
};

/* Variables arrive with the next barrier, pointers lead to the same memory. */
static void distribute(void)
{
    static struct node *list;
    int i, sum = 0;
    struct node *node;
    if (Tmk_proc_id == 0) {
        shared = (long *)Tmk_malloc(8 * sizeof(long));
        for (i = 0; i < 5000; i++) {
            array[i] = i * i;
        }
        strcpy(record.name, "record");
        record.number = 1.5;
        for (i = 0; i < 100; i++) {
            node = (struct node *)Tmk_malloc(sizeof *node);
            node->next = list;
            node->value = i;
            list = node;
        }
        Tmk_distribute(&shared, sizeof shared);
        Tmk_distribute(array, sizeof array);
        Tmk_distribute(&record, sizeof record);
        Tmk_distribute(&list, sizeof list);
    }
    Tmk_barrier(0);
    check(array[4999] == 4999 * 4999, "array");
    check(strcmp(record.name, "record") == 0 && record.number == 1.5, "record");
    for (node = list; node != NULL; node = node->next) {
        sum += node->value;
    }
    check(sum == 4950, "list");
    Tmk_barrier(0);
    /* What is distributed again replaces what was; by others, too. */
    for (i = 0; i < TURNS; i++) {
        if (Tmk_proc_id == i % Tmk_nprocs) {
            record.number = i;
            Tmk_distribute(&record, sizeof record);
        }
        Tmk_barrier(1);
        check(record.number == i, "distributed again");
        Tmk_barrier(2);
    }
    Tmk_barrier(3);
    if (Tmk_proc_id == 0) {
        /* All blocks that values travelled in were given back. */
        void *whole;
        while (list != NULL) {
            node = list;
            list = list->next;
            Tmk_free(node);
        }
        Tmk_free(shared);
        whole = Tmk_malloc((size_t)1 << 30);
        check(whole != NULL, "everything came back");
        check(Tmk_malloc(1) == NULL, "nothing is left");
        Tmk_free(whole);
    }
    Tmk_barrier(4);
}

/* Locks exclude, conditions pass a turn round; the value distributed under a lock
 * is there for who gets the lock next. */
static void synchronize(void)
{
    int turn;
    unsigned lock;
    if (Tmk_proc_id == 0) {
        shared = (long *)Tmk_malloc((LOCKS + 1) * sizeof(long));
        memset(shared, 0, (LOCKS + 1) * sizeof(long));
        Tmk_distribute(&shared, sizeof shared);
    }
    Tmk_barrier(7);
    for (lock = 0; lock < LOCKS; lock++) {
        Tmk_lock_acquire(lock * 1000003u);
        shared[lock]++;
        Tmk_lock_release(lock * 1000003u);
    }
    Tmk_lock_acquire(7);
    for (turn = 0; turn < TURNS; turn++) {
        while (shared[LOCKS] % Tmk_nprocs != Tmk_proc_id) {
            Tmk_lock_cond_wait(7, 9);
        }
        check(shared[LOCKS] == 0 || record.number == shared[LOCKS], "distributed under a lock");
        shared[LOCKS]++;
        record.number = shared[LOCKS];
        Tmk_distribute(&record.number, sizeof record.number);
        Tmk_lock_cond_broadcast(7, 9);
    }
    Tmk_lock_release(7);
    Tmk_barrier(7);
    for (lock = 0; lock < LOCKS; lock++) {
        check(shared[lock] == Tmk_nprocs, "a lock excludes");
    }
    check(shared[LOCKS] == (long)TURNS * Tmk_nprocs, "all turns");
    Tmk_barrier(7);
}

/* Touched here and there, far more than there is memory. */
static void sparse(void)
{
    static char *heap;
    size_t step = (size_t)1 << 30, at;
    size_t size = (size_t)128 << 30;
    if (Tmk_proc_id == 0) {
        heap = (char *)Tmk_malloc(size);
        check(heap != NULL, "128 GiB");
        Tmk_distribute(&heap, sizeof heap);
    }
    Tmk_barrier(0);
    for (at = (size_t)Tmk_proc_id * step; at < size; at += step * (size_t)Tmk_nprocs) {
        heap[at] = (char)(at >> 30);
    }
    Tmk_barrier(0);
    for (at = 0; at < size; at += step) {
        check(heap[at] == (char)(at >> 30), "a byte far away");
    }
    Tmk_barrier(0);
}

/* Every node uses its own, and some of the others'. */
static void many_locks(unsigned count)
{
    unsigned lock;
    for (lock = 0; lock < count; lock++) {
        Tmk_lock_acquire(lock * (unsigned)Tmk_nprocs + (unsigned)Tmk_proc_id);
        Tmk_lock_release(lock * (unsigned)Tmk_nprocs + (unsigned)Tmk_proc_id);
    }
    Tmk_barrier(0);
}

/* Some processes meet, the others go on; what one of them stored the next one sees. */
static void meet_some(void)
{
    static long *turns;
    int turn, half = Tmk_nprocs / 2 + 1;
    if (Tmk_proc_id == 0) {
        turns = (long *)Tmk_malloc(sizeof *turns);
        Tmk_distribute(&turns, sizeof turns);
    }
    Tmk_barrier(0);
    for (turn = 0; turn < TURNS && Tmk_proc_id < half; turn++) {
        if (turn % half == Tmk_proc_id) {
            check(*turns == turn, "what was stored before a barrier of some");
            ++*turns;
        }
        Tmk_barrier_some(50, (unsigned)half);
    }
    Tmk_barrier(0);
    check(*turns == TURNS, "all turns of some");
    Tmk_barrier(0);
}

/* A condition is signalled by a process that does not hold its lock. */
static void signal_without_lock(void)
{
    static volatile long *flag;
    if (Tmk_proc_id == 0) {
        flag = (long *)Tmk_malloc(sizeof *flag);
        Tmk_distribute((void *)&flag, sizeof flag);
    }
    Tmk_barrier(0);
    if (Tmk_proc_id == 0) {
        Tmk_lock_acquire(5);
        while (!*flag) {
            Tmk_lock_cond_wait(5, 1);
        }
        Tmk_lock_release(5);
    } else if (Tmk_proc_id == 1) {
        Tmk_lock_acquire(5);
        *flag = 1;
        Tmk_lock_release(5);
        Tmk_lock_cond_signal(5, 1);
    }
    Tmk_barrier(0);
}

#define NUMBERS 1200

/* Everybody adds to the same numbers, without a lock, and barriers show all of it; a lock
 * shows what its last holder knew. `apart` says whether each node adds in a copy of its own. */
static void sums(int apart)
{
    static double *numbers;
    int turn, i, declared;
    double all = 0.5 * Tmk_nprocs * (Tmk_nprocs + 1);
    if (Tmk_proc_id == 0) {
        /* Not from the beginning of a page on, and in front of what is no sum. */
        numbers = (double *)Tmk_malloc(4096 * sizeof(double)) + 100;
        Tmk_distribute(&numbers, sizeof numbers);
    }
    Tmk_barrier(0);
    declared = Tmk_sum_doubles(numbers, NUMBERS);
    check(declared == apart, "whether nodes add apart");
    Tmk_barrier(0);
    for (turn = 1; turn <= TURNS; turn++) {
        for (i = 0; i < NUMBERS; i++) {
            Tmk_add_double(&numbers[i], (i + 1) * (Tmk_proc_id + 1));
        }
        numbers[NUMBERS + Tmk_proc_id] = turn;
        Tmk_barrier(1);
        for (i = 0; i < NUMBERS; i++) {
            check(numbers[i] == turn * (i + 1) * all, "a sum");
        }
        for (i = 0; i < Tmk_nprocs; i++) {
            check(numbers[NUMBERS + i] == turn, "a number beside sums");
        }
        Tmk_barrier(2);
    }
    Tmk_lock_acquire(1);
    Tmk_add_double(&numbers[0], 1);
    numbers[-1]++;
    check(numbers[0] >= TURNS * all + numbers[-1], "a sum under a lock");
    Tmk_lock_release(1);
    Tmk_barrier(1);
    check(numbers[0] == TURNS * all + Tmk_nprocs && numbers[-1] == Tmk_nprocs, "the last sum");
}

static void mistaken_sums(const char *how)
{
    static double variable;
    double *numbers = (double *)Tmk_malloc(100 * sizeof(double));
    if (strcmp(how, "elsewhere") == 0) {
        Tmk_sum_doubles(&variable, 1);
    } else if (strcmp(how, "none") == 0) {
        Tmk_sum_doubles(numbers, 0);
    } else if (strcmp(how, "beyond") == 0) {
        Tmk_sum_doubles(numbers, (size_t)-1 / 8);
    } else if (strcmp(how, "twice") == 0) {
        Tmk_sum_doubles(numbers, 10);
        Tmk_sum_doubles(numbers, 10);
        Tmk_sum_doubles(numbers + 9, 10);
    } else {
        Tmk_sum_doubles((double *)(void *)((char *)numbers + 4), 1);
    }
}

static void nothing(int number)
{
    (void)number;
}

/* Signals disturb nobody who waits. */
static void disturb(void)
{
    struct itimerval often;
    struct sigaction without_restart;
    memset(&without_restart, 0, sizeof without_restart);
    without_restart.sa_handler = nothing;
    memset(&often, 0, sizeof often);
    often.it_interval.tv_usec = often.it_value.tv_usec = 2000;
    sigaction(SIGALRM, &without_restart, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int local = 0;
    Tmk_startup(argc, argv);
    check(Tmk_proc_id >= 0 && Tmk_proc_id < Tmk_nprocs, "the number of a process");
    if (strcmp(part, "all") == 0) {
        distribute();
        disturb();
        synchronize();
    } else if (strcmp(part, "some") == 0) {
        meet_some();
        signal_without_lock();
    } else if (strcmp(part, "crowd") == 0) {
        Tmk_barrier_some(1, 77);
    } else if (strcmp(part, "sparse") == 0) {
        sparse();
    } else if (strcmp(part, "locks") == 0) {
        many_locks((unsigned)atoi(argv[2]));
    } else if (strcmp(part, "sums") == 0) {
        sums(strcmp(argv[2], "apart") == 0);
    } else if (strcmp(part, "sum") == 0) {
        mistaken_sums(argv[2]);
    } else if (strcmp(part, "stack") == 0) {
        Tmk_distribute(&local, sizeof local);
    } else if (strcmp(part, "free") == 0) {
        Tmk_free((char *)Tmk_malloc(100) + 16);
    } else if (strcmp(part, "release") == 0) {
        Tmk_lock_release(3);
    } else if (strcmp(part, "die") == 0) {
        if (Tmk_proc_id == 0) {
            Tmk_lock_acquire(3);
            Tmk_barrier(0);
            _exit(0);
        }
        Tmk_barrier(0);
        Tmk_lock_acquire(3);
    }
    printf("process %d of %d is well\n", Tmk_proc_id, Tmk_nprocs);
    fflush(stdout);
    Tmk_exit(0);
}
