"""How much of the best recorded speed lies in the space that a kernel's source proposes.

    python -m benchmarks.auto_space [--output FILE]

Needs no GPU, compiles nothing. For each kernel of recorded timings on an H200, the fastest
recorded config that `space="auto"` contains is set beside the fastest of all that were recorded:
those of the kernel's hand-written space. Constexprs that are no axes have the hand-written
default's values. It is a lower bound: what nobody recorded of the proposed space counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.oracle import Task, load_oracle
from asmtune.core.space.proposal import proposal_for
from asmtune.core.space.space import Space
from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import RESULTS, parser, table, write

HERE = Path(__file__).parent
FILES = {
    "h200_families.json.gz": HERE / "corpus" / "families",
    "h200_families2.json.gz": HERE / "corpus" / "families",
    "h200_kinds.json.gz": HERE / "corpus" / "kinds",
}


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "auto_space.json").parse_args()
    rows = [row for file, folder in FILES.items() for row in rows_of(RESULTS / file, folder)]
    print(document(write(options.output, {"rows": rows})))


def rows_of(file: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each kernel of a file: its tasks, and what of them the proposal keeps."""
    tasks: dict[str, list[Task]] = {}
    for task in load_oracle(file).tasks:
        tasks.setdefault(task.kernel, []).append(task)
    for kernel, own in tasks.items():
        module = load_kernel_module(str(folder / f"{kernel}.py"))
        row: dict[str, Any] = {"kernel": kernel, "tasks": len(own)}
        try:
            shares = [share_of(module, task) for task in own]
        except InputError as error:
            yield {**row, "refused": str(error)}
            continue
        yield {**row, "kept": round(geometric_mean(shares), 4) if all(shares) else 0.0}


def share_of(module: KernelModule, task: Task) -> float:
    """Return the share of the best recorded speed that the proposed space contains; 0 for none.

    Raises:
        InputError: nothing can be proposed.
    """
    problem = module.problem(task.shape, task.dtype, "meta")
    default = module.space().first(**problem.shape).values()
    space = proposal_for(problem)[1].space
    given = {name: problem.arguments[name] for name in space.axes if name in problem.arguments}
    timed = {row.config: row.ms for row in task.rows if row.ms is not None}
    inside = [ms for c, ms in timed.items() if is_in({**given, **c.values()}, space, default)]
    return min(timed.values()) / min(inside) if inside else 0.0


def is_in(values: Mapping[str, Any], space: Space, default: Mapping[str, Any]) -> bool:
    """Return whether a config is a point of a space, with the default's other values."""
    axes = space.axes
    fits = all(
        value in axes[name] if name in axes else value == default.get(name, value)
        for name, value in values.items()
    )
    return fits and all(constraint.holds(dict(values)) for constraint in space.constraints)


def document(content: Mapping[str, Any]) -> str:
    """Tabulate how many kernels have a proposal, and what it keeps."""
    rows = content["rows"]
    kept = [row["kept"] for row in rows if "kept" in row]
    good = sum(share >= 0.98 for share in kept)
    some = [share for share in kept if share]
    worst = min(kept)
    cells = (
        f"{len(kept)} of {len(rows)}",
        f"{geometric_mean(some):.3f} of {len(some)}",
        f"{good}",
        f"{worst:.3f}",
    )
    heads = ("kernels with a proposal", "share of the best recorded speed", "0.98 or more", "worst")
    return table(heads, [cells])


if __name__ == "__main__":
    main()
