#include "pedigree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

#define LINE 4096
#define COLUMNS 64
#define HEAD_BEFORE_MAKEPED 5
#define HEAD_AFTER_MAKEPED 9

/* ---- Lines of numbers ---- */

typedef struct {
    FILE *input;
    const char *name;
    int line;
    int count;
    double number[COLUMNS];
} reader;

static void complain(const reader *from, const char *what)
{
    app_fail("%s, line %d: %s", from->name, from->line, what);
}

static reader open_file(const char *name)
{
    reader from = { fopen(name, "r"), name, 0, 0, { 0 } };
    if (from.input == NULL) {
        app_fail("cannot read %s", name);
    }
    return from;
}

/* The numbers of the next line that has some; what follows is a comment. 0 at the
 * end of the file. */
static int next_line(reader *from)
{
    char line[LINE];
    while (fgets(line, sizeof line, from->input) != NULL) {
        char *at = line, *end;
        from->line++;
        for (from->count = 0; from->count < COLUMNS; from->count++, at = end) {
            from->number[from->count] = strtod(at, &end);
            if (end == at) {
                break;
            }
        }
        if (from->count > 0) {
            return 1;
        }
    }
    return 0;
}

static void need_line(reader *from, int count)
{
    if (!next_line(from)) {
        complain(from, "the file ends too early");
    }
    if (from->count < count) {
        complain(from, "too few numbers");
    }
}

static int whole(const reader *from, int column, int least, int most)
{
    double number = from->number[column];
    if (!(number >= least && number <= most) || number != (int)number) {
        complain(from, "a number is none of those that are possible here");
    }
    return (int)number;
}

/* ---- Loci ---- */

static void read_locus(reader *from, locus *at)
{
    need_line(from, 2);
    int kind = whole(from, 0, 0, 3);
    if (kind != AFFECTION && kind != NUMBERED) {
        complain(from, "only loci of type 1 (affection) and 3 (numbered alleles) are understood");
    }
    at->kind = kind == AFFECTION ? AFFECTION : NUMBERED;
    at->alleles = whole(from, 1, 2, kind == AFFECTION ? 2 : PEDIGREE_ALLELES);
    need_line(from, at->alleles);
    for (int allele = 0; allele < at->alleles; allele++) {
        at->frequency[allele] = from->number[allele];
    }
    if (at->kind == AFFECTION) {
        need_line(from, 1);
        at->classes = whole(from, 0, 1, PEDIGREE_CLASSES);
        for (int class = 0; class < at->classes; class++) {
            need_line(from, 3);
            memcpy(at->affected[class], from->number, sizeof at->affected[class]);
        }
    }
}

/* Which rates are tried: from the one given, by the increment, to the last. */
static void read_rates(pedigrees *all, reader *from)
{
    need_line(from, 2);
    if (from->number[0] != 0 || from->number[1] != 0) {
        complain(from, "neither difference between the sexes nor interference is understood");
    }
    need_line(from, all->loci - 1);
    for (int at = 0; at + 1 < all->loci; at++) {
        all->recombination[at] = from->number[at];
    }
    need_line(from, 3);
    all->varied = whole(from, 0, 1, all->loci - 1) - 1;
    double step = from->number[1], last = from->number[2];
    if (!(step > 0)) {
        complain(from, "the increment must be positive");
    }
    for (double rate = all->recombination[all->varied]; rate <= last + step / 1000; rate += step) {
        if (all->rates == PEDIGREE_RATES) {
            complain(from, "too many rates");
        }
        all->rate[all->rates++] = rate;
    }
    if (all->rates == 0) {
        complain(from, "no rate is left to try");
    }
}

static void read_loci(pedigrees *all, const char *name)
{
    reader from = open_file(name);
    need_line(&from, 3);
    all->loci = whole(&from, 0, 2, PEDIGREE_LOCI);
    if (from.number[2] != 0) {
        complain(&from, "loci of the X chromosome are not understood");
    }
    need_line(&from, 1);
    need_line(&from, all->loci);
    all->haplotypes = 1;
    for (int at = 0; at < all->loci; at++) {
        read_locus(&from, &all->locus[at]);
        all->haplotypes *= all->locus[at].alleles;
        if (all->haplotypes > 256) {
            complain(&from, "more than 256 haplotypes");
        }
    }
    all->genotypes = all->haplotypes * all->haplotypes;
    read_rates(all, &from);
    fclose(from.input);
}

/* ---- Persons ---- */

static int columns_of(const locus *at)
{
    return at->kind == NUMBERED || at->classes > 1 ? 2 : 1;
}

static void read_person(const pedigrees *all, const reader *from, int head, person *who)
{
    int column = head;
    who->id = whole(from, 1, 1, INT32_MAX);
    who->father = whole(from, 2, 0, INT32_MAX);
    who->mother = whole(from, 3, 0, INT32_MAX);
    for (int at = 0; at < all->loci; at++) {
        const locus *here = &all->locus[at];
        int most = here->kind == NUMBERED ? here->alleles : 2;
        who->seen[at][0] = whole(from, column++, 0, most);
        who->seen[at][1] = here->kind == NUMBERED ? 0 : 1;
        if (columns_of(here) == 2) {
            who->seen[at][1] = whole(from, column++, 0, here->kind == NUMBERED ? most : here->classes);
        }
        if (here->kind == AFFECTION && who->seen[at][1] == 0) {
            who->seen[at][1] = 1;
        }
    }
}

static void *grow(void *array, int count, size_t size)
{
    void *larger = array;
    if ((count & (count - 1)) == 0) {
        larger = realloc(array, (size_t)(count == 0 ? 1 : 2 * count) * size);
        if (larger == NULL) {
            app_fail("no memory");
        }
    }
    return larger;
}

