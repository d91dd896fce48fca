"""Tables of the pages, each from the result file that it names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from website.blocks import ROOT
from website.labels import ABLATED, CUT_HEADS, CUTS, GROUPS, OPERATIONS, REPLAYED, TASKS

RESULTS: Final = ROOT / "benchmarks" / "results"
FILES: Final = {"error": ROOT / "asmtune" / "predict" / "score" / "data" / "error.json"}


@cache
def results(name: str) -> Any:
    """The content of a result file, by its name without ending.

    Raises:
        KeyError: there is no such file.
    """
    path = FILES.get(name, RESULTS / f"{name}.json")
    if not path.is_file():
        raise KeyError(f"no results {name!r}")
    return json.loads(path.read_text())


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shares(name: str, labels: Mapping[str, str], cuts: Sequence[str] = CUTS) -> Any:
    found = results(name)["scorers"]
    for key, label in labels.items():
        yield [label, *(f"{found[key]['all'][cut]:.3f}" for cut in cuts)]


def replay() -> str:
    """Share of the best speed by scorer and cut."""
    return table(("ranked by", *CUT_HEADS), _shares("replay", REPLAYED))


def ablation() -> str:
    """The same without some features."""
    columns = [i for i, cut in enumerate(CUTS) if cut != "top5pct"]
    heads = ("features", *(CUT_HEADS[i] for i in columns))
    return table(heads, _shares("ablation", ABLATED, [CUTS[i] for i in columns]))


def error() -> str:
    """What keeping so many of a ranking was worth, by scorer and moment."""
    counts = (1, 5, 10, 20, 50)
    heads = ["ranked by", *(f"{count} kept" for count in counts), "of 10, the best dropped"]
    rows = []
    for found in results("error")["tables"]:
        share = [f"{found['share'][found['counts'].index(n)][-1]:.3f}" for n in counts]
        dropped = f"{found['dropped'][found['counts'].index(10)][-1]:.0%}"
        moment = "" if found["moment"] == "assembly" else ", before compiling"
        rows.append([f"`{found['scorer']}`{moment}", *share, dropped])
    return table(heads, rows)


def by_kernel() -> str:
    """The same for each of the oracle's kernels, the learned scorer's."""
    found = results("replay")["scorers"]["learned"]["kernels"]
    rows = ([name, *(f"{shares[cut]:.3f}" for cut in CUTS)] for name, shares in found.items())
    return table(("kernel", *CUT_HEADS), rows)


def strategies() -> str:
    """What a search compiles, times and keeps."""
    plans = results("replay_strategies")["plans"]
    rows = []
    for name in ("effort quick", "effort balanced", "effort thorough", "hierarchical"):
        kind, _, label = name.rpartition(" ")
        rows.append(_plan(f"{kind} `{label}`".strip(), plans[name]["all"]))
    fewer = plans["random"]["by_compiles"]["192"] | {"compiles": 192, "timings": 192}
    rows.append(_plan("`random`, as many compiles as `thorough`", fewer))
    rows.append(_plan("all configs, up to 512", plans["exhaustive"]["all"]))
    heads = ("", "compiles a task", "timings a task", "share of the best speed kept", "worst task")
    return table(heads, rows)


def _plan(label: str, found: Mapping[str, float]) -> list[str]:
    counts = [f"{found[name]:.0f}" for name in ("compiles", "timings")]
    return [label, *counts, f"{found['kept']:.4f}", f"{found['worst']:.3f}"]


def side_by_side() -> str:
    """Seconds to tune whole spaces, by tuner."""
    rows = []
    for task in results("side_by_side")["tasks"]:
        if "triton.autotune" not in task:
            continue
        by_triton, best = task["triton.autotune"], task["exhaustive"]
        rows.append(
            [
                f"{TASKS[task['kernel']]} {', '.join(str(n) for n in _sizes(task['shape']))}",
                str(task["configs"]),
                f"{by_triton['seconds']:.0f} s{' *' if by_triton.get('scaled') else ''}",
                f"{best['fine']['seconds']:.0f} s",
                f"{best['coarse']['seconds']:.0f} s",
                f"{task['asmtune']['seconds']:.1f} s",
                f"{task['retimed_us']['exhaustive'] / task['retimed_us']['asmtune']:.3f}",
            ]
        )
    heads = ("task", "configs", "`triton.autotune`", "all compiled by 16, timed 25/100 ms")
    return table((*heads, "timed 5/20 ms", "asmtune", "speed"), rows)


def _sizes(shape: Mapping[str, Any]) -> list[int]:
    return [value for value in shape.values() if not isinstance(value, bool)]


def packages() -> str:
    """Seconds of first calls of public packages."""
    rows = []
    for program in results("packages")["programs"]:
        for name, found in program["operations"].items():
            first = found["first_s"]
            rows.append(
                [
                    f"{program['package'].split()[0]}, {OPERATIONS[name]}",
                    f"{first['plain']:.1f} s",
                    f"{first['asmtune']:.1f} s",
                    f"{first['asmtune_warm']:.2f} s",
                    f"{found['speed']['asmtune']:.3f}",
                    "equal" if found["equal"] else "differ",
                ]
            )
    heads = ("package, operation", "`triton.autotune`", "asmtune", "the next process")
    return table((*heads, "GPU speed", "outputs"), rows)


def launches() -> str:
    """Microseconds of host time a launch."""
    labels = {
        "triton.autotune": "`triton.autotune`",
        "triton.jit": "`@triton.jit`",
        "compiled[grid]": "`compiled[grid]`",
        "compiled.run": "the compiled kernel's own `run`",
        "asm_autotune": "`@asm_autotune`",
        "asm_autotune, in Python": "`@asm_autotune`, without a C compiler",
    }
    found = results("launch_cost")
    rows = (
        [label, *(f"{found[n][key]['median_us']:.1f} us" for n in ("19 arguments", "no arguments"))]
        for key, label in labels.items()
    )
    return table(("", "19 arguments", "none"), rows)


def kernels() -> str:
    """Speed over the vendor's function by kind of kernel."""
    summary = results("kernels")["summary"]
    rows = []
    for name, (label, against) in GROUPS.items():
        kernel, _, other = name.partition("/")
        found = summary["over_vendor_by_group"].get(name)
        if other:
            found = summary["over_others_by_kernel"][kernel][other]
        mean, least = f"{found['geometric_mean']:.3f}", f"{found['least']:.3f}"
        rows.append([label, against, str(found["rows"]), mean, least])
    return table(("kernels", "against", "rows", "speed", "least"), rows)


