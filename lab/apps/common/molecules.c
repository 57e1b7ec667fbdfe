#include "molecules.h"

#include <math.h>
#include <string.h>

#include "app.h"

/* Units: angstrom, picosecond, atomic mass, elementary charge. */
static const double mass[ATOMS] = { 15.9994, 1.008, 1.008 };
static const double charge[ATOMS] = { -0.82, 0.41, 0.41 };
static const double coulomb = 138935.485, depth = 65.02, radius = 3.166;
static const double bond = 443150, bond_length = 1.0, angle = 150000, angle_length = 1.633;
static const double time_step = 0.0005, volume = 29.9;

long molecules = 343;
double side;

double molecules_side(void)
{
    return cbrt((double)molecules * volume);
}

void molecules_fill(box *water)
{
    long edge = (long)ceil(cbrt((double)molecules) - 1e-9);
    app_random random = { 1 };
    memset(water, 0, sizeof *water + (size_t)molecules * sizeof(molecule));
    for (long which = 0; which < molecules; which++) {
        long cell[3] = { which % edge, which / edge % edge, which / edge / edge };
        double turn = app_random_unit(&random) * 6.283185307179586;
        for (int axis = 0; axis < 3; axis++) {
            double oxygen = ((double)cell[axis] + 0.5) * side / (double)edge;
            for (int atom = 0; atom < ATOMS; atom++) {
                double away[3] = { 0, 0, 0 };
                if (atom > 0) {
                    double direction = turn + (atom == 1 ? 0 : 1.9106);
                    away[0] = cos(direction);
                    away[1] = sin(direction);
                }
                water->of[which].place[atom][axis] = oxygen + away[axis];
                water->of[which].speed[atom][axis] = (app_random_unit(&random) - 0.5) * 4;
            }
        }
    }
}

/* Adds the force of a spring between two atoms; its energy. */
static double pull(const molecule *of, forces force, int one, int other, double strength,
                   double length)
{
    double away[3], square = 0;
    for (int axis = 0; axis < 3; axis++) {
        away[axis] = of->place[one][axis] - of->place[other][axis];
        square += away[axis] * away[axis];
    }
    double far = sqrt(square);
    double factor = -strength * (far - length) / far;
    for (int axis = 0; axis < 3; axis++) {
        force[one][axis] += factor * away[axis];
        force[other][axis] -= factor * away[axis];
    }
    return 0.5 * strength * (far - length) * (far - length);
}

static double inside(const molecule *of, forces force)
{
    return pull(of, force, 0, 1, bond, bond_length) + pull(of, force, 0, 2, bond, bond_length) +
           pull(of, force, 1, 2, angle, angle_length);
}

/* Adds the forces between two molecules; their energy, 0 if they are too far. */
static double between(const molecule *one, const molecule *other, forces on_one, forces on_other)
{
    double shift[3], square = 0, energy = 0;
    for (int axis = 0; axis < 3; axis++) {
        double away = one->place[0][axis] - other->place[0][axis];
        shift[axis] = side * nearbyint(away / side);
        square += (away - shift[axis]) * (away - shift[axis]);
    }
    if (square > side * side / 4) {
        return 0;
    }
    for (int a = 0; a < ATOMS; a++) {
        for (int b = 0; b < ATOMS; b++) {
            double away[3], here = 0;
            for (int axis = 0; axis < 3; axis++) {
                away[axis] = one->place[a][axis] - other->place[b][axis] - shift[axis];
                here += away[axis] * away[axis];
            }
            double electric = coulomb * charge[a] * charge[b] / sqrt(here);
            double factor = electric / here;
            energy += electric;
            if (a == 0 && b == 0) {
                double ratio = radius * radius / here;
                double sixth = ratio * ratio * ratio;
                energy += 4 * depth * sixth * (sixth - 1);
                factor += 24 * depth * sixth * (2 * sixth - 1) / here;
            }
            for (int axis = 0; axis < 3; axis++) {
                on_one[a][axis] += factor * away[axis];
                on_other[b][axis] -= factor * away[axis];
            }
        }
    }
    return energy;
}

double all_forces(const box *water, long begin, long end, forces *force)
{
    double energy = 0;
    long half = molecules / 2;
    for (long one = begin; one < end; one++) {
        energy += inside(&water->of[one], force[one]);
        for (long step = 1; step <= half; step++) {
            if (step * 2 == molecules && one >= half) {
                continue;
            }
            long other = (one + step) % molecules;
            energy += between(&water->of[one], &water->of[other], force[one], force[other]);
        }
    }
    return energy;
}

double kick(molecule *of)
{
    double energy = 0;
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int axis = 0; axis < 3; axis++) {
            double *speed = &of->speed[atom][axis];
            *speed += 0.5 * time_step * of->force[atom][axis] / mass[atom];
            energy += 0.5 * mass[atom] * *speed * *speed;
        }
    }
    return energy;
}

void drift(molecule *of)
{
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int axis = 0; axis < 3; axis++) {
            of->place[atom][axis] += time_step * of->speed[atom][axis];
        }
    }
    memset(of->force, 0, sizeof of->force);
}

void add_forces(molecule *of, forces force)
{
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int axis = 0; axis < 3; axis++) {
            of->force[atom][axis] += force[atom][axis];
        }
    }
}

double molecule_momentum(const molecule *of, int axis)
{
    double sum = 0;
    for (int atom = 0; atom < ATOMS; atom++) {
        sum += mass[atom] * of->speed[atom][axis];
    }
    return sum;
}
