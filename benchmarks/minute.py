"""The README's first path, as a reader types it, in an empty environment: seconds of each step.

    python -m benchmarks.minute [--with TORCH==VERSION] [--output FILE]

Needs no GPU. A new environment is made in a temporary folder, with no cache of asmtune's or
Triton's; then the first two blocks of commands of the README run in the repository's folder: the
installation, and the report of a host function for a GPU that is not there. The report is given a
second time, as a reader does who changes an option. `--with` installs a package before, such as
the build of PyTorch that a machine should take; pip's cache of downloads is the user's own, so the
installation's seconds are those of this machine and its network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import caches, parser, table, write

ROOT = Path(__file__).parents[1]


def blocks() -> list[str]:
    """Return the README's blocks of commands, in their order."""
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)


def timed(command: str, environment: dict[str, str]) -> float:
    """Run a block of commands in the repository's folder; return its seconds.

    Raises:
        SystemExit: it failed; shows what it said.
    """
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {command}\n{done.stdout}{done.stderr}")
    return round(time.perf_counter() - start, 1)


def document(content: dict[str, Any]) -> str:
    """Tabulate the steps."""
    lines = [[step, f"{seconds:.1f} s"] for step, seconds in content["steps"].items()]
    return table(("the README's first path", "took"), lines)


def main() -> None:
    """Make the environment, run the blocks, write the file, and print the table."""
    options = parser(__doc__, "minute.json")
    options.add_argument("--with", dest="packages", action="append", default=[])
    arguments = options.parse_args()
    install, report = blocks()[:2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        path = f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        own = {**os.environ, **caches(folder), "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        own.pop("PYTHONPATH", None)
        given = f"pip install {' '.join(arguments.packages)}" if arguments.packages else "true"
        steps = {
            "installation": round(timed(given, own) + timed(install, own), 1),
            "first report": timed(report, own),
            "the same report again": timed(report, own),
        }
    about = {"with": arguments.packages, "steps": steps}
    print(document(write(arguments.output, about)))


if __name__ == "__main__":
    main()
