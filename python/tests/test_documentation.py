"""Each Python snippet of docs/python.md runs, and is well typed under ``mypy --strict``.

Snippets build on those before them, as a reader would; each is run whole, in a program of its own.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pagemesh

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)

# What a reader knows from the text around a snippet, and what shows that it did what it says.
BEFORE = {
    "grid = pagemesh.array(": "",
    "counts = pagemesh.array(": "import numpy\nimport pagemesh\nhistogram = numpy.ones(1000, 'i8')\n",
    "tasks = pagemesh.Queue(": "import pagemesh\n",
    "def work(": "import pagemesh\n",
    "def total(": "import pagemesh\n",
    "robot = numpy.dtype(": "import pagemesh\n",
    "pagemesh.Pipe(": "import pagemesh\n",
    "pagemesh.Group(": "import pagemesh\n",
}
AFTER = {
    'SharedMemory("board", create': "board.buf[0] = 7",
    'board = SharedMemory("board")\n': "assert board.buf[0] == 7\nboard.unlink()",
    "grid = pagemesh.array(": "assert grid.all()\ngrid.unlink()",
    "counts = pagemesh.array(": "assert int(counts.sum()) == 1000\ncounts.unlink()",
    "tasks = pagemesh.Queue(": (
        'assert tasks.get() == ("mesh", 17) and found["worst"] == 2.5\ntasks.unlink()\nfound.unlink()'
    ),
    "def work(": (
        'if __name__ == "__main__":\n    cells = pagemesh.attach("cells")\n'
        "    assert cells[-1, -1] == 7\n    cells.unlink()"
    ),
    "robot = numpy.dtype(": 'assert state is not None and state.number == 1\npagemesh.unlink("robot")',
    "pagemesh.Pipe(": 'pagemesh.unlink("questions")',
    "pagemesh.Group(": 'pagemesh.unlink("ring.0-1")',
    "def total(": ('if __name__ == "__main__":\n    assert totals == [0.0] * 100\n    rows.unlink()'),
}


def whole(snippet):
    """A snippet as a program."""
    if snippet.startswith("from multiprocessing"):
        return snippet + "board.close()\nboard.unlink()\n"
    before = [text for mark, text in BEFORE.items() if mark in snippet]
    after = [text for mark, text in AFTER.items() if mark in snippet]
    return "".join(before) + snippet + "\n".join(after) + "\n"


def programs():
    """Each snippet, after those that it needs."""
    made = [whole(snippet) for snippet in SNIPPETS]
    imports = next(n for n, text in enumerate(SNIPPETS) if text == f"{IMPORT}\n")
    # The change of an import is shown alone; the program is the one before it.
    made[imports] = f"{IMPORT}\n" + SNIPPETS[0].split("\n\n", 1)[1] + "board.buf[0] = 7\n"
    return made


IMPORT = "from pagemesh.shared_memory import SharedMemory"
PROGRAMS = programs()


def test_there_are_snippets_for_all_that_is_known_here():
    assert len(SNIPPETS) >= 8
    for mark in BEFORE | AFTER:
        assert any(mark in snippet for snippet in SNIPPETS), mark


def test_snippets_are_well_typed(tmp_path):
    pytest.importorskip("mypy")
    for number, program in enumerate(PROGRAMS):
        (tmp_path / f"snippet{number}.py").write_text(program)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            tmp_path / "cache",
            *tmp_path.glob("*.py"),
        ],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert checked.returncode == 0, checked.stdout


def test_what_is_wrong_is_not_well_typed(tmp_path):
    """So that the check above can fail: the arrays' dtype is known, and mistakes are found."""
    pytest.importorskip("mypy")
    program = tmp_path / "wrong.py"
    program.write_text(
        "import numpy, pagemesh, pagemesh.managers\n"
        "from typing import assert_type\n"
        "grid = pagemesh.array('grid', (3, 4), numpy.int32)\n"
        "assert_type(grid, pagemesh.Array[numpy.dtype[numpy.int32]])\n"
        "assert_type(grid[:1].T, pagemesh.Array[numpy.dtype[numpy.int32]])\n"
        "grid[:1, None].advise('willneed')\n"
        "pagemesh.managers.SharedMemoryManager().SharedMemory(5).buf[0] = 1\n"
        "assert_type(pagemesh.Executor().submit(len, 'x').result(), int)\n"
        "plain: pagemesh.Array = pagemesh.attach('grid')\n"
        "grid.advise('sometimes')\n"
        "pagemesh.array('grid', 'shape')\n"
        "pagemesh.managers.SharedMemoryManager().SharedMemory('five')\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program],
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = re.findall(r"wrong.py:(\d+): error", checked.stdout)
    assert sorted(set(lines)) == ["10", "11", "12"], checked.stdout + checked.stderr


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_snippet_runs(cluster, number, tmp_path):
    program = tmp_path / "snippet.py"
    program.write_text(PROGRAMS[number])
    ran = subprocess.run(
        [sys.executable, program],
        env=cluster.environment(0),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr


def test_snippets_leave_nothing(cluster):
    names = {"board", "grid", "counts", "cells", "rows", "queue.tasks", "dict.found"}
    names |= {"robot", "questions", "ring.0-1"}
    assert not names & {segment["name"] for segment in pagemesh.segments()}
