"""Programs with handlers of signals, as profilers, timers and supervisors install them."""

STORM = """
    import signal, sys, time
    import pagemesh
    from pagemesh.shared_memory import SharedMemory

    handled = 0

    def handle(*_):
        global handled
        handled += 1

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    name = sys.argv[1]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        # On any node: what was created is there, and what was removed is not.
        array = pagemesh.array(name, 2000)
        array[:] = 1
        with pagemesh.Lock(name + "l"):
            assert array.sum() == 2000
        shared = SharedMemory(name + "s", create=True, size=5000)
        shared.buf[0] = 7
        shared.close()
        shared.unlink()
        with pagemesh.Pipe(name + "p") as mine, pagemesh.Pipe(name + "p") as theirs:
            mine.send(b"x" * 4000, timeout=20)
            assert len(theirs.receive(timeout=20)) == 4000
        pagemesh.unlink(name + "p")
        board = pagemesh.Board(name + "b", "f8")
        board.publish(0.5)
        assert board.read().value == 0.5
        pagemesh.unlink(name + "b")
        queue = pagemesh.Queue(name=name + "q")
        queue.put("item")
        assert queue.get(timeout=20) == "item"
        queue.unlink()
        found = pagemesh.Dict(name + "d")
        found["x"] = 1
        found.unlink()
        assert not [s for s in pagemesh.segments() if s["name"].startswith(name + "s")]
        array.unlink()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(handled)
"""


def test_no_call_fails_or_is_done_half_because_a_handler_ran(cluster, name):
    # The coordinator's own node, and one whose calls go over the network.
    for node in (0, 1):
        assert int(cluster.run(node, STORM, name)) > 100


def test_a_child_is_told_which_memory_it_does_not_have(cluster, name):
    code = """
        import os, sys
        import pagemesh

        shared = pagemesh.array(sys.argv[1], 1000)
        large = pagemesh.array(sys.argv[1] + "large", 1000, policy="private")
        large[0] = shared[0] = 1
        child = os.fork()
        if child == 0:
            shared[0] += 1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert shared[0] == 2
    """
    process = cluster.start(0, code, name)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert f"does not keep the segment '{name}large'" in said, said
    assert "private memory is not shared" in said, said
