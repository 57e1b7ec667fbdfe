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
    "training": (3, [], "3 workers found"),
}


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example(name, tmp_path):
    nodes, args, says = SAYS[name]
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 60
    if name == "frame":
        pytest.importorskip("pandas")
    command = [program(), "sandbox", str(nodes), "--", sys.executable, str(path), *args]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert says in run.stdout
    if name == "heat":
        picture = (tmp_path / "heat.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 1000
