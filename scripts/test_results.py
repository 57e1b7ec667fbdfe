"""What the logs of a test run say: why tests failed, which did not run, and how many there are of each kind.

Reads `python`, `doctor` and every `cargo-LANE` of a folder. A test that did not run is a failure where
`pagemesh doctor` knows a setting of this host that keeps it from running.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


# How much of what a failed test said is repeated at the end.
LINES_OF_A_FAILURE = 25
# A program that ended early says what the daemons of the tests under way said last.
LINES_OF_AN_END = 200
# Tests start in the order of their names, so those under way as a program ended are the first without a result.
TESTS_UNDER_WAY = 12


class Results(NamedTuple):
    """How many tests passed and failed, why the others did not run, and what failed ones said, by name."""

    passed: int
    failed: int
    skipped: dict[str, str]
    said: dict[str, list[str]] = {}

    def and_also(self, other: "Results") -> "Results":
        return Results(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped | other.skipped,
            self.said | other.said,
        )


def failures_of_cargo(log: str) -> dict[str, list[str]]:
    """What each failed test said: the ends of what is long, no stack."""
    said: dict[str, list[str]] = {}
    name, failing, stack = None, False, False
    for line in log.splitlines():
        if section := re.fullmatch(r"---- (\S+) stdout ----", line):
            name, stack = section[1] if failing else None, False
        elif re.match(r"(successes|failures):$|test result: ", line):
            name, failing = None, line == "failures:"
        elif line == "stack backtrace:" or (stack and line.startswith(" ")):
            stack = True
        elif name and line and not line.startswith("note: "):
            stack = False
            said.setdefault(name, []).append(line)
    return {name: lines[-LINES_OF_A_FAILURE:] for name, lines in said.items()}


def ended_early(log: str) -> dict[str, list[str]]:
    """What each test program without a `test result` line said last, and how it ended. No stacks."""
    last: list[str] = []
    said: dict[str, list[str]] = {}
    counted = False
    for line in log.splitlines():
        if re.match(r"running \d+ tests?$|test result: ", line):
            last, counted = [], line.startswith("test result: ")
        elif ended := re.match(r"\s*process didn't exit successfully: `(.*)` \((.*)\)$", line):
            if not counted:
                said[test_program(ended[1])] = [*last[-LINES_OF_AN_END:], ended[2]]
        elif line.strip() and not re.match(r"test \S+ \.\.\. |\s+(\d+:|at) |Caused by:|error: test failed", line):
            last.append(line)
    return said


def test_program(command: str) -> str:
    """The program in a command that has its runner before it, and arguments after it."""
    words = command.split()
    return next((word for word in words if "/deps/" in word), words[0])


def without_result(program: str, log: str) -> list[str]:
    """The tests of a program that did not end: the first of them were under way."""
    listed = subprocess.run([program, "--list", "--format", "terse"], capture_output=True, text=True, check=False)
    names = re.findall(r"^(\S+): test$", listed.stdout, re.M)
    ended = set(re.findall(r"^test (\S+) \.\.\. \w+", log, re.M))
    return [name for name in names if name not in ended]


def of_ended_early(log: str) -> Results:
    """A program that ended before its tests counts as one failure, and names those that were under way."""
    said = ended_early(log)
    for program, lines in said.items():
        lost = without_result(program, log)
        lines.append(f"{len(lost)} tests have no result, the first: {' '.join(lost[:TESTS_UNDER_WAY])}")
    return Results(0, len(said), {}, said)


def of_cargo(log: str) -> Results:
    """A test that says `skipped: WHY` and passes has not run, nor has one that is ignored."""
    passed = failed = 0
    for good, bad in re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed;", log, re.M):
        passed, failed = passed + int(good), failed + int(bad)
    said: dict[str, str] = {}
    name, passing = None, False
    for line in log.splitlines():
        if section := re.fullmatch(r"---- (\S+) stdout ----", line):
            name = section[1] if passing else None
        elif re.match(r"(successes|failures):$|test result: ", line):
            name, passing = None, line == "successes:"
        elif name and line.startswith("skipped: "):
            said.setdefault(name, line.removeprefix("skipped: "))
    ignored = {
        name: why or "ignored"
        for name, why in re.findall(r"^test (\S+) \.\.\. ignored(?:, (.*))?$", log, re.M)
        if why != "not a test, but what other tests start"
    }
    # A name may occur in several programs: what is counted are names.
    return Results(passed - len(said), failed, said | ignored, failures_of_cargo(log))


def of_pytest(log: str) -> Results:
    """Of the line at the end, and of the summary that `-rfEs` writes."""
    ends = re.findall(r"^=*\s*((?:\d+ \w+,? ?)+)(?:, \d+ warnings?)? in [\d.]+s", log, re.M)
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (\w+)", ends[-1] if ends else "")}
    skipped = {}
    for times, where, why in re.findall(r"^SKIPPED \[(\d+)\] (\S+?): (.*)$", log, re.M):
        for time in range(int(times)):
            skipped[where if time == 0 else f"{where} ({time + 1})"] = why
    bad = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    said = {where: [why] for where, why in re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", log, re.M)}
    return Results(counts.get("passed", 0), bad, skipped, said)


def settings(doctor: str) -> list[str]:
    """What this host lacks that a setting would mend."""
    try:
        checks = json.loads(doctor)["checks"]
    except (ValueError, KeyError):
        return []
    lacking = [check for check in checks if check["verdict"] == "blocker" and check["setting"]]
    return [f"{check['check']}: {check['found']}\n  cure: {check['cure']}" for check in lacking]


def report(results: Results, lacking: list[str]) -> list[str]:
    """The lines to end a run with."""
    lines = []
    for name, said in sorted(results.said.items()):
        lines += [f"failed: {name}", *(f"  {line}" for line in said)]
    lines += [f"skipped: {name}: {why}" for name, why in sorted(results.skipped.items())]
    if results.skipped and lacking:
        lines.append("This host could run them, but for what `pagemesh doctor` says:")
        lines += lacking
    lines.append(f"{results.passed} passed, {results.failed} failed, {len(results.skipped)} skipped")
    return lines


def main(logs: Path) -> int:
    def read(name: str) -> str:
        path = logs / name
        return path.read_text(errors="replace") if path.exists() else ""

    results = of_pytest(read("python"))
    for log in sorted(logs.glob("cargo-*")):
        results = results.and_also(of_cargo(read(log.name))).and_also(of_ended_early(read(log.name)))
    lacking = settings(read("doctor"))
    print("\n".join(report(results, lacking)), flush=True)
    return 1 if results.failed or (results.skipped and lacking) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
