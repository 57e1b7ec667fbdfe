/* Makes the System V calls that it is told on its input, one a line, and says
 * what came of them: the result, or the name of the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

union semun { int val; struct semid_ds *buf; unsigned short *array; };

static char *memory = (char *)-1;
static volatile sig_atomic_t signals;
static volatile sig_atomic_t in_handler = -1, again;
static sigjmp_buf back;

static void say(long result) {
    if (result < 0) printf("%s\n", strerrorname_np(errno));
    else printf("%ld\n", result);
    fflush(stdout);
}
static int arm(int ms) {
    struct itimerval timer = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    return setitimer(ITIMER_REAL, &timer, NULL);
}
static void on_signal(int number) {
    (void)number;
    signals++;
    if (in_handler >= 0) {
        /* A system call in a handler, wherever the program was. */
        int before = errno;
        struct sembuf op = {0, 1, 0};
        semop(in_handler, &op, 1);
        /* Not before: where calls take long, the program would come to nothing else. */
        arm(again);
        errno = before;
    }
}
static void on_fault(int number) { siglongjmp(back, number); }

static long operate(char *line) {
    int id, count = 0, used = 0, number, op, flags, timeout = -1;
    struct sembuf ops[8];
    if (sscanf(line, "%d %d%n", &id, &timeout, &used) < 2) return -1;
    line += used;
    while (sscanf(line, " %d:%d:%d%n", &number, &op, &flags, &used) == 3) {
        ops[count++] = (struct sembuf){number, op, flags};
        line += used;
    }
    struct timespec limit = {timeout / 1000, timeout % 1000 * 1000000};
    return timeout < 0 ? semop(id, ops, count) : semtimedop(id, ops, count, &limit);
}

/* Objects of a family by their place in the table: how many there are, and the sum of
 * their numbers. A place without an object is EINVAL; one that may not be read EACCES. */
static void walk(int family, long *found, long *sum) {
    struct shm_info shm;
    struct seminfo sem;
    struct msginfo msg;
    struct shmid_ds shm_ds;
    struct semid_ds sem_ds;
    struct msqid_ds msg_ds;
    union semun info = {.buf = (struct semid_ds *)&sem}, stat = {.buf = &sem_ds};
    int highest = family == 0   ? shmctl(0, SHM_INFO, (struct shmid_ds *)&shm)
                  : family == 1 ? semctl(0, 0, SEM_INFO, info)
                                : msgctl(0, MSG_INFO, (struct msqid_ds *)&msg);
    int used = family == 0 ? shm.used_ids : family == 1 ? sem.semusz : msg.msgpool;
    *found = *sum = 0;
    for (int i = 0; i <= highest; i++) {
        int id = family == 0   ? shmctl(i, SHM_STAT, &shm_ds)
                 : family == 1 ? semctl(i, 0, SEM_STAT, stat)
                               : msgctl(i, MSG_STAT, &msg_ds);
        *found += id >= 0;
        *sum += id >= 0 ? id : 0;
    }
    if (*found != used) *found = -1;
}

/* Every call once, none of which may fail, whatever signals come. Only those that can
 * wait may be interrupted, and then nothing has happened. */
