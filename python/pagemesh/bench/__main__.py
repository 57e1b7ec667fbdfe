"""The command: brings up the nodes, lets both sides run, prints a table or JSON."""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys

from ..jobs import _program

PORT = 7600


# What is measured, and how its rows begin.
MEASURES = {
    "touch": "first touch",
    "read": "repeated read",
    "row": "one row",
    "barrier": "barrier",
    "lock": "lock and",
    "counter": "counter",
}

# What each peer needs beside Python: a program, and a package from PyPI.
PEERS = {"redis": ("redis-server", "redis"), "mpi4py": ("mpirun", "mpi4py"), "ray": (None, "ray")}


def main():
    options = arguments()
    options.skipped = {}
    peers = [peer for peer in options.peers if is_there(peer, options)]
    rows = []
    if "ray" in peers and not can_enter():
        peers.remove("ray")
        options.skipped["ray"] = "needs root: a raylet runs in each namespace"
    with sandbox(options) as nodes:
        if options.rate:
            shape(nodes, options.rate)
        rows += compare(nodes, options, peers)
        if "ray" in peers and {"touch", "row"} & set(options.only):
            rows += ray(nodes, options)
    if "mpi4py" in peers and set(options.only) - {"read"}:
        rows += mpi(options)
    wanted = tuple(MEASURES[measure] for measure in options.only)
    report([row for row in rows if row["what"].startswith(wanted)], options)


