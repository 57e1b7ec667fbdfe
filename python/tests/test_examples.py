"""The examples run as their first lines say, and are short."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import program

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SAYS = {
    "heat": (4, ["heat.png"], "4 processes, 200 steps"),
    "frame": (3, [], "3 scorers, 40000 customers"),
    "board": (3, ["1"], "age: median"),
    "plot": (2, ["1"], "drew "),
    "dashboards": (4, ["1"], "dashboard 9: "),
    "pipe": (2, ["200"], "200 questions"),
    "training": (3, [], "3 workers found"),
}


def run(nodes, name, args, where):
    """What an example says, on so many nodes."""
    command = [program(), "sandbox", str(nodes), "--", sys.executable, str(EXAMPLES / f"{name}.py")]
    run = subprocess.run([*command, *args], cwd=where, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example(name, tmp_path):
    nodes, args, says = SAYS[name]
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60
    if name == "frame":
        pytest.importorskip("pandas")
    assert says in run(nodes, name, args, tmp_path)


def test_the_picture_is_the_same_whoever_computes_it(tmp_path):
    """Alone, by four nodes, and by four nodes under ``release``."""
    for number, (nodes, policy) in enumerate([(1, "sequential"), (4, "sequential"), (4, "release")]):
        assert f"({policy})" in run(nodes, "heat", [f"{number}.png", policy], tmp_path)
    pictures = [(tmp_path / f"{number}.png").read_bytes() for number in range(3)]
    assert pictures[0].startswith(b"\x89PNG") and len(pictures[0]) > 1000
    assert pictures[1] == pictures[0] and pictures[2] == pictures[0]