static void read_persons(pedigrees *all, const char *name)
{
    reader from = open_file(name);
    int data = 0, id = 0;
    for (int at = 0; at < all->loci; at++) {
        data += columns_of(&all->locus[at]);
    }
    while (next_line(&from)) {
        int head = from.count - data;
        if (head != HEAD_BEFORE_MAKEPED && head != HEAD_AFTER_MAKEPED) {
            complain(&from, "a person has 5 columns, or 9 after MAKEPED, and those of its loci");
        }
        if (all->pedigrees == 0 || whole(&from, 0, 0, INT32_MAX) != id) {
            id = whole(&from, 0, 0, INT32_MAX);
            all->pedigree = grow(all->pedigree, all->pedigrees, sizeof(pedigree));
            all->pedigree[all->pedigrees++] = (pedigree){ id, all->persons, 0, 0, 0, NULL };
        }
        all->person = grow(all->person, all->persons, sizeof(person));
        read_person(all, &from, head, &all->person[all->persons++]);
        all->pedigree[all->pedigrees - 1].persons++;
    }
    fclose(from.input);
}

/* ---- Families ---- */

static int find_person(const pedigrees *all, const pedigree *in, int id)
{
    for (int which = 0; which < in->persons && id != 0; which++) {
        if (all->person[in->first + which].id == id) {
            return which;
        }
    }
    if (id != 0) {
        app_fail("pedigree %d: a parent, %d, is missing", in->id, id);
    }
    return -1;
}

/* Puts a child into the family of its parents, among those from `first` on. */
static void add_child(pedigrees *all, int first, int child, int father, int mother)
{
    int which = first;
    while (which < all->families && (all->family[which].father != father ||
                                     all->family[which].mother != mother)) {
        which++;
    }
    if (which == all->families) {
        all->family = grow(all->family, all->families, sizeof(family));
        all->family[all->families++] = (family){ father, mother, 0, NULL };
    }
    family *theirs = &all->family[which];
    theirs->child = grow(theirs->child, theirs->children, sizeof(int));
    theirs->child[theirs->children++] = child;
}

static int find_families(pedigrees *all, const pedigree *in)
{
    int first = all->families;
    for (int which = 0; which < in->persons; which++) {
        person *who = &all->person[in->first + which];
        who->father = find_person(all, in, who->father);
        who->mother = find_person(all, in, who->mother);
        if ((who->father < 0) != (who->mother < 0)) {
            app_fail("pedigree %d, person %d: both parents or none", in->id, who->id);
        }
        if (who->father >= 0) {
            add_child(all, first, which, who->father, who->mother);
        }
    }
    return first;
}

static int is_member(const family *of, int who)
{
    int found = of->father == who || of->mother == who;
    for (int which = 0; which < of->children; which++) {
        found |= of->child[which] == who;
    }
    return found;
}

/* What is met on the way through a pedigree. */
typedef struct {
    pedigrees *all;
    pedigree *in;
    int first;
    char *met_person, *met_family;
} walk;

static void collect(walk *on, int who);

static void collect_member(walk *on, int member, int but)
{
    if (member != but) {
        collect(on, member);
    }
}

/* Plans the peeling of all families of a person that were not met, with all that
 * is behind them. */
static void collect(walk *on, int who)
{
    pedigree *in = on->in;
    if (on->met_person[who]++) {
        app_fail("pedigree %d has a loop at person %d", in->id, on->all->person[in->first + who].id);
    }
    for (int which = on->first; which < on->all->families; which++) {
        const family *here = &on->all->family[which];
        if (on->met_family[which - on->first] || !is_member(here, who)) {
            continue;
        }
        on->met_family[which - on->first] = 1;
        collect_member(on, here->father, who);
        collect_member(on, here->mother, who);
        for (int child = 0; child < here->children; child++) {
            collect_member(on, here->child[child], who);
        }
        in->step = grow(in->step, in->steps, sizeof(pedigree_step));
        in->step[in->steps++] = (pedigree_step){ which, who };
    }
}

static void plan(pedigrees *all, pedigree *in)
{
    walk on = { all, in, find_families(all, in), NULL, NULL };
    on.met_person = app_memory((size_t)in->persons, 1);
    on.met_family = app_memory((size_t)(all->families - on.first) + 1, 1);
    collect(&on, in->root);
    for (int which = 0; which < in->persons; which++) {
        if (!on.met_person[which]) {
            app_fail("pedigree %d: person %d is not related to the first one", in->id,
                     all->person[in->first + which].id);
        }
    }
    free(on.met_person);
    free(on.met_family);
}

void pedigree_read(pedigrees *all, const char *loci_file, const char *pedigree_file, long root)
{
    memset(all, 0, sizeof *all);
    read_loci(all, loci_file);
    read_persons(all, pedigree_file);
    for (int which = 0; which < all->pedigrees; which++) {
        pedigree *in = &all->pedigree[which];
        in->root = (root < 1 ? 1 : root > in->persons ? in->persons : (int)root) - 1;
        plan(all, in);
    }
}

double pedigree_chance(const locus *at, const int seen[2], int one, int other)
{
    if (seen[0] == 0) {
        return 1;
    }
    if (at->kind == NUMBERED) {
        int straight = one + 1 == seen[0] && other + 1 == seen[1];
        int crossed = one + 1 == seen[1] && other + 1 == seen[0];
        return straight || crossed;
    }
    double affected = at->affected[seen[1] - 1][one + other];
    return seen[0] == 2 ? affected : 1 - affected;
}
