"""Arrays of policy ``views``: copies for reading, old until somebody does something about it."""

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