def arguments():
    parser = argparse.ArgumentParser("python -m pagemesh.bench", description=__doc__)
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="of the array (64)")
    parser.add_argument("--rounds", type=int, default=200, help="of what takes microseconds (200)")
    parser.add_argument("--sweeps", type=int, default=5, help="of what moves the whole array (5)")
    parser.add_argument("--only", type=words(MEASURES), default=list(MEASURES), help=", ".join(MEASURES))
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=", ".join(PEERS))
    parser.add_argument("--install", action="store_true", help="pip install peers that are not there")
    parser.add_argument("--rate", help="shape the link, for example 10gbit (needs root and tc)")
    parser.add_argument(
        "--wait", choices=("auto", "spin", "block"), default="auto", help="how daemons wait"
    )
    parser.add_argument(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=len(os.sched_getaffinity(0)) > 1,
        help="a processor for each node and all that is its, as two hosts have them",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def words(known):
    """A list of words, with commas between."""

    def parse(text):
        found = [word for word in text.split(",") if word]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return found

    return parse


def is_there(peer, options):
    """Whether a peer can be measured; if not, why is noted."""
    program, package = PEERS[peer]
    if program and shutil.which(program) is None:
        options.skipped[peer] = f"there is no program {program} (Debian has it)"
        return False
    if importlib.util.find_spec(package) is None and options.install:
        command = [sys.executable, "-m", "pip", "install", "--quiet", package]
        pip = subprocess.run(command, capture_output=True, text=True)
        importlib.invalidate_caches()
        if pip.returncode:
            options.skipped[peer] = (pip.stderr.strip().splitlines() or ["pip failed"])[-1]
            return False
    if importlib.util.find_spec(package) is None:
        options.skipped[peer] = f"the package {package} is not installed (--install)"
        return False
    return True


def can_enter():
    return os.geteuid() == 0 and shutil.which("nsenter") is not None


@contextlib.contextmanager
def sandbox(options):
    """Two nodes on this machine."""
    command = [_program(), "-o", "json", "sandbox", "2", "--wait", options.wait]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = ""
            for line in process.stdout:
                said += line
                if line == "}\n":
                    break
            nodes = json.loads(said)["nodes"]
            for number, node in enumerate(nodes if options.pin else ()):
                for thread in os.listdir(f"/proc/{node['pid']}/task"):
                    os.sched_setaffinity(int(thread), {processor(number)})
            yield nodes
        finally:
            process.terminate()


def processor(number):
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[number % len(allowed)]


def inside(node, *command):
    """A command in the namespace of a node, if it has one."""
    if can_enter() and node["address"].startswith("10."):
        return ["nsenter", f"--net=/proc/{node['pid']}/ns/net", *command]
    return list(command)


def shape(nodes, rate):
    """Limits what leaves each node."""
    for node in nodes:
        script = (
            "for dev in $(ls /sys/class/net | grep -v lo); do "
            f"tc qdisc replace dev $dev root tbf rate {rate} burst 1mb latency 50ms; done"
        )
        # The directory of interfaces is that of the namespace only in a fresh mount of /sys.
        script = f"mount -t sysfs sysfs /sys 2>/dev/null; {script}"
        subprocess.run(inside(node, "unshare", "-m", "sh", "-c", script), check=True)


def compare(nodes, options, peers):
    """Both sides, each on its node; the rows that the second one measured."""
    sides = []
    host = nodes[0]["address"].split(":")[0]
    about = {"host": host, "port": PORT, "size": options.size, "rounds": options.rounds}
    about |= {"sweeps": options.sweeps, "only": options.only, "redis": "redis" in peers}
    for number, (side, node) in enumerate(zip(("serve", "measure"), nodes, strict=True)):
        kept = {key: word for key, word in os.environ.items() if not key.startswith("PAGEMESH_")}
        what = [side, str(processor(number) if options.pin else ""), json.dumps(about)]
        sides.append(
            subprocess.Popen(
                inside(node, sys.executable, "-m", "pagemesh.bench.sides", *what),
                env=kept | {"PAGEMESH_SOCKET": node["socket"]},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    said, _ = sides[1].communicate()
    if sides[1].returncode:
        sides[0].kill()
        raise SystemExit("the measurement failed")
    sides[0].communicate()
    return json.loads(said)


def ray(nodes, options):
    """The same by Ray, with a raylet of its own in each namespace."""
    hosts = [node["address"].split(":")[0] for node in nodes]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1"]
    start += [f"--object-store-memory={max(256, 8 * options.size) << 20}", "--disable-usage-stats"]
    head = ["--head", f"--port={PORT + 3}", "--include-dashboard=false"]
    roles = (head, [f"--address={hosts[0]}:{PORT + 3}"])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    raylets = []
    try:
        for node, host, role in zip(nodes, hosts, roles, strict=True):
            command = inside(node, *start, "--block", f"--node-ip-address={host}", *role)
            raylets.append(subprocess.Popen(command, **quiet))
        measure = [sys.executable, "-m", "pagemesh.bench.rays", *hosts, str(PORT + 3)]
        measure += [str(options.size), str(options.rounds)]
        said = subprocess.run(
            inside(nodes[1], *measure), check=True, timeout=90, capture_output=True, text=True
        )
        return json.loads(said.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, json.JSONDecodeError) as error:
        options.skipped["ray"] = f"failed: {error}\n{getattr(error, 'stderr', '')}"
        return []
    finally:
        # Not `ray stop`, which ends whatever Ray runs on this machine.
        for raylet in reversed(raylets):
            raylet.terminate()
            raylet.wait()


def mpi(options):
    """The same by MPI, over TCP on one host: its launcher knows no namespaces."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    command += [
        "--mca",
        "btl",
        "tcp,self",
        "--mca",
        "osc",
        "pt2pt",
        sys.executable,
        "-m",
        "pagemesh.bench.mpi",
    ]
    command += [str(options.size), str(options.rounds)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        options.skipped["mpi4py"] = f"failed: {run.stderr.strip()}"
        return []
    return json.loads(run.stdout)


def report(rows, options):
    if options.json:
        about = {"schema_version": 1, "size_mib": options.size, "rounds": options.rounds}
        about |= {"rate": options.rate, "python": platform.python_version(), "cpus": os.cpu_count()}
        about |= {"wait": options.wait, "skipped": options.skipped}
        print(json.dumps(about | {"rows": rows}, indent=1))
        return
    for peer, why in options.skipped.items():
        print(f"without {peer}: {why}", file=sys.stderr)
    width = max(len(row["what"]) for row in rows)
    peers = max(len(row["by"]) for row in rows)
    last = None
    for row in sorted(rows, key=lambda row: row["what"]):
        what = row["what"] if row["what"] != last else ""
        last = row["what"]
        print(f"{what:{width}}  {row['by']:{peers}}  {row['value']:>10.1f} {row['unit']}")


if __name__ == "__main__":
    main()