def first_look() -> str:
    """The table at the top of the README."""
    found = results("side_by_side")
    speeds = {id(task): _speed(task) for task in found["tasks"]}
    rows = []
    for kernel, label in (("gemm", "GEMM 4096 cubed"), ("attention", "attention")):
        task = next(t for t in found["tasks"] if t["kernel"] == kernel)
        seconds = (task["triton.autotune"]["seconds"], task["asmtune"]["seconds"])
        rows.append(
            [f"{label}, {task['configs']} configs", *_seconds(seconds), f"{speeds[id(task)]:.2f}"]
        )
    total, speed = found["summary"]["seconds"], found["summary"]["speed"]
    kinds = len({task["kernel"] for task in found["tasks"]})
    label = f"{found['summary']['tasks']} tasks of {kinds} kernels"
    said = f"{speed['geomean']:.3f} (worst {speed['worst']:.3f})"
    rows.append([label, f"{total['autotune']:,.0f} s", f"{total['asmtune']:.0f} s", said])
    heads = ("H200, 16 cores, caches empty", "`triton.autotune`", "asmtune")
    return table((*heads, "speed of the chosen config, all timed = 1"), rows)


def _seconds(pair: tuple[float, float]) -> list[str]:
    return [f"{pair[0]:.0f} s", f"{pair[1]:.1f} s"]


def _speed(task: Mapping[str, Any]) -> float:
    return float(task["retimed_us"]["exhaustive"]) / float(task["retimed_us"]["asmtune"])


def number(name: str, path: str, form: str) -> str:
    """One number of a result file.

    Args:
        name: of the file, without ending.
        path: keys to it, with "/" between them; indices of lists are keys.
        form: as `format` takes it.

    Raises:
        KeyError: no such file or key.
    """
    found = results(name)
    for key in path.split("/"):
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise KeyError(f"{name} has no {path!r}: nothing at {key!r}") from error
    if not isinstance(found, int | float) or not math.isfinite(found):
        raise KeyError(f"{name}: {path!r} is no number")
    return format(found, form)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    made.__name__: made
    for made in (
        replay,
        ablation,
        error,
        by_kernel,
        strategies,
        side_by_side,
        packages,
        launches,
        kernels,
        first_look,
    )
}
"""Every table, by the name that a page has it under."""
