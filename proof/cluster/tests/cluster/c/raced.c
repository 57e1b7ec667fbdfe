/* Two processes store to one word of shared memory, and no lock or barrier is between
 * them. What they race for is known by the variables that point there.
 * raced FILE: the first makes it when it has stored. */

#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "Tmk.h"

static double *grid;
long *rows[3];

int main(int argc, char **argv)
{
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        grid = Tmk_malloc(3 * 4096);
        for (int row = 0; row < 3; row++)
            rows[row] = Tmk_malloc(4096);
        Tmk_distribute(&grid, sizeof grid);
        Tmk_distribute(&rows, sizeof rows);
    }
    Tmk_barrier(0);
    /* Whoever comes late would hear at its first access what was before it came. */
    double seen = grid[0];
    for (int row = 0; row < 3; row++)
        seen += rows[row][0];
    Tmk_barrier(1);
    /* The home of the segment, with the first process, hears of a store when its process
     * arrives at a barrier; what it stores after that is no race any more. */
    while (Tmk_proc_id == 1 && access(argv[1], F_OK) != 0)
        usleep(1000);
    grid[100] = 1.5 + seen + Tmk_proc_id;
    rows[2][7] = 0x0101010101010101 * (Tmk_proc_id + 1);
    if (Tmk_proc_id == 0)
        close(creat(argv[1], 0600));
    Tmk_barrier(2);
    /* Who looks merges both, and so finds out. */
    seen = grid[100] + (double)rows[2][7];
    Tmk_barrier(3);
    puts(seen > 0 ? "raced" : "saw nothing");
    Tmk_exit(0);
}
