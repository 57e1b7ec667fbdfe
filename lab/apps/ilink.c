/* ILINK: how likely is what is known of some families, for each rate of
 * recombination between loci of the genome? (T22: genetic linkage, on files in
 * the format of the LINKAGE package.)
 *
 * A genotype is a pair of haplotypes, from father and mother; each person has an
 * array with a number for every genotype. Families are taken off the pedigree
 * one after the other (Elston and Stewart): what a family says of one of its
 * members, from all that is known of the others, is multiplied into that
 * member's array. Pedigrees do not depend on each other, so in each round every
 * pedigree loses a family. For each of these, processes deal out the pairs of genotypes
 * that its parents may have; how much a pair is to do differs, so some have more to do
 * than others. Each puts what it finds into shared memory of its own; behind a barrier
 * all add up everybody's, and multiply it into arrays of their own. */
#include <math.h>
#include <string.h>

#include <Tmk.h>

#include "app.h"
#include "pedigree.h"

/* Pairs that a process does in a row, if there are enough for all. */
#define CHUNK 8

/* Arrays of sums that a process has: one that is written, and one that others may still
 * read. */
#define TURNS 2

static const char *loci_file = "data/families.dat", *pedigree_file = "data/families.ped";

/* Who computes: one of so many processes, and how they meet. */
typedef struct {
    int rank, size;
    void (*wait)(unsigned);
    /* Shared: the sums of each process, on pages of its own. */
    char *together;
    /* How many rounds were done, and how many sums of this one stand before the next. */
    long turn, before;
    /* Private: for each person of all pedigrees a number for each genotype, and what it
     * is at first; which genotypes of a person are possible, and how many; for sums. */
    double *all_arrays;
    double *known;
    int *all_possible;
    int *all_possibles;
    double *sums;
    /* The pedigree that is worked on, and what of the above belongs to it. */
    int pedigree;
    double *arrays;
    int *possible;
    int *possibles;
} team;

static long root = 1;

static pedigrees all;

/* For each genotype, the haplotypes it can pass on: one for every way to take
 * each locus from one side. */
static int *passed;
static int ways;

/* Goes on with another pedigree. */
static void turn_to(team *us, int pedigree)
{
    size_t first = (size_t)all.pedigree[pedigree].first;
    us->pedigree = pedigree;
    us->arrays = us->all_arrays + first * (size_t)all.genotypes;
    us->possible = us->all_possible + first * (size_t)all.genotypes;
    us->possibles = us->all_possibles + first;
}

static double *array_of(const team *us, int person)
{
    return us->arrays + (size_t)person * (size_t)all.genotypes;
}

static int *possible_of(const team *us, int person)
{
    return us->possible + (size_t)person * (size_t)all.genotypes;
}

/* The allele of a haplotype at a locus. */
static int allele(int haplotype, int locus)
{
    for (int before = 0; before < locus; before++) {
        haplotype /= all.locus[before].alleles;
    }
    return haplotype % all.locus[locus].alleles;
}

static void find_passed(void)
{
    ways = 1 << all.loci;
    passed = app_memory((size_t)all.genotypes * (size_t)ways, sizeof(int));
    for (int genotype = 0; genotype < all.genotypes; genotype++) {
        int side[2] = { genotype / all.haplotypes, genotype % all.haplotypes };
        for (int way = 0; way < ways; way++) {
            int haplotype = 0;
            for (int locus = all.loci - 1; locus >= 0; locus--) {
                haplotype *= all.locus[locus].alleles;
                haplotype += allele(side[way >> locus & 1], locus);
            }
            passed[genotype * ways + way] = haplotype;
        }
    }
}

/* How probable each way is. */
static void find_chances(const double *recombination, double *chance)
{
    for (int way = 0; way < ways; way++) {
        chance[way] = 0.5;
        for (int locus = 1; locus < all.loci; locus++) {
            int crossed = (way >> locus & 1) != (way >> (locus - 1) & 1);
            double rate = recombination[locus - 1];
            chance[way] *= crossed ? rate : 1 - rate;
        }
    }
}

/* How probable a genotype is for somebody whose parents are not known. */
static double prior(int genotype)
{
    double chance = 1;
    for (int locus = 0; locus < all.loci; locus++) {
        const double *frequency = all.locus[locus].frequency;
        chance *= frequency[allele(genotype / all.haplotypes, locus)] *
                  frequency[allele(genotype % all.haplotypes, locus)];
    }
    return chance;
}

