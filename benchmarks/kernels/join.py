"""Join of the tables of several runs, such as of several GPUs at once, into one.

    python -m benchmarks.kernels.join FILE [FILE ...] [--output FILE]

The last file counts where several have a row; rows of an older source are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.kernels.plan import Plan
from benchmarks.kernels.table import FILE, Table
from tests.kernels.accuracy import KERNELS


def main() -> None:
    """Read the files in turn and write one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    table = Table()
    for file in options.files:
        if not file.exists():
            parser.error(f"{file}: no such file")
        table.join(file)
    table.write(options.output, Plan().places(KERNELS))
    print(f"{options.output.name}: {len(table.rows)} rows of {len(table.runs)} runs")


if __name__ == "__main__":
    main()
