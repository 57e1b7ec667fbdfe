"""What a run of all tests says at its end."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test_results.py"


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("test_results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CARGO = """
running 4 tests
test one ... ok
test two ... ok
test long ... ignored, takes an hour
test child_process ... ignored, not a test, but what other tests start
test bad ... FAILED

successes:

---- two stdout ----
skipped: needs root to become somebody else
skipped: twice is once


successes:
    one
    two

failures:

---- bad stdout ----
skipped: no, it failed

thread 'bad' (17) panicked at tests/bad.rs:7:5:
4 of 5 came
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:689:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
the last node said nothing

failures:
    bad

test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""

# A test that ends its whole program, and one that fails without that.
DEAD = """
running 3 tests
test one ... ok

thread 'three' (9) panicked at tests/bad.rs:7:5:
4 of 5 came
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:689:5

SIGBUS: a lost page was touched in the test three
error: test failed, to rerun pass `-p pagemesh-tests --test cluster`

Caused by:
  process didn't exit successfully: `lane cluster {program} --show-output` (signal: 7, SIGBUS: access to undefined memory)
running 1 test
test other ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed, to rerun pass `-p pagemesh-tests --lib`

Caused by:
  process didn't exit successfully: `lane cluster target/deps/other --show-output` (exit status: 101)
"""

PYTEST = """
FAILED python/tests/test_arrays.py::test_sums - assert 3 == 4
SKIPPED [2] python/tests/test_arrays.py:291: could not import 'torch': No module named 'torch'
SKIPPED [1] python/tests/conftest.py:72: `pagemesh doctor` says: page faults
1 failed, 120 passed, 3 skipped, 1 warning in 61.20s (0:01:01)
"""


def test_tests_of_cargo_that_did_nothing_are_named(results):
    found = results.of_cargo(CARGO)
    assert found[:3] == (11, 1, {"two": "needs root to become somebody else", "long": "takes an hour"})


def test_a_program_that_ended_early_is_a_failure_with_its_last_words(results, tmp_path):
    program = tmp_path / "deps" / "cluster"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf 'one: test\\ntwo: test\\nthree: test\\n'\n")
    program.chmod(0o755)
    found = results.of_ended_early(DEAD.replace("{program}", str(program)))
    last = [
        "thread 'three' (9) panicked at tests/bad.rs:7:5:",
        "4 of 5 came",
        "stack backtrace:",
        "SIGBUS: a lost page was touched in the test three",
        "signal: 7, SIGBUS: access to undefined memory",
        "2 tests have no result, the first: two three",
    ]
    assert found == (0, 1, {}, {str(program): last})


def test_failed_tests_of_cargo_say_why_at_the_end_without_their_stack(results):
    found = results.of_cargo(CARGO)
    why = [
        "skipped: no, it failed",
        "thread 'bad' (17) panicked at tests/bad.rs:7:5:",
        "4 of 5 came",
        "the last node said nothing",
    ]
    assert found.said == {"bad": why}
    assert results.report(found, [])[:2] == ["failed: bad", "  skipped: no, it failed"]


def test_tests_of_python_that_did_not_run_are_counted(results):
    found = results.of_pytest(PYTEST)
    assert (found.passed, found.failed, len(found.skipped)) == (120, 1, 3)
    assert found.skipped["python/tests/conftest.py:72"].endswith("page faults")
    assert found.said == {"python/tests/test_arrays.py::test_sums": ["assert 3 == 4"]}


def doctor(verdict: str, setting: bool) -> str:
    check = {
        "check": "page faults",
        "verdict": verdict,
        "setting": setting,
        "found": "forbidden",
        "cure": "chmod",
    }
    return json.dumps({"checks": [check]})


@pytest.mark.parametrize(
    ("said", "lacks"),
    [(doctor("blocker", True), 1), (doctor("blocker", False), 0), (doctor("warning", True), 0), ("", 0)],
)
def test_only_what_a_setting_mends_is_a_failure(results, said, lacks, tmp_path, capsys):
    assert len(results.settings(said)) == lacks
    (tmp_path / "cargo-others").write_text(CARGO.replace("1 failed", "0 failed"))
    (tmp_path / "doctor").write_text(said)
    assert results.main(tmp_path) == lacks
    lines = capsys.readouterr().out.splitlines()
    assert "skipped: two: needs root to become somebody else" in lines
    assert ("  cure: chmod" in lines) == bool(lacks)
    assert lines[-1] == "11 passed, 0 failed, 2 skipped"


def test_a_host_that_lacks_a_setting_but_skipped_nothing_is_well(results, tmp_path):
    (tmp_path / "cargo-others").write_text("test result: ok. 1 passed; 0 failed; 0 ignored;")
    (tmp_path / "doctor").write_text(doctor("blocker", True))
    assert results.main(tmp_path) == 0


def test_the_tests_of_all_lanes_are_counted(results, tmp_path, capsys):
    (tmp_path / "cargo-others").write_text("test result: ok. 1 passed; 0 failed; 0 ignored;")
    (tmp_path / "cargo-cluster").write_text("test result: FAILED. 2 passed; 1 failed; 0 ignored;")
    assert results.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 1 failed, 0 skipped"