/* How probable what was observed of a person is, given a genotype. */
static double observed(const person *of, int genotype)
{
    double chance = 1;
    for (int locus = 0; locus < all.loci && chance > 0; locus++) {
        int from_father = allele(genotype / all.haplotypes, locus);
        int from_mother = allele(genotype % all.haplotypes, locus);
        chance *= pedigree_chance(&all.locus[locus], of->seen[locus], from_father, from_mother);
    }
    return chance;
}

/* What is known of every person by itself, and which genotypes that leaves: the same
 * for every rate. */
static void learn(team *us)
{
    double *numbers = us->known;
    int *possible = us->all_possible;
    for (int which = 0; which < all.persons; which++) {
        const person *who = &all.person[which];
        int count = 0;
        for (int genotype = 0; genotype < all.genotypes; genotype++) {
            double chance = observed(who, genotype);
            if (chance > 0) {
                possible[count++] = genotype;
            }
            numbers[genotype] = who->father < 0 ? chance * prior(genotype) : chance;
        }
        us->all_possibles[which] = count;
        numbers += all.genotypes;
        possible += all.genotypes;
    }
}

/* How probable what is known of a child is, given its parents' genotypes. */
static double of_child(const double *numbers, const double *chance, int father, int mother)
{
    double sum = 0;
    const int *from_father = passed + father * ways, *from_mother = passed + mother * ways;
    for (int one = 0; one < ways; one++) {
        const double *row = numbers + from_father[one] * all.haplotypes;
        double inner = 0;
        for (int other = 0; other < ways; other++) {
            inner += chance[other] * row[from_mother[other]];
        }
        sum += chance[one] * inner;
    }
    return sum;
}

/* The same for all children of a family but one (-1: all). */
static double of_children(const team *us, const family *of, const double *chance, int father,
                          int mother, int but)
{
    double product = 1;
    for (int which = 0; which < of->children && product > 0; which++) {
        if (of->child[which] != but) {
            product *= of_child(array_of(us, of->child[which]), chance, father, mother);
        }
    }
    return product;
}

/* So much is done by one process in a row, of so much: there are several turns for
 * everybody. */
static long chunk_of(const team *us, long much)
{
    long chunk = much / (4 * us->size);
    return chunk < 1 ? 1 : chunk > CHUNK ? CHUNK : chunk;
}

/* What is dealt out: the places before `much`, in turns of `chunk` for each process. */
typedef struct {
    long much, chunk, others;
    /* Where this process is, and how much is left of its turn. */
    long place, left;
} dealing;

/* Each pedigree begins with another process, so that nobody has the first turn, and so
 * the most, of all. */
static dealing deal_out(const team *us, long much)
{
    long chunk = chunk_of(us, much);
    int turn = (us->rank + us->pedigree) % us->size;
    return (dealing){ much, chunk, (us->size - 1) * chunk, turn * chunk - 1, chunk };
}

/* The next place of this process; 0 if there is none. Nobody looks at all places. */
static int next_of_mine(dealing *of)
{
    if (of->left == 0) {
        of->place += of->others;
        of->left = of->chunk;
    }
    of->left--;
    return ++of->place < of->much;
}

/* What a process has to share. */
static size_t sums_size(void)
{
    size_t size = (size_t)(TURNS * all.pedigrees * all.genotypes) * sizeof(double);
    return (size + TMK_PAGE_SIZE - 1) / TMK_PAGE_SIZE * TMK_PAGE_SIZE;
}

/* The next sums of a process in this round. */
static double *sums_of(const team *us, int rank)
{
    double *both = (double *)(us->together + (size_t)rank * sums_size());
    return both + us->turn % TURNS * all.pedigrees * all.genotypes + us->before;
}

/* Shares the sums for all genotypes that a person may have. */
static void share_sums(team *us, int target)
{
    double *shared = sums_of(us, us->rank);
    const int *possible = possible_of(us, target);
    int count = us->possibles[target];
    for (int which = 0; which < count; which++) {
        shared[which] = us->sums[possible[which]];
    }
    us->before += count;
}

