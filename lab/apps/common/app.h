/* What the programs have in common: options, the clock, random numbers, results.
 *
 * Every program solves a problem twice if asked: in parallel, on Tmk.h, and
 * without it, which is the base of speedups and what --check compares with.
 *
 *     program [--NAME=NUMBER ...] [--check] [-- options of the Tmk library]
 *     program [--NAME=NUMBER ...] --sequential
 */
#ifndef APP_H
#define APP_H

#include <stddef.h>
#include <stdint.h>

/* An option: a number, or a word if that is not NULL. */
typedef struct {
    const char *name;
    long *number;
    const char **word;
    const char *help;
} app_option;

/* --check: compare with the sequential version afterwards. */
extern int app_check;

/* --sequential: do only that, without any other process. */
extern int app_sequential;

/* Reads the command line up to `--`; the last option has no name. Ends the
 * program after --help, or a mistake. */
void app_options(int argc, char **argv, const char *what, const app_option *options);

/* Now, in seconds. */
double app_now(void);

/* Says how long it took and what came of it, on one line:
 * NAME processes=N seconds=S RESULT, where a format and its values give RESULT. */
void app_report(const char *name, int processes, double seconds, const char *result, ...);

/* Says what is wrong, and ends the program. */
void app_fail(const char *format, ...);

/* Private memory, zero; ends the program if there is none. */
void *app_memory(size_t count, size_t size);

/* Random numbers, the same on every machine: a state, anything at first. */
typedef struct {
    uint64_t state;
} app_random;

/* The next one, below `below`. */
uint32_t app_random_below(app_random *random, uint32_t below);

/* The next one, from 0 to 1, without 1. */
double app_random_unit(app_random *random);

/* The part of 0..count that process number `rank` of `size` does: from *begin
 * up to, not including, *end. */
void app_part(long count, int rank, int size, long *begin, long *end);

#endif