static int each_call(int key) {
    struct { long type; char text[16]; } m = {1, "text"};
    unsigned short values[2] = {3, 4};
    union semun all = {.array = values};
    struct shmid_ds ds;
    struct sembuf op = {0, -1, 0};
    int id = shmget(key, 8192, IPC_CREAT | IPC_EXCL | 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
    if (p == (char *)-1) return 1;
    p[5000] = 7;
    if (shmctl(id, IPC_STAT, &ds) || ds.shm_nattch != 1) return 2;
    if (shmdt(p)) return 3;
    if (shmctl(id, IPC_RMID, NULL)) return 11;
    id = semget(key, 2, IPC_CREAT | IPC_EXCL | 0600);
    if (id < 0 || semctl(id, 0, SETALL, all)) return 4;
    int r;
    while ((r = semop(id, &op, 1)) && errno == EINTR) {}
    if (r || semctl(id, 0, GETALL, all) || values[0] != 2 || values[1] != 4) return 5;
    if (semctl(id, 0, IPC_RMID)) return 6;
    id = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
    if (id < 0) return 7;
    while ((r = msgsnd(id, &m, 5, 0)) && errno == EINTR) {}
    if (r) return 8;
    while ((r = (int)msgrcv(id, &m, sizeof m.text, 0, 0)) < 0 && errno == EINTR) {}
    if (r != 5 || strcmp(m.text, "text")) return 9;
    return msgctl(id, IPC_RMID, NULL) ? 10 : 0;
}

/* Uses an object until it is no more; how often that went well. */
static long use_up(int family, int id, int rank) {
    struct { long type; char text[8]; } m = {1, ""};
    for (long times = 0;; times++) {
        struct sembuf op = {0, rank % 2 ? 1 : -1, 0};
        char *p;
        int r = 0;
        if (family == 0) {
            p = shmat(id, NULL, 0);
            r = p == (char *)-1 ? -1 : (p[rank]++, shmdt(p));
        } else if (family == 1) r = semop(id, &op, 1);
        else if (rank % 2) r = msgsnd(id, &m, 8, 0);
        else r = (int)msgrcv(id, &m, 8, 0, 0);
        if (r < 0) return times;
    }
}

/* munmap(2) without the C library, which nothing can stand in for. */
static long bare_munmap(void *address, size_t length) {
    long result;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_munmap), "D"(address), "S"(length)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_munmap;
    register long first __asm__("x0") = (long)address;
    register long second __asm__("x1") = (long)length;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second) : "memory");
    result = first;
#endif
    return result;
}