/* Adds up everybody's sums, all in the same order, and multiplies them into a person's
 * array, where everything else is zero. */
static void multiply_sums(team *us, int target)
{
    double *numbers = array_of(us, target);
    const int *possible = possible_of(us, target);
    int count = us->possibles[target];
    for (int which = 0; which < count; which++) {
        double sum = 0;
        for (int rank = 0; rank < us->size; rank++) {
            sum += sums_of(us, rank)[which];
        }
        numbers[possible[which]] *= sum;
    }
    us->before += count;
}

/* Multiplies into a parent what the spouse and the children say. */
static void peel_to_parent(team *us, const family *of, const double *chance, int target)
{
    int is_father = target == of->father;
    int other = is_father ? of->mother : of->father;
    const int *its_possible = possible_of(us, target), *others = possible_of(us, other);
    long many = us->possibles[other];
    const double *spouse = array_of(us, other);
    for (dealing of_all = deal_out(us, us->possibles[target] * many);
         next_of_mine(&of_all);) {
        int genotype = its_possible[of_all.place / many];
        int its = others[of_all.place % many];
        int father = is_father ? genotype : its, mother = is_father ? its : genotype;
        us->sums[genotype] += spouse[its] * of_children(us, of, chance, father, mother, -1);
    }
}

/* Adds to the sums what parents of these genotypes pass on. */
static void pass_on(const team *us, const double *chance, int father, int mother, double weight)
{
    const int *from_father = passed + father * ways, *from_mother = passed + mother * ways;
    for (int one = 0; one < ways; one++) {
        double *row = us->sums + from_father[one] * all.haplotypes;
        for (int other = 0; other < ways; other++) {
            row[from_mother[other]] += weight * chance[one] * chance[other];
        }
    }
}

/* Multiplies into a child what its parents and their other children say. */
static void peel_to_child(team *us, const family *of, const double *chance, int target)
{
    const double *fathers = array_of(us, of->father), *mothers = array_of(us, of->mother);
    const int *of_father = possible_of(us, of->father), *of_mother = possible_of(us, of->mother);
    long many = us->possibles[of->mother];
    for (dealing of_all = deal_out(us, us->possibles[of->father] * many);
         next_of_mine(&of_all);) {
        int father = of_father[of_all.place / many];
        int mother = of_mother[of_all.place % many];
        double weight = fathers[father] * mothers[mother];
        if (weight > 0) {
            weight *= of_children(us, of, chance, father, mother, target);
            pass_on(us, chance, father, mother, weight);
        }
    }
}

/* What a family says of its target, as far as it is this process's to find out. */
static void peel(team *us, const pedigree_step *step, const double *chance)
{
    const family *from = &all.family[step->family];
    memset(us->sums, 0, (size_t)all.genotypes * sizeof(double));
    if (step->target == from->father || step->target == from->mother) {
        peel_to_parent(us, from, chance, step->target);
    } else {
        peel_to_child(us, from, chance, step->target);
    }
    share_sums(us, step->target);
}

/* What is to be done in this round about a pedigree; NULL if it has no family left. */
static const pedigree_step *turn_to_step(team *us, int which, int round)
{
    turn_to(us, which);
    const pedigree *of = &all.pedigree[which];
    return round < of->steps ? &of->step[round] : NULL;
}

/* Takes a family off each pedigree that has one left. */
static void one_round(team *us, int round, const double *chance)
{
    const pedigree_step *step;
    /* What was there was read by all before they came to the barrier before. */
    us->before = 0;
    for (int which = 0; which < all.pedigrees; which++) {
        if ((step = turn_to_step(us, which, round)) != NULL) {
            peel(us, step, chance);
        }
    }
    us->wait(2);
    us->before = 0;
    for (int which = 0; which < all.pedigrees; which++) {
        if ((step = turn_to_step(us, which, round)) != NULL) {
            multiply_sums(us, step->target);
        }
    }
    us->turn++;
}

