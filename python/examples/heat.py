"""Heat spreads over a plate, computed by the processes of four nodes; the picture is heat.png.

pagemesh sandbox 4 -- python heat.py          # four nodes on this machine
pagemesh run -- python heat.py                # one process on each host of your cluster
"""

import struct
import sys
import zlib

import numpy

import pagemesh

SIZE, STEPS = 512, 200


def main(picture):
    rank, size = pagemesh.rank(), pagemesh.size()
    # Every process says this line; one of them makes the arrays.
    plates = [pagemesh.array(f"heat-{number}", (SIZE, SIZE), "f4") for number in range(2)]
    top, bottom = max(1, rank * SIZE // size), min(SIZE - 1, (rank + 1) * SIZE // size)
    if rank == 0:
        for plate in plates:
            plate[0] = 100 * numpy.sin(numpy.pi * numpy.arange(SIZE) / SIZE) ** 2
            plate[SIZE // 4 : SIZE // 2, SIZE // 3] = 80
    pagemesh.barrier()
    for step in range(STEPS):
        old, new = plates[step % 2], plates[(step + 1) % 2]
        # Reads one row beyond each end, which others write; stores only to its own.
        part = numpy.asarray(old[top - 1 : bottom + 1])
        around = part[:-2, 1:-1] + part[2:, 1:-1] + part[1:-1, :-2] + part[1:-1, 2:]
        new[top:bottom, 1:-1] = around / 4
        pagemesh.barrier()
    if rank == 0:
        save(picture, plates[0])
        print(f"{size} processes, {STEPS} steps, hottest inside {plates[0][1:-1].max():.1f}: {picture}")
        for plate in plates:
            plate.unlink()


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


main(sys.argv[1] if len(sys.argv) > 1 else "heat.png")
