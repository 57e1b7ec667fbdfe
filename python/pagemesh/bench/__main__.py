"""The command: brings up the nodes, lets both sides run, prints a table or JSON."""

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys

from ..jobs import _program

PORT = 7600


def main():
    options = arguments()
    with sandbox() as nodes:
        if options.rate:
            shape(nodes, options.rate)
        rows = compare(nodes, options)
        if has("ray") and inside(nodes[0])[:1] == ["nsenter"]:
            rows += ray(nodes, options)
    if shutil.which("mpirun") and has("mpi4py"):
        rows += mpi(options)
    report(rows, options)


def arguments():
    parser = argparse.ArgumentParser("python -m pagemesh.bench", description=__doc__)
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="of the array (64)")
    parser.add_argument("--rounds", type=int, default=200, help="of what takes microseconds (200)")
    parser.add_argument("--rate", help="shape the link, for example 10gbit (needs root and tc)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


@contextlib.contextmanager
def sandbox():
    """Two nodes on this machine."""
    command = [_program(), "-o", "json", "sandbox", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = ""
            for line in process.stdout:
                said += line
                if line == "}\n":
                    break
            yield json.loads(said)["nodes"]
        finally:
            process.terminate()


def inside(node, *command):
    """A command in the namespace of a node, if it has one."""
    if os.geteuid() == 0 and node["address"].startswith("10."):
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


def compare(nodes, options):
    """Both sides, each on its node; the rows that the second one measured."""
    sides = []
    host = nodes[0]["address"].split(":")[0]
    for side, node in zip(("serve", "measure"), nodes, strict=True):
        kept = {key: word for key, word in os.environ.items() if not key.startswith("PAGEMESH_")}
        what = [side, host, str(PORT), str(options.size), str(options.rounds)]
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
            inside(nodes[1], *measure), check=True, timeout=100, capture_output=True, text=True
        )
        return json.loads(said.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, json.JSONDecodeError) as error:
        print(f"Ray failed: {error}\n{getattr(error, 'stderr', '')}", file=sys.stderr)
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
        print(f"mpi4py failed:\n{run.stderr.strip()}", file=sys.stderr)
        return []
    return json.loads(run.stdout)


def has(module):
    import importlib.util

    return importlib.util.find_spec(module) is not None


def report(rows, options):
    if options.json:
        about = {"schema_version": 1, "size_mib": options.size, "rounds": options.rounds}
        about |= {"rate": options.rate, "python": platform.python_version(), "cpus": os.cpu_count()}
        print(json.dumps(about | {"rows": rows}, indent=1))
        return
    width = max(len(row["what"]) for row in rows)
    peers = max(len(row["by"]) for row in rows)
    last = None
    for row in sorted(rows, key=lambda row: row["what"]):
        what = row["what"] if row["what"] != last else ""
        last = row["what"]
        print(f"{what:{width}}  {row['by']:{peers}}  {row['value']:>10.1f} {row['unit']}")


if __name__ == "__main__":
    main()
