"""The benchmark runs, small, and tells what it was and what it left out."""

import json
import subprocess
import sys

import pytest

SMALL = ["--size", "1", "--rounds", "3", "--sweeps", "1"]


def bench(*args):
    command = [sys.executable, "-m", "pagemesh.bench", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_everything_is_measured_beside_others(cluster):
    run = bench(*SMALL, "--peers", "redis", "--json")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert (said["schema_version"], said["size_mib"], said["rounds"]) == (1, 1, 3)
    by = {}
    for row in said["rows"]:
        assert row["value"] > 0 and row["unit"] in ("MiB/s", "us")
        by.setdefault(row["what"].split()[0], set()).add(row["by"])
    assert set(by) == {"first", "repeated", "one", "barrier", "lock", "counter"}
    assert {"pagemesh", "raw TCP", "pickle over a socket"} <= by["first"]
    assert any("local array" in name for name in by["repeated"])
    # Either Redis is in it, or it is said why not.
    assert ("Redis GET" in by["first"]) != ("redis" in said["skipped"])


def test_a_part_is_measured_alone(cluster):
    run = bench(*SMALL, "--only", "barrier", "--peers", "", "--no-pin")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2 and lines[0].startswith("barrier of two")


@pytest.mark.parametrize("wrong", [("--only", "speed"), ("--peers", "memcached")])
def test_what_there_is_not_is_refused(wrong):
    run = bench(*wrong)
    assert run.returncode == 2 and "is none of" in run.stderr
