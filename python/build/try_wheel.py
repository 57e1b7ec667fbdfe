"""Tries a wheel as users have it: installed in a fresh environment, with nothing else around it.

    try_wheel.py WHEEL [PYTHON...]

For each Python (those of 3.11 to 3.14 that are installed, if none is named): `pip install --no-index`,
the package, the program, two nodes that share memory, and a C program built against the header and the
library that the wheel carries. Needs only the standard library, and a C compiler for the last.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SHARES = """
import pagemesh
from pagemesh.shared_memory import SharedMemory
if pagemesh.rank() == 0:
    segment = SharedMemory("shared", create=True, size=9)
    segment.buf[:5] = b"hello"
pagemesh.barrier(60)
if pagemesh.rank() == 1:
    segment = SharedMemory("shared")
    print(bytes(segment.buf[:5]).decode())
pagemesh.barrier(60)
"""

LINKS = """
#include <pagemesh.h>
#include <stdio.h>
int main(void) {
    printf("%s %d", pagemesh_version(), pagemesh_version_number() == PAGEMESH_VERSION_NUMBER);
    return 0;
}
"""


def pythons():
    """The Pythons that are installed and run."""
    found = []
    for minor in range(11, 15):
        command = shutil.which(f"python3.{minor}")
        asked = command and subprocess.run([command, "-c", ""], capture_output=True)
        if asked and asked.returncode == 0:
            found.append(command)
    return found or [sys.executable]


def attempt(wheel, python, home):
    """Raises if anything is not as it should be."""
    subprocess.run([python, "-m", "venv", home], check=True)
    environment = {"PATH": f"{home}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home)}

    def run(*command):
        ran = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=300
        )
        if ran.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    run(f"{home}/bin/pip", "install", "--quiet", "--no-index", wheel)
    says = run(
        f"{home}/bin/python", "-c", "import pagemesh, sys; print(pagemesh.__version__, sys.version)"
    )
    version = says.split()[0]
    assert version in run(f"{home}/bin/pagemesh", "version"), says
    for carried in ("include/pagemesh.h", "lib/libpagemesh.so.0", "lib/pkgconfig/pagemesh.pc"):
        assert (home / carried).exists(), carried
    shares = "not tried: `pagemesh doctor` names what is missing"
    if (
        subprocess.run(
            [f"{home}/bin/pagemesh", "doctor"], env=environment, capture_output=True
        ).returncode
        == 0
    ):
        sandbox = run(f"{home}/bin/pagemesh", "sandbox", "2", "--", f"{home}/bin/python", "-c", SHARES)
        assert "hello" in sandbox, sandbox
        shares = "share memory"
    links = "not tried: there is no C compiler"
    if shutil.which("cc") and shutil.which("pkg-config"):
        (home / "links.c").write_text(LINKS)
        environment["PKG_CONFIG_PATH"] = f"{home}/lib/pkgconfig"
        flags = run("pkg-config", "--cflags", "--libs", "pagemesh").split()
        run("cc", "-o", home / "links", home / "links.c", *flags)
        assert run(home / "links") == f"{version} 1"
        links = "is linked"
    print(f"Python {says.split()[1]}: pagemesh {version} is imported; two nodes: {shares}; C: {links}")


def main(wheel, *chosen):
    for python in chosen or pythons():
        with tempfile.TemporaryDirectory() as above:
            attempt(Path(wheel).resolve(), python, Path(above) / "home")


if __name__ == "__main__":
    main(*sys.argv[1:])
