/* Hands a segment to a program that it starts, by a capability; and the page-out and lock of
 * short pages. */
#include <errno.h>
#include <fcntl.h>
#include <pagemesh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s (%d)\n", what, pagemesh_error_message(), errno);
        exit(1);
    }
}

/* The other program: all it has is a number. */
static int redeem(pagemesh_t *mesh, int capability)
{
    pagemesh_segment_t *segment = pagemesh_redeem(mesh, capability);
    check(segment != NULL, "redeem");
    uint64_t *memory = pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDONLY);
    check(memory != NULL && *memory == 7, "loads");
    check(pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR) == NULL, "no stores");
    check(pagemesh_capability(segment, PAGEMESH_RDWR) == -1 && errno == EACCES, "no right to give");
    check(pagemesh_redeem(mesh, STDIN_FILENO) == NULL && errno == EINVAL, "no capability");
    check(pagemesh_redeem(mesh, -1) == NULL && errno == EINVAL, "no descriptor");
    return 0;
}

static void short_pages(pagemesh_t *mesh)
{
    pagemesh_options_t options = PAGEMESH_OPTIONS_INIT;
    options.policy = PAGEMESH_VIEWS;
    pagemesh_segment_t *segment = pagemesh_create(mesh, "short", PAGE, &options);
    check(segment != NULL, "create");
    size_t stride;
    volatile uint64_t *word = pagemesh_map_views(segment, &stride);
    check(word != NULL, "map views");
    *word = 3;
    check(pagemesh_lock_view(segment, PAGEMESH_VIEW_SHORT, 0, 8) == 0, "lock");
    check(*word == 3, "the whole page is back at the next access");
    check(pagemesh_lock_view(segment, PAGEMESH_VIEW_OLD, 0, 8) == -1 && errno == EINVAL, "old");
    check(pagemesh_write_unlock(segment, 0, 8) == 0, "unlock");
    check(pagemesh_page_out(segment, PAGEMESH_VIEW_SHORT, 0, 8) == 0, "page out");
    check(*word == 3, "the consistent copy stays");
    check(pagemesh_page_out(segment, 8, 0, 8) == -1 && errno == EINVAL, "no such view");
}

int main(int count, char **arguments)
{
    pagemesh_t *mesh = pagemesh_connect(NULL);
    check(mesh != NULL, "connect");
    if (count == 2) {
        return redeem(mesh, atoi(arguments[1]));
    }
    pagemesh_segment_t *segment = pagemesh_create(mesh, "handed", PAGE, NULL);
    check(segment != NULL, "create");
    uint64_t *memory = pagemesh_map(segment, NULL, 0, 0, PAGEMESH_RDWR);
    check(memory != NULL, "map");
    *memory = 7;
    const int capability = pagemesh_capability(segment, PAGEMESH_RDONLY);
    check(capability >= 0, "capability");
    check((fcntl(capability, F_GETFL) & O_ACCMODE) == O_RDONLY, "for loads");
    check(fcntl(capability, F_SETFD, 0) == 0, "children have it");
    char number[16];
    snprintf(number, sizeof number, "%d", capability);
    const pid_t child = fork();
    if (child == 0) {
        execl(arguments[0], arguments[0], number, (char *)NULL);
        _exit(1);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "the other program");
    short_pages(mesh);
    puts("handed over");
    return 0;
}
