/* Molecules of water, and the forces between them: what the programs that move them
 * have in common. A molecule is three charged atoms held together by springs. */
#ifndef MOLECULES_H
#define MOLECULES_H

#define ATOMS 3

typedef struct {
    double place[ATOMS][3];
    double speed[ATOMS][3];
    double force[ATOMS][3];
} molecule;

/* All of the water. */
typedef struct {
    double potential, kinetic;
    molecule of[];
} box;

typedef double forces[ATOMS][3];

/* How many there are, set first, and the side of the box that holds so many. */
extern long molecules;
extern double side;
double molecules_side(void);

/* Puts all in rows, with chance speeds. */
void molecules_fill(box *water);

/* All forces of which molecules begin..end have the first part, added to `force`;
 * their energy. */
double all_forces(const box *water, long begin, long end, forces *force);

/* Half a step of speed, from the forces; the kinetic energy then. */
double kick(molecule *of);

/* A step of place; clears the forces. */
void drift(molecule *of);

/* Adds forces to a molecule's. */
void add_forces(molecule *of, forces force);

/* Its momentum along an axis. */
double molecule_momentum(const molecule *of, int axis);

#endif
