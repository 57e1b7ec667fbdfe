"""One pandas frame, shared read-only; scorers on all nodes score a part each.

pagemesh sandbox 3 -- python frame.py
pagemesh run -n 6 -- python frame.py
"""

import numpy
import pandas

import pagemesh

COLUMNS = ["age", "income", "debt", "years"]
ROWS = 40_000


def publish():
    """The process that has the data puts them where all can see them."""
    table = pagemesh.array("customers", (ROWS, len(COLUMNS)), "f8", order="F")
    dice = numpy.random.default_rng(7)
    table[:] = dice.random((ROWS, len(COLUMNS))) * [80, 90_000, 40_000, 30]


def score(frame):
    return 0.3 * frame["income"] / 1000 - 0.5 * frame["debt"] / 1000 + frame["years"]


def main():
    rank, size = pagemesh.rank(), pagemesh.size()
    scores = pagemesh.array("scores", ROWS, "f8")
    if rank == 0:
        publish()
    pagemesh.barrier()
    # No copy: the frame's columns are the segment. Nobody can store to it.
    table = pagemesh.attach("customers", readonly=True)
    frame = pandas.DataFrame(table, columns=COLUMNS, copy=False)
    assert numpy.shares_memory(frame["income"].to_numpy(), table)
    first, last = rank * ROWS // size, (rank + 1) * ROWS // size
    scores[first:last] = score(frame.iloc[first:last])
    pagemesh.barrier()
    if rank == 0:
        assert numpy.allclose(scores, score(frame))
        best = frame.assign(score=scores).nlargest(3, "score")
        print(f"{size} scorers, {ROWS} customers; the best:\n{best.round(1)}")
        pagemesh.unlink("customers")
        scores.unlink()


main()
