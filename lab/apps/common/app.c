#define _POSIX_C_SOURCE 199309L

#include "app.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int app_check;
int app_sequential;

static void usage(FILE *output, const char *program, const char *what, const app_option *options)
{
    fprintf(output, "%s: %s\n\n", program, what);
    for (const app_option *option = options; option->name != NULL; option++) {
        if (option->word != NULL) {
            fprintf(output, "  --%s=%s  %s\n", option->name, *option->word, option->help);
        } else {
            fprintf(output, "  --%s=%ld  %s\n", option->name, *option->number, option->help);
        }
    }
    fprintf(output, "  --check  compare with the sequential version\n"
                    "  --sequential  run only that, alone\n"
                    "  -- ...  options of the Tmk library (see Tmk.h)\n");
}

/* Whether an argument is this option; where its value is. */
static const char *value_of(const char *argument, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(argument, "--", 2) != 0 || strncmp(argument + 2, name, length) != 0 ||
        argument[2 + length] != '=') {
        return NULL;
    }
    return argument + 2 + length + 1;
}

static int set(const app_option *options, const char *argument)
{
    for (const app_option *option = options; option->name != NULL; option++) {
        const char *value = value_of(argument, option->name);
        if (value != NULL && option->word != NULL) {
            *option->word = value;
            return 1;
        }
        if (value != NULL) {
            char *end;
            *option->number = strtol(value, &end, 10);
            return end != value && *end == '\0' && *option->number >= 0;
        }
    }
    return 0;
}

void app_options(int argc, char **argv, const char *what, const app_option *options)
{
    for (int place = 1; place < argc && strcmp(argv[place], "--") != 0; place++) {
        if (strcmp(argv[place], "--check") == 0) {
            app_check = 1;
        } else if (strcmp(argv[place], "--sequential") == 0) {
            app_sequential = 1;
        } else if (strcmp(argv[place], "--help") == 0) {
            usage(stdout, argv[0], what, options);
            exit(0);
        } else if (!set(options, argv[place])) {
            fprintf(stderr, "%s: I do not understand %s\n", argv[0], argv[place]);
            usage(stderr, argv[0], what, options);
            exit(2);
        }
    }
}

double app_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void app_report(const char *name, int processes, double seconds, const char *result, ...)
{
    va_list values;
    printf("%s processes=%d seconds=%.6f ", name, processes, seconds);
    va_start(values, result);
    vprintf(result, values);
    va_end(values);
    printf("\n");
    fflush(stdout);
}

void app_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n");
    exit(1);
}

void *app_memory(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        app_fail("no memory for %zu times %zu bytes", count, size);
    }
    return memory;
}

uint32_t app_random_below(app_random *random, uint32_t below)
{
    return (uint32_t)(app_random_unit(random) * below);
}

/* SplitMix64. */
double app_random_unit(app_random *random)
{
    uint64_t mixed = random->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    mixed ^= mixed >> 31;
    return (double)(mixed >> 11) * 0x1p-53;
}

void app_part(long count, int rank, int size, long *begin, long *end)
{
    *begin = count * rank / size;
    *end = count * (rank + 1) / size;
}
