/* Makes the same System V calls for the same seed, and prints what came of each
 * in words that do not depend on who answers: numbers of objects in the order
 * in which they were first seen, process numbers as who it is. Its output from the
 * kernel and from PageMesh must be the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

union semun { int val; struct semid_ds *buf; unsigned short *array; struct seminfo *info; };

static uint64_t state;
static unsigned dice(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

enum { KEYS = 4, IDS = 64, MAPS = 16 };
static int base;
static int ids[3][IDS], known[3];
static char *maps[MAPS];
static pid_t parent, child;

static int number(int family, int id) {
    for (int i = 0; i < known[family]; i++)
        if (ids[family][i] == id) return i;
    if (known[family] < IDS) { ids[family][known[family]] = id; return known[family]++; }
    return IDS;
}
static int some(int family) {
    if (known[family] == 0 || dice(20) == 0) return dice(2) ? -1 : INT_MAX;
    return ids[family][dice(known[family])];
}
/* A child makes nothing that nobody would remove. */
static int key(void) { return dice(5) == 0 && getpid() == parent ? IPC_PRIVATE : base + (int)dice(KEYS); }
static int flags(void) {
    static const int modes[] = {0600, 0644, 0400, 0000, 0666};
    return modes[dice(5)] | (dice(3) ? IPC_CREAT : 0) | (dice(4) ? 0 : IPC_EXCL);
}
static const char *who(pid_t pid) {
    return pid == 0 ? "nobody" : pid == parent ? "parent" : pid == child ? "child" : "other";
}
static const char *failed(long result) { return result < 0 ? strerrorname_np(errno) : "ok"; }
static void perm(struct ipc_perm *p) {
    printf(" key %d owner %d/%d creator %d/%d mode %o", p->__key ? p->__key - base : -1, p->uid,
           p->gid, p->cuid, p->cgid, p->mode);
}

static void shm_step(void) {
    static const size_t sizes[] = {0, 1, 4096, 5000, 8192};
    struct shmid_ds ds;
    int id, result;
    switch (dice(9)) {
    case 0: case 1: {
        int k = key(), f = flags();
        size_t size = sizes[dice(5)];
        id = shmget(k, size, f);
        printf("shmget %s", failed(id));
        if (id >= 0) printf(" #%d", number(0, id));
        break;
    }
    case 2: case 3: {
        int at = dice(MAPS), f = (dice(4) ? 0 : SHM_RDONLY) | (dice(8) ? 0 : SHM_REMAP);
        id = some(0);
        if (maps[at]) break;
        char *wish = dice(10) ? NULL : (char *)(uintptr_t)(dice(2) ? 12345 : 1);
        char *p = shmat(id, wish, f);
        int no = p == (char *)-1;
        printf("shmat %s", failed(no ? -1 : 0));
        if (no) break;
        maps[at] = p;
        printf(" finds %d", p[0]);
        if (!(f & SHM_RDONLY)) p[0] = (char)dice(100);
        break;
    }
    case 4: {
        int at = dice(MAPS);
        void *p = maps[at] ? maps[at] : (void *)(uintptr_t)(dice(2) ? 4096 : 77);
        result = shmdt(p);
        if (result == 0) maps[at] = NULL;
        printf("shmdt %s", failed(result));
        break;
    }
    case 5: case 6:
        id = some(0);
        result = shmctl(id, IPC_STAT, &ds);
        printf("shmstat %s", failed(result));
        if (result == 0) {
            perm(&ds.shm_perm);
            printf(" size %zu nattch %lu cpid %s lpid %s atime %d dtime %d ctime %d", ds.shm_segsz,
                   (unsigned long)ds.shm_nattch, who(ds.shm_cpid), who(ds.shm_lpid),
                   ds.shm_atime != 0, ds.shm_dtime != 0, ds.shm_ctime != 0);
        }
        break;
    case 7:
        id = some(0);
        memset(&ds, 0, sizeof ds);
        ds.shm_perm.uid = dice(8) ? 0 : dice(2) ? 1000 : (uid_t)-1;
        ds.shm_perm.mode = 0600 + dice(64);
        result = shmctl(id, IPC_SET, dice(10) ? &ds : NULL);
        printf("shmset %s", failed(result));
        break;
    case 8:
        id = some(0);
        result = shmctl(id, dice(6) ? IPC_RMID : 9999, NULL);
        printf("shmrm %s", failed(result));
        break;
    }
}