/* The logarithm, to base 10, of how likely all pedigrees are. */
static double likelihood(team *us, const double *chance)
{
    int rounds = 0;
    size_t numbers = (size_t)all.persons * (size_t)all.genotypes;
    memcpy(us->all_arrays, us->known, numbers * sizeof(double));
    for (int which = 0; which < all.pedigrees; which++) {
        rounds = all.pedigree[which].steps > rounds ? all.pedigree[which].steps : rounds;
    }
    for (int round = 0; round < rounds; round++) {
        one_round(us, round, chance);
    }
    double product = 0;
    for (int which = 0; which < all.pedigrees; which++) {
        turn_to(us, which);
        const double *root = array_of(us, all.pedigree[which].root);
        double sum = 0;
        for (int genotype = 0; genotype < all.genotypes; genotype++) {
            sum += root[genotype];
        }
        product += log10(sum);
    }
    return product;
}

/* The logarithms for all rates; the last one is that of no linkage. */
static double solve(team *us, double *result)
{
    double *chance = app_memory((size_t)ways, sizeof(double));
    double start = app_now();
    learn(us);
    for (int turn = 0; turn <= all.rates; turn++) {
        double recombination[PEDIGREE_LOCI];
        memcpy(recombination, all.recombination, sizeof recombination);
        recombination[all.varied] = turn == all.rates ? 0.5 : all.rate[turn];
        find_chances(recombination, chance);
        result[turn] = likelihood(us, chance);
    }
    double took = app_now() - start;
    free(chance);
    return took;
}

static team new_team(int rank, int size, char *together)
{
    size_t genotypes = (size_t)all.genotypes, persons = (size_t)all.persons;
    team us = { .rank = rank, .size = size, .together = together };
    us.all_arrays = app_memory(genotypes * persons, sizeof(double));
    us.known = app_memory(genotypes * persons, sizeof(double));
    us.all_possible = app_memory(genotypes * persons, sizeof(int));
    us.all_possibles = app_memory(persons, sizeof(int));
    us.sums = app_memory(genotypes, sizeof(double));
    return us;
}

static void nobody_waits(unsigned which)
{
    (void)which;
}

static double solve_alone(double *result)
{
    team me = new_team(0, 1, app_memory(1, sums_size()));
    me.wait = nobody_waits;
    return solve(&me, result);
}

static double solve_together(double *result)
{
    static char *together;
    if (Tmk_proc_id == 0) {
        together = Tmk_malloc((size_t)Tmk_nprocs * sums_size());
        if (together == NULL) {
            app_fail("no shared memory");
        }
        Tmk_distribute(&together, sizeof together);
    }
    Tmk_barrier(0);
    team us = new_team(Tmk_proc_id, Tmk_nprocs, together);
    us.wait = Tmk_barrier;
    return solve(&us, result);
}

/* The rate with the highest LOD score: how much more likely than no linkage. */
static void report(int processes, double seconds, const double *result)
{
    int best = 0;
    for (int turn = 1; turn < all.rates; turn++) {
        best = result[turn] > result[best] ? turn : best;
    }
    app_report("ilink", processes, seconds, "rate=%.3f lod=%.4f", all.rate[best],
               result[best] - result[all.rates]);
}

int main(int argc, char **argv)
{
    const app_option options[] = {
        { "loci", NULL, &loci_file, "the loci, as LINKAGE has them in DATAFILE" },
        { "pedigrees", NULL, &pedigree_file, "the families, as in PEDFILE, before or after MAKEPED" },
        { "root", &root, NULL, "which person of each pedigree is peeled last; all give the same" },
        { NULL, NULL, NULL, NULL },
    };
    app_options(argc, argv, "genetic linkage: the likelihood of pedigrees", options);
    pedigree_read(&all, loci_file, pedigree_file, root);
    find_passed();
    double *result = app_memory((size_t)all.rates + 1, sizeof(double));
    if (app_sequential) {
        double took = solve_alone(result);
        report(1, took, result);
        return 0;
    }
    Tmk_startup(argc, argv);
    double took = solve_together(result);
    if (Tmk_proc_id == 0) {
        report(Tmk_nprocs, took, result);
        if (app_check) {
            double *alone = app_memory((size_t)all.rates + 1, sizeof(double));
            solve_alone(alone);
            for (int turn = 0; turn <= all.rates; turn++) {
                /* Sums are made in another order. */
                if (!(fabs(alone[turn] - result[turn]) <= 1e-9 * fabs(alone[turn]))) {
                    app_fail("ilink: alone it is %.12g, not %.12g", alone[turn], result[turn]);
                }
            }
        }
    }
    Tmk_exit(0);
}
