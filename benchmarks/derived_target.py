"""The target derived from a driver's attributes beside the shipped one, and tuning with each.

    python -m benchmarks.derived_target ATTRIBUTES [--target NAME] [--output FILE]
    python -m benchmarks.derived_target ATTRIBUTES --oracle ORACLE --kernels DIR [--every N]

ATTRIBUTES is what `asmtune targets show --driver` printed on a machine with the device. The first
form compares figure by figure. The second also replays recorded timings with the roofline of each
target, as if the shipped descriptor had been taken away; `--every 8` replays every eighth task.
Needs no GPU. The first replay compiles every recorded config; later ones read the artifacts.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.hardware.driver import DeviceAttributes
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, shipped_cuda
from asmtune.core.oracle import Oracle, load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import replay
from benchmarks.harness import write


def main() -> None:
    """Compare, replay where asked, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attributes", type=Path)
    parser.add_argument("--target", help="the shipped target; by default the device's own")
    parser.add_argument("--oracle", type=Path)
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if (options.oracle is None) != (options.kernels is None):
        parser.error("give both --oracle and --kernels, or neither")
    attributes = read(options.attributes)
    shipped = load_target(options.target or attributes.name, own=False)
    derived = derive(attributes, without=shipped)
    rows = compared(shipped, derived)
    print_rows(rows)
    results: dict[str, Any] = {"device": attributes.name, "figures": rows}
    if options.oracle is not None:
        oracle = load_oracle(options.oracle)
        oracle = replace(oracle, tasks=oracle.tasks[:: options.every])
        results["replay"] = replayed(oracle, options.kernels, shipped, derived)
        print_replay(results["replay"])
    if options.output is not None:
        write(options.output, results)


def read(path: Path) -> DeviceAttributes:
    """Read a driver's attributes as `asmtune targets show --driver` wrote them."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return DeviceAttributes(document["name"], document["attributes"])


def derive(attributes: DeviceAttributes, without: Target) -> Target:
    """Derive a device's target as if no file described it.

    Raises:
        InputError: the attributes do not suffice.
    """
    others = [target for target in shipped_cuda() if target != without]
    target = attributes.target(others)
    if target is None:
        raise InputError(f"{attributes.name}: its attributes do not suffice for a target")
    return target


def compared(shipped: Target, derived: Target) -> list[dict[str, Any]]:
    """List each figure of either target with both values, their ratio and the derived source."""
    rows = []
    for name in dict.fromkeys((*shipped.figures, *derived.figures)):
        ours, theirs = derived.figures.get(name), shipped.figures.get(name)
        rows.append(
            {
                "figure": name,
                "shipped": None if theirs is None else theirs.value,
                "derived": None if ours is None else ours.value,
                "ratio": None if not ours or not theirs else _ratio(ours.value, theirs.value),
                "kind": None if ours is None else ours.kind,
                "source": None if ours is None else ours.source,
            }
        )
    return rows


def _ratio(derived: float, shipped: float) -> float:
    return 1.0 if derived == shipped else round(derived / shipped, 4) if shipped else float("inf")


def replayed(
    oracle: Oracle, kernels: Path, shipped: Target, derived: Target
) -> dict[str, dict[str, Any]]:
    """Replay recorded timings with the roofline of each target.

    Returns:
        By the scorer's name: what it keeps of the best speed by cut, with each target.
    """
    results: dict[str, dict[str, Any]] = {}
    for role, target in (("shipped", shipped), ("derived", derived)):
        with ProgressBar() as progress:
            scorer = make_scorer("roofline")
            funnel = Funnel(target, scorer, Settings.from_environment(), progress=progress)
            report = replay(oracle, kernels, funnel, [scorer])
        for result in report.scorers:
            results.setdefault(result.scorer, {"tasks": len(oracle.tasks)})[role] = {
                cut: float(kept) for cut, kept in result.summary().items()
            }
    return results


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the figures side by side."""
    print(f"{'figure':38} {'shipped':>14} {'derived':>14} {'ratio':>8}  kind")
    for row in rows:
        values = [_shown(row[name]) for name in ("shipped", "derived", "ratio")]
        print(f"{row['figure']:38} {values[0]:>14} {values[1]:>14} {values[2]:>8}  {row['kind']}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def print_replay(results: dict[str, dict[str, Any]]) -> None:
    """Print what each cut keeps with each target, and the share of the shipped one's."""
    for scorer, by_role in results.items():
        print(f"\n{scorer}, {by_role['tasks']} tasks: share of the best speed kept")
        for cut, kept in by_role["shipped"].items():
            other = by_role["derived"][cut]
            print(f"  {cut:12} shipped {kept:.4f}  derived {other:.4f}  ratio {other / kept:.4f}")


if __name__ == "__main__":
    main()