static void sem_step(void) {
    struct semid_ds ds;
    unsigned short values[8] = {0};
    union semun arg = {0};
    int id, result, count;
    switch (dice(10)) {
    case 0: {
        int k = key(), n = (int)dice(6) - 1, f = flags();
        id = semget(k, n, f);
        printf("semget %s", failed(id));
        if (id >= 0) printf(" #%d", number(1, id));
        break;
    }
    case 1: case 2: case 3: case 4: {
        struct sembuf ops[3];
        count = dice(4);
        id = some(1);
        for (int i = 0; i < count; i++) {
            ops[i].sem_num = dice(4);
            ops[i].sem_op = (int)dice(7) - 3;
            if (dice(15) == 0) ops[i].sem_op = 32767;
            ops[i].sem_flg = IPC_NOWAIT | (dice(3) ? 0 : SEM_UNDO);
        }
        struct timespec none = {0, 0};
        if (dice(12) == 0) none.tv_nsec = 2000000000;
        int how = dice(3);
        void *where = dice(15) ? ops : NULL;
        result = how == 0   ? semop(id, where, count)
                 : how == 1 ? semtimedop(id, where, count, &none)
                            : (int)syscall(SYS_semtimedop, id, where, (size_t)count, NULL);
        printf("semop %d %s", count, failed(result));
        break;
    }
    case 5: {
        static const int gets[] = {GETVAL, GETPID, GETNCNT, GETZCNT};
        int what = dice(4), n = (int)dice(6) - 1;
        id = some(1);
        result = semctl(id, n, gets[what]);
        printf("semget%d %s", what, failed(result));
        if (result >= 0) printf(what == 1 ? " %s" : " %s", what == 1 ? who(result) : "");
        if (result >= 0 && what != 1) printf("%d", result);
        break;
    }
    case 6:
        id = some(1);
        arg.val = dice(6) ? (int)dice(5) : dice(2) ? -1 : 40000;
        result = semctl(id, (int)dice(5), SETVAL, arg);
        printf("setval %s", failed(result));
        break;
    case 7:
        id = some(1);
        arg.buf = &ds;
        result = semctl(id, 0, IPC_STAT, arg);
        count = result == 0 ? (int)ds.sem_nsems : 0;
        printf("semstat %s", failed(result));
        if (result == 0) {
            perm(&ds.sem_perm);
            printf(" nsems %d otime %d ctime %d", count, ds.sem_otime != 0, ds.sem_ctime != 0);
        }
        arg.array = values;
        result = semctl(id, 0, GETALL, arg);
        printf(" all %s", failed(result));
        for (int i = 0; i < count && result == 0; i++) printf(" %d", values[i]);
        break;
    case 8:
        id = some(1);
        for (int i = 0; i < 8; i++) values[i] = dice(30) ? dice(4) : 50000;
        arg.array = dice(10) ? values : NULL;
        result = semctl(id, 0, SETALL, arg);
        printf("setall %s", failed(result));
        break;
    case 9:
        if (dice(2)) break;
        id = some(1);
        result = semctl(id, 0, dice(6) ? IPC_RMID : 9999);
        printf("semrm %s", failed(result));
        break;
    }
}

static void msg_step(void) {
    struct { long type; char text[9000]; } m;
    struct msqid_ds ds;
    int id, result;
    memset(&m, 0, sizeof m);
    switch (dice(8)) {
    case 0: {
        int k = key(), f = flags();
        id = msgget(k, f);
        printf("msgget %s", failed(id));
        if (id >= 0) printf(" #%d", number(2, id));
        break;
    }
    case 1: case 2: case 3: {
        static const size_t sizes[] = {0, 1, 10, 500, 8192, 8193};
        size_t size = sizes[dice(6)];
        m.type = (long)dice(5);
        memset(m.text, 'a' + (int)dice(26), sizeof m.text);
        id = some(2);
        result = msgsnd(id, dice(20) ? &m : NULL, size, IPC_NOWAIT);
        printf("msgsnd %zu %s", size, failed(result));
        break;
    }
    case 4: case 5: {
        long type = (long)dice(7) - 3;
        int f = IPC_NOWAIT | (dice(3) ? 0 : MSG_NOERROR) | (dice(5) ? 0 : MSG_EXCEPT);
        size_t size = dice(3) ? sizeof m.text : dice(100);
        id = some(2);
        long got = msgrcv(id, &m, size, type, f);
        printf("msgrcv %s", failed(got));
        if (got >= 0) printf(" %ld type %ld %c", got, m.type, got ? m.text[got - 1] : '-');
        break;
    }
    case 6:
        id = some(2);
        result = msgctl(id, IPC_STAT, &ds);
        printf("msgstat %s", failed(result));
        if (result == 0) {
            perm(&ds.msg_perm);
            printf(" qnum %lu bytes %lu room %lu from %s to %s", (unsigned long)ds.msg_qnum,
                   (unsigned long)ds.__msg_cbytes, (unsigned long)ds.msg_qbytes,
                   who(ds.msg_lspid), who(ds.msg_lrpid));
        }
        break;
    case 7:
        id = some(2);
        if (dice(2)) {
            memset(&ds, 0, sizeof ds);
            ds.msg_perm.mode = 0600;
            ds.msg_qbytes = 100 + dice(16000);
            result = msgctl(id, IPC_SET, &ds);
            printf("msgset %s", failed(result));
        } else {
            result = msgctl(id, IPC_RMID, NULL);
            printf("msgrm %s", failed(result));
        }
        break;
    }
}

static void step(void) {
    switch (dice(3)) {
    case 0: shm_step(); break;
    case 1: sem_step(); break;
    case 2: msg_step(); break;
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    state = strtoull(argv[1], NULL, 0) * 7919 + 1;
    int steps = atoi(argv[2]);
    base = (int)(0x51000000 + (getpid() << 3));
    parent = getpid();
    for (int i = 0; i < steps; i++) {
        step();
        if (dice(60) == 0) {
            fflush(stdout);
            uint64_t before = state;
            child = fork();
            if (child == 0) {
                child = getpid();
                printf("child\n");
                for (int j = 0; j < 6; j++) step();
                fflush(stdout);
                _exit(0);
            }
            int status;
            waitpid(child, &status, 0);
            printf("child ends with %d\n", status);
            state = before + 1;
            /* What it made has no number here. */
        }
    }
    for (int k = 0; k < KEYS; k++) {
        shmctl(shmget(base + k, 0, 0), IPC_RMID, NULL);
        semctl(semget(base + k, 0, 0), 0, IPC_RMID);
        msgctl(msgget(base + k, 0), IPC_RMID, NULL);
    }
    for (int i = 0; i < known[0]; i++) shmctl(ids[0][i], IPC_RMID, NULL);
    for (int i = 0; i < known[1]; i++) semctl(ids[1][i], 0, IPC_RMID);
    for (int i = 0; i < known[2]; i++) msgctl(ids[2][i], IPC_RMID, NULL);
    return 0;
}
