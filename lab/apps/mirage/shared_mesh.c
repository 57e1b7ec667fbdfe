/* Shared memory and barriers by PageMesh's own interface. PAGEMESH_WINDOW is the time
 * window of all segments: `auto`, or nanoseconds; PAGEMESH_HOLD=1 makes holding hold. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagemesh.h>

#include "app.h"
#include "shared.h"

int shared_rank, shared_size = 1;

enum { SEGMENTS = 4, NUMBER = 77 };

static pagemesh_t *mesh;
static pagemesh_job_t *job;
static pagemesh_segment_t *segments[SEGMENTS];
static char *memory[SEGMENTS];
static int holds;

static void must(int good, const char *what)
{
    if (!good) {
        app_fail("%s: %s", what, pagemesh_error_message());
    }
}

void shared_begin(int processes)
{
    (void)processes;
    mesh = pagemesh_connect(NULL);
    must(mesh != NULL, "no daemon");
    job = pagemesh_job_open(mesh);
    must(job != NULL, "no job");
    shared_rank = (int)pagemesh_job_rank(job);
    shared_size = (int)pagemesh_job_size(job);
    const char *hold = getenv("PAGEMESH_HOLD");
    holds = hold != NULL && strcmp(hold, "1") == 0;
}

void shared_barrier(void)
{
    must(pagemesh_barrier_wait(pagemesh_job_segment(job), NUMBER, (uint32_t)shared_size) >= 0,
         "barrier");
}

static void name_of(int which, char name[64])
{
    const char *number = getenv("PAGEMESH_JOB");
    snprintf(name, 64, "mirage.%s.%d", number ? number : "alone", which);
}

void *shared_segment(int which, size_t bytes)
{
    char name[64];
    if (which < 0 || which >= SEGMENTS) {
        app_fail("there is no segment %d", which);
    }
    name_of(which, name);
    pagemesh_options_t options = PAGEMESH_OPTIONS_INIT;
    const char *window = getenv("PAGEMESH_WINDOW");
    if (window != NULL && strcmp(window, "auto") != 0) {
        options.window_ns = strtoll(window, NULL, 10);
    }
    if (shared_rank != 0) {
        shared_barrier();
    }
    segments[which] = pagemesh_create(mesh, name, bytes, &options);
    must(segments[which] != NULL, "no segment");
    memory[which] = pagemesh_map(segments[which], NULL, 0, 0, PAGEMESH_RDWR);
    must(memory[which] != NULL, "no mapping");
    if (shared_rank == 0) {
        shared_barrier();
    }
    shared_barrier();
    return memory[which];
}

static void hold(void *page, int (*call)(pagemesh_segment_t *, uint64_t, uint64_t))
{
    for (int which = 0; which < SEGMENTS && holds; which++) {
        if (memory[which] == NULL) {
            continue;
        }
        uint64_t at = (uint64_t)((char *)page - memory[which]);
        if (at < pagemesh_size(segments[which])) {
            must(call(segments[which], at / 4096 * 4096, 4096) == 0, "write lock");
            return;
        }
    }
}

void shared_hold(void *page)
{
    hold(page, pagemesh_write_lock);
}

void shared_release(void *page)
{
    hold(page, pagemesh_write_unlock);
}

int shared_end(void)
{
    shared_barrier();
    for (int which = 0; which < SEGMENTS; which++) {
        char name[64];
        if (memory[which] == NULL) {
            continue;
        }
        name_of(which, name);
        if (shared_rank == 0) {
            must(pagemesh_remove(mesh, name) == 0, "a name cannot be removed");
        }
        must(pagemesh_unmap(memory[which]) == 0, "unmap");
        must(pagemesh_close(segments[which]) == 0, "close");
    }
    pagemesh_job_close(job);
    pagemesh_disconnect(mesh);
    return 0;
}
