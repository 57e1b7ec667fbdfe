"""Heat spreads over a plate, computed by the processes of four nodes; the picture is heat.png.

pagemesh sandbox 4 -- python heat.py                    # four nodes on this machine
pagemesh run -- python heat.py                          # one process on each host of your cluster
pagemesh run -- python heat.py heat.png release         # only what changed travels between them
"""

import struct
import sys
import zlib

import numpy

import pagemesh

SIZE, STEPS = 512, 200


def main(picture="heat.png", policy="sequential"):
    rank, size = pagemesh.rank(), pagemesh.size()
    # Every process says this line; one of them makes the array.
    plates = pagemesh.array("heat", (2, SIZE, SIZE), "f4", policy=policy)
    top, bottom = max(1, rank * SIZE // size), min(SIZE - 1, (rank + 1) * SIZE // size)
    if rank == 0:
        plates[:, 0] = 100 * numpy.sin(numpy.pi * numpy.arange(SIZE) / SIZE) ** 2
        plates[:, SIZE // 4 : SIZE // 2, SIZE // 3] = 80
    plates.barrier(size)
    for step in range(STEPS):
        old, new = plates[step % 2], plates[(step + 1) % 2]
        # Reads one row beyond each end, which others write; stores only to its own.
        part = numpy.asarray(old[top - 1 : bottom + 1])
        around = part[:-2, 1:-1] + part[2:, 1:-1] + part[1:-1, :-2] + part[1:-1, 2:]
        new[top:bottom, 1:-1] = around / 4
        plates.barrier(size)
    if rank == 0:
        save(picture, plates[0])
        hottest = plates[0, 1:-1].max()
        print(f"{size} processes, {STEPS} steps, hottest inside {hottest:.1f}: {picture} ({policy})")
        plates.unlink()


def save(path, plate):
    """A grey PNG."""
    grey = numpy.clip(plate * 2.55, 0, 255).astype("u1")
    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">2I5B", SIZE, SIZE, 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
            check = zlib.crc32(kind + data)
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check))


main(*sys.argv[1:])