/* The program's own memory at a place: unmap HOW, and a byte put where something is mapped. */
static long replace_memory(int how, char *place, size_t length, int byte) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = place;
    if (how == 0) return munmap(place, length);
    if (how == 1) return bare_munmap(place, length);
    if (how == 2) p = mmap(place, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    if (how == 3) {
        p = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
        p = mremap(p, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    }
    if (how == 4) return mremap(place, length, byte * 0x1000L, 0) == place ? 0 : -1;
    if (how == 5) {
        /* Where nothing is. */
        if (bare_munmap(place, length)) return -1;
        p = mmap(place, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    }
    if (p != place) return -1;
    memset(place, byte, length);
    return 0;
}

static void perform(char *word, char *rest) {
    int a = 0, b = 0, c = 0, d = 0;
    long n = sscanf(rest, "%i %i %i %i", &a, &b, &c, &d);
    (void)n;
    if (!strcmp(word, "shmget")) say(shmget(a, b, c));
    else if (!strcmp(word, "shmat")) {
        void *wish = c ? (void *)(0x7e0000000000 + c * 0x1000L) : NULL;
        char *p = shmat(a, wish, b);
        if (p != (char *)-1) memory = p;
        say(p == (char *)-1 ? -1 : wish && p != wish ? 1 : 0);
    } else if (!strcmp(word, "shmat_at")) {
        /* shmat_at ID FLAGS PAGE BYTE: where it came to be, in pages behind a place. */
        char *p = shmat(a, (void *)(0x7e0000000000 + c * 0x1000L + d), b);
        if (p != (char *)-1) memory = p;
        say(p == (char *)-1 ? -1 : (p - (char *)0x7e0000000000) / 0x1000);
    } else if (!strcmp(word, "shmdt")) say(shmdt(memory));
    else if (!strcmp(word, "shmdt_at")) say(shmdt((void *)(0x7e0000000000 + a * 0x1000L)));
    else if (!strcmp(word, "replace"))
        /* replace HOW PAGE PAGES BYTE */
        say(replace_memory(a, (char *)(0x7e0000000000 + b * 0x1000L), c * 0x1000L, d));
    else if (!strcmp(word, "turn")) {
        /* turn PAGE: what is peeked at and poked is there now. */
        memory = (char *)(0x7e0000000000 + a * 0x1000L);
        say(0);
    }
    else if (!strcmp(word, "execute")) {
        /* A function that only returns, in the segment. */
#if defined(__x86_64__)
        static const unsigned char code[] = {0xc3};
#else
        static const unsigned char code[] = {0xc0, 0x03, 0x5f, 0xd6};
#endif
        if (a) memcpy(memory, code, sizeof code);
        __builtin___clear_cache(memory, memory + sizeof code);
        struct sigaction action = {.sa_handler = on_fault}, was;
        sigaction(SIGSEGV, &action, &was);
        int fault = sigsetjmp(back, 1);
        if (fault == 0) {
            ((void (*)(void))memory)();
            say(0);
        } else {
            printf("signal %s\n", sigabbrev_np(fault));
            fflush(stdout);
        }
        sigaction(SIGSEGV, &was, NULL);
    } else if (!strcmp(word, "mutex")) {
        pthread_mutexattr_t shared;
        pthread_mutexattr_init(&shared);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        say(pthread_mutex_init((pthread_mutex_t *)memory, &shared));
    } else if (!strcmp(word, "futex")) say(syscall(SYS_futex, memory, FUTEX_WAKE, 1, NULL, NULL, 0));
    else if (!strcmp(word, "walk")) {
        long found, sum;
        walk(a, &found, &sum);
        printf("%ld objects, numbers %ld\n", found, sum);
        fflush(stdout);
    } else if (!strcmp(word, "stat_of")) {
        /* stat_of FAMILY ID ANY: SHM_STAT and its kin, given the number of an object. */
        struct shmid_ds shm;
        struct msqid_ds msg;
        struct semid_ds sem;
        union semun arg = {.buf = &sem};
        say(a == 0   ? shmctl(b, c ? SHM_STAT_ANY : SHM_STAT, &shm)
            : a == 1 ? semctl(b, 0, c ? SEM_STAT_ANY : SEM_STAT, arg)
                     : msgctl(b, c ? MSG_STAT_ANY : MSG_STAT, &msg));
    } else if (!strcmp(word, "shmget_pages")) say(shmget(a, b * 0x1000UL, c));
    else if (!strcmp(word, "each_call")) {
        /* each_call KEY TIMES SIGNALS: so often at least, and until so many came; what failed, or 0. */
        int r = 0;
        for (int i = 0; (i < b || signals < c) && r == 0; i++) r = each_call(a);
        if (r) fprintf(stderr, "each_call fails at step %d: %m\n", r);
        say(r);
    } else if (!strcmp(word, "use_up")) {
        /* use_up FAMILY ID RANK: why that ended. */
        use_up(a, b, c);
        say(-1);
    }
    else if (!strcmp(word, "nattch") || !strcmp(word, "shmmode") || !strcmp(word, "lpid")) {
        struct shmid_ds ds;
        int r = shmctl(a, IPC_STAT, &ds);
        say(r < 0             ? r
            : *word == 'n'    ? (long)ds.shm_nattch
            : *word == 'l'    ? (long)(ds.shm_lpid == getpid())
                              : (long)ds.shm_perm.mode);
    } else if (!strcmp(word, "chown")) {
        struct shmid_ds ds;
        int r = shmctl(a, IPC_STAT, &ds);
        ds.shm_perm.uid = b;
        ds.shm_perm.mode = c;
        say(r < 0 ? r : shmctl(a, IPC_SET, &ds));
    } else if (!strcmp(word, "peek") || !strcmp(word, "poke")) {
        struct sigaction action = {.sa_handler = on_fault}, was[2];
        sigaction(SIGSEGV, &action, &was[0]);
        sigaction(SIGBUS, &action, &was[1]);
        int fault = sigsetjmp(back, 1);
        if (fault == 0) {
            if (!strcmp(word, "poke")) ((volatile char *)memory)[a] = (char)b;
            say(((volatile char *)memory)[a]);
        } else {
            printf("signal %s\n", sigabbrev_np(fault));
            fflush(stdout);
        }
        sigaction(SIGSEGV, &was[0], NULL);
        sigaction(SIGBUS, &was[1], NULL);
    } else if (!strcmp(word, "crash")) { ((volatile char *)memory)[a] = 1; say(0); }
    else if (!strcmp(word, "semget")) say(semget(a, b, c));
    else if (!strcmp(word, "semop")) say(operate(rest));
    else if (!strcmp(word, "semctl")) {
        union semun arg = {.val = d};
        say(semctl(a, b, c, arg));
    } else if (!strcmp(word, "msgget")) say(msgget(a, b));
    else if (!strcmp(word, "msgsnd")) {
        struct { long type; char text[9000]; } m;
        m.type = b;
        memset(m.text, 'x', sizeof m.text);
        say(msgsnd(a, &m, c, d));
    } else if (!strcmp(word, "msgrcv")) {
        struct { long type; char text[9000]; } m;
        long r = msgrcv(a, &m, b, c, d);
        say(r < 0 ? r : m.type * 10000 + r);
    } else if (!strcmp(word, "rm")) {
        say(a == 0 ? shmctl(b, IPC_RMID, NULL) : a == 1 ? semctl(b, 0, IPC_RMID)
                                                        : msgctl(b, IPC_RMID, NULL));
    } else if (!strcmp(word, "raw")) {
        /* raw A B ...: through syscall(). */
        say(syscall(a == 0 ? SYS_shmget : a == 1 ? SYS_semget : SYS_msgget, b, c, d));
    } else if (!strcmp(word, "setuid")) say(setresgid(a, a, a) || setresuid(a, a, a) ? -1 : 0);
    else if (!strcmp(word, "alarm")) {
        /* alarm MS RESTART [SEMAPHORE]: signals are handled, with or without SA_RESTART, and the
         * semaphore is raised by each, which comes so long after the one before. */
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = b ? SA_RESTART : 0};
        sigaction(SIGALRM, &action, NULL);
        again = a;
        if (n > 2) in_handler = c;
        int r = arm(a);
        /* The last one may have come just now. */
        if (n <= 2) in_handler = -1;
        say(r);
    } else if (!strcmp(word, "signals")) say(signals);
    else if (!strcmp(word, "fork")) {
        /* The child goes on with the orders, its parent waits for it. */
        fflush(stdout);
        pid_t child = fork();
        if (child > 0) {
            int status;
            waitpid(child, &status, 0);
            say(WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status));
        } else say(child);
    } else if (!strcmp(word, "exec")) {
        fflush(stdout);
        execl("/proc/self/exe", "sysv_scripted_node", NULL);
        say(-1);
    } else if (!strcmp(word, "exit")) exit(a);
    else if (!strcmp(word, "loop")) {
        /* loop ID COUNT: takes and gives back, with undo, and counts in memory. */
        struct sembuf take = {0, -1, SEM_UNDO}, give = {0, 1, SEM_UNDO};
        long r = 0;
        for (int i = 0; i < b && r == 0; i++) {
            while ((r = semop(a, &take, 1)) < 0 && errno == EINTR) {}
            if (r == 0) ++*(volatile int *)memory;
            if (r == 0) r = semop(a, &give, 1);
        }
        say(r < 0 ? r : *(volatile int *)memory);
    } else if (!strcmp(word, "count")) say(*(volatile int *)memory);
    else { errno = EINVAL; say(-1); }
}

/* The next order, whatever signals come while there is none. Byte by byte, so that a
 * child finds the orders its parent has not read. */
static int next_order(char *line, size_t room) {
    size_t length = 0;
    while (length + 1 < room) {
        ssize_t n = read(STDIN_FILENO, line + length, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        if (line[length++] == '\n') break;
    }
    line[length] = 0;
    return 1;
}

int main(void) {
    char line[256], word[32];
    printf("ready\n");
    fflush(stdout);
    while (next_order(line, sizeof line)) {
        int used = 0;
        if (sscanf(line, "%31s%n", word, &used) == 1) perform(word, line + used);
    }
    return 0;
}
