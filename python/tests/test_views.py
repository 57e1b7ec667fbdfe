"""Arrays of policy ``views``: copies for reading, old until somebody does something about it."""

import ctypes
import time

import pytest

import pagemesh


def eventually(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_copy_is_old_until_it_is_published_or_purged(cluster):
    grid = pagemesh.array("old", (4, 1024), "i8", policy="views")
    assert grid.policy == pagemesh.Views(32)
    grid[:] = 1
    code = """
        import pagemesh, sys
        copy = pagemesh.attach("old", readonly=True)
        for order in sys.stdin:
            if order == "purge\\n":
                copy.purge()
            print(copy[0, 0], copy[-1, -1], flush=True)
    """
    reader = cluster.start(1, code, stdin=-1)

    def ask(order):
        reader.stdin.write(order + "\n")
        reader.stdin.flush()
        return reader.stdout.readline().split()

    assert ask("look") == ["1", "1"]
    grid[:] = 2
    assert ask("look") == ["1", "1"]
    assert ask("purge") == ["2", "2"]
    grid[:] = 3
    grid.publish()
    eventually(lambda: ask("look") == ["3", "3"])
    reader.stdin.close()
    assert reader.wait(30) == 0
    reader.stdout.close()
    reader.stderr.close()
    grid.unlink()


def test_the_length_of_short_pages_and_the_policy_are_checked(cluster):
    longer = pagemesh.array("longer", 10, policy=pagemesh.Views(prefix=256))
    assert pagemesh.attach("longer").policy == pagemesh.Views(256)
    with pytest.raises(pagemesh.errors.MismatchError):
        pagemesh.array("longer", 10, policy="release")
    longer.unlink()
    with pytest.raises(ValueError, match="short page"):
        pagemesh.array("odd", 10, policy=pagemesh.Views(prefix=7))
    with pytest.raises(ValueError, match="there are pagemesh.Sequential"):
        pagemesh.array("none", 10, policy="view")


def test_e10_bits_of_an_address_choose_the_view(cluster):
    mine = pagemesh.Windows("windows", 2 * pagemesh.PAGE_SIZE)
    old, short = pagemesh.View.OLD, pagemesh.View.OLD | pagemesh.View.SHORT
    consistent = mine[pagemesh.View.CONSISTENT]
    consistent[:5] = b"first"
    consistent[40] = 7
    assert not consistent.readonly
    assert mine[old].readonly
    assert bytes(mine[old][:5]) == b"first"
    # The same byte by arithmetic on an address.
    here = mine.address(offset=40)
    there = pagemesh.view_pointer(here, mine.stride, old)
    assert there == mine.address(old, 40)
    assert ctypes.c_ubyte.from_address(there).value == 7
    assert pagemesh.view_pointer(there, mine.stride, pagemesh.View.CONSISTENT) == here
    with pytest.raises(ValueError, match="data-driven"):
        mine[pagemesh.View.NEXT]

    code = """
        import pagemesh, sys
        view = pagemesh.View
        theirs = pagemesh.Windows("windows", write=False)
        short = theirs[view.OLD | view.SHORT]
        print(bytes(short[:5]).decode(), flush=True)
        for order in sys.stdin:
            if order == "purge\\n":
                theirs.purge(view.OLD)
            print(bytes(theirs[view.OLD | view.SHORT][:5]).decode(), flush=True)
    """
    reader = cluster.start(1, code, stdin=-1)

    def ask(order):
        reader.stdin.write(order + "\n")
        reader.stdin.flush()
        return reader.stdout.readline().strip()

    assert reader.stdout.readline().strip() == "first"
    consistent[:5] = b"other"
    assert ask("look") == "first"
    assert ask("purge") == "other"
    consistent[:5] = b"third"
    mine.publish(0, 5, short=True)
    eventually(lambda: ask("look") == "third")
    assert bytes(mine[short][:5]) == b"third"
    reader.stdin.close()
    assert reader.wait(30) == 0
    reader.stdout.close()
    reader.stderr.close()
    pagemesh.unlink("windows")


def test_e11_e12_short_pages_are_paged_out_and_locked(cluster):
    mine = pagemesh.Windows("short pages", pagemesh.PAGE_SIZE)
    short, consistent = pagemesh.View.SHORT, mine[pagemesh.View.CONSISTENT]
    consistent[:5] = b"first"
    with mine.lock(short, 0, 8):
        assert bytes(consistent[:5]) == b"first"
    with pytest.raises(ValueError, match="inconsistent"):
        mine.lock(pagemesh.View.OLD)
    mine.page_out(short)
    mine.page_out(pagemesh.View.OLD | short, 0, 8)
    assert bytes(mine[short][:5]) == b"first"
    pagemesh.unlink("short pages")


def test_published_memory_may_have_a_replica(cluster):
    kept = pagemesh.array("kept", 1024, "i8", policy=pagemesh.Views(replicas=1))
    assert kept.policy == pagemesh.Views(32, replicas=1)
    board = pagemesh.Board("kept board", 100, replicas=1)
    assert board.publish(b"state") == 1
    with pytest.raises(ValueError, match="1 at most"):
        pagemesh.array("more", 1024, "i8", policy=pagemesh.Views(replicas=2))
    pagemesh.unlink("kept board")
    pagemesh.unlink("kept")
