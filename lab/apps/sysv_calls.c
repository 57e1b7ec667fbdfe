// How many System V calls a process makes in a second, alone on its objects.
//
//     sysv_calls [CALLS]                                        the kernel's
//     pagemesh sandbox 1 --sysv -- sysv_calls [CALLS]           PageMesh's

#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <time.h>

enum { TEXT = 64, WARM = 1000, MOST_KEYS = 2000, CALLS_PER_KEY = 50 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// The result of a call, which must not have failed.
static int checked(const char *call, long result) {
    if (result < 0) {
        perror(call);
        exit(1);
    }
    return (int)result;
}

static void semaphores(int calls) {
    int set = checked("semget", semget(IPC_PRIVATE, 1, 0600));
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
    double begin = 0;
    for (int pair = -WARM; pair < calls / 2; pair++) {
        if (pair == 0)
            begin = now();
        checked("semop", semop(set, &up, 1));
        checked("semop", semop(set, &down, 1));
    }
    printf("semop %.0f a second\n", calls / (now() - begin));
    begin = now();
    for (int call = 0; call < calls; call++)
        checked("semctl", semctl(set, 0, GETVAL));
    printf("semctl GETVAL %.0f a second\n", calls / (now() - begin));
    checked("semctl", semctl(set, 0, IPC_RMID));
}

static void messages(int calls) {
    int queue = checked("msgget", msgget(IPC_PRIVATE, 0600));
    struct {
        long type;
        char text[TEXT];
    } message = {1, "text"};
    double begin = now();
    for (int pair = 0; pair < calls / 2; pair++) {
        checked("msgsnd", msgsnd(queue, &message, TEXT, 0));
        checked("msgrcv", msgrcv(queue, &message, TEXT, 0, 0));
    }
    printf("messages of %d bytes, sent and received, %.0f a second\n", TEXT,
           calls / 2 / (now() - begin));
    checked("msgctl", msgctl(queue, IPC_RMID, NULL));
}

static void keys(int calls) {
    static int sets[MOST_KEYS];
    int count = calls / CALLS_PER_KEY < MOST_KEYS ? calls / CALLS_PER_KEY : MOST_KEYS;
    double begin = now();
    for (int key = 0; key < count; key++)
        sets[key] = checked("semget", semget(0x51000000 + key, 1, IPC_CREAT | IPC_EXCL | 0600));
    printf("semget of a new key %.2f microseconds\n", (now() - begin) / count * 1e6);
    for (int key = 0; key < count; key++)
        checked("semctl", semctl(sets[key], 0, IPC_RMID));
}

int main(int count, char **arguments) {
    int calls = count > 1 ? atoi(arguments[1]) : 200000;
    if (calls < CALLS_PER_KEY) {
        fprintf(stderr, "sysv_calls: at least %d calls\n", CALLS_PER_KEY);
        return 2;
    }
    semaphores(calls);
    messages(calls);
    keys(calls);
}
