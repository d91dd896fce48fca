"""Tunings during a program: Triton's, from its own output; asmtune's, from its files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asmtune.store.database import Store
from asmtune.store.trace.reader import read_summary
from asmtune.store.trace.run import run_files

# With TRITON_PRINT_AUTOTUNING=1 Triton prints the first for each config and the second, on four
# lines, for each key; FlagGems' tuner, a subclass, prints its second on one line.
_LINE: Final = re.compile(
    r"^Autotuning kernel (?P<tried>\w+) with config "
    r"|Triton autotuning for function (?P<tuned>\w+)(?:,\nwith key as .*?,\n| )"
    r"finished after (?P<seconds>[\d.]+)s"
    r"|^operation (?P<operation>\w+): first call ",
    re.MULTILINE | re.DOTALL,
)


def by_triton(output: str) -> dict[str, list[dict[str, Any]]]:
    """List what Triton's own autotuner tuned, by the operation whose first call did it.

    Args:
        output: all that the program printed.

    Returns:
        Rows of `kernel`, `configs` that were compiled and timed, and `seconds`. What no operation
        follows, since the program ended before, stands under "".
    """
    by_operation: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    tried: Counter[str] = Counter()
    for match in _LINE.finditer(output):
        if match["tried"]:
            tried[match["tried"]] += 1
        elif match["tuned"]:
            kernel = match["tuned"]
            counts = {"configs": tried.pop(kernel, 0), "seconds": float(match["seconds"])}
            rows.append({"kernel": kernel, **counts})
        else:
            by_operation[match["operation"]], rows = rows, []
    return {**by_operation, "": rows} if rows else by_operation


def by_asmtune(
    folder: Path, known: Sequence[str], spans: Mapping[str, Sequence[float]]
) -> dict[str, list[dict[str, Any]]]:
    """List what asmtune tuned, by the operation in whose first call the run's trace ended.

    Args:
        folder: folder of traces.
        known: names of traces that were there before.
        spans: Unix times at which the first call of each operation began and ended.

    Returns:
        Rows of `kernel`, configs `compiled` and `timed`, `seconds`, the `winner` and its time;
        of a run that has no ending, its `kernel` alone.
    """
    by_operation: dict[str, list[dict[str, Any]]] = {}
    for path in run_files(folder):
        if path.name in known:
            continue
        ended = path.stat().st_mtime
        names = [name for name, (begin, end) in spans.items() if begin <= ended <= end]
        by_operation.setdefault(names[0] if names else "", []).append(_row(path))
    return by_operation


def traces(folder: Path) -> list[str]:
    """List the names of a folder's traces."""
    return [path.name for path in run_files(folder)]


def predicted(store: Path) -> list[str]:
    """List the kernels in a store whose config the model chose, with nothing timed."""
    if not store.exists():
        return []
    with Store.open(store) as opened:
        return sorted(prediction.key.kernel for prediction in opened.predictions())


def _row(path: Path) -> dict[str, Any]:
    summary = read_summary(path)
    row: dict[str, Any] = {"kernel": summary.header.kernel}
    if summary.ending is None:
        return row
    ending = summary.ending
    return {
        **row,
        "compiled": ending.compiled,
        "timed": ending.timed,
        "seconds": summary.seconds,
        "winner": ending.winner.to_dict() if ending.winner else None,
        "median_us": ending.median_us,
        "reason": ending.reason,
    }
