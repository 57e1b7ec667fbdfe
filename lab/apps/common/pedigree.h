/* Families and loci, read from files in the format of the LINKAGE package. */
#ifndef PEDIGREE_H
#define PEDIGREE_H

#define PEDIGREE_LOCI 6
#define PEDIGREE_ALLELES 12
#define PEDIGREE_CLASSES 16
#define PEDIGREE_RATES 64

/* A locus: whether somebody is affected (with the chance of it for 0, 1 and 2
 * copies of the second allele, in each liability class), or numbered alleles. */
typedef struct {
    enum { AFFECTION = 1, NUMBERED = 3 } kind;
    int alleles;
    double frequency[PEDIGREE_ALLELES];
    int classes;
    double affected[PEDIGREE_CLASSES][3];
} locus;

/* A person. Parents are numbers in its pedigree, or -1. What was seen at a locus:
 * status (0 unknown, 1 well, 2 affected) and class, or two alleles (0 unknown). */
typedef struct {
    int id, father, mother;
    int seen[PEDIGREE_LOCI][2];
} person;

/* Parents and their children, by their numbers in the pedigree. */
typedef struct {
    int father, mother, children;
    int *child;
} family;

/* A step of peeling: what a family says of one of its members. */
typedef struct {
    int family, target;
} pedigree_step;

/* Persons first.. of all, and how they are peeled to the last one left. */
typedef struct {
    int id, first, persons, root, steps;
    pedigree_step *step;
} pedigree;

/* Everything in the two files. */
typedef struct {
    int loci, haplotypes, genotypes;
    locus locus[PEDIGREE_LOCI];
    /* Rates between neighbouring loci; which one varies, and through which rates. */
    double recombination[PEDIGREE_LOCI];
    int varied, rates;
    double rate[PEDIGREE_RATES];
    int persons, families, pedigrees;
    person *person;
    family *family;
    pedigree *pedigree;
} pedigrees;

/* Reads both files; ends the program, and says where, if they make no sense. All
 * is peeled to the root-th person of each pedigree, from 1, or the last one. */
void pedigree_read(pedigrees *all, const char *loci_file, const char *pedigree_file, long root);

/* How probable what was seen is, given both alleles, from 0. */
double pedigree_chance(const locus *at, const int seen[2], int one, int other);

#endif
