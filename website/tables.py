"""Tables of the pages, each written from result files."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from benchmarks.harness import table
from website import claims  # noqa: F401 - lists its tables
from website.files import RESULTS, link, results, shown

SHARES: Final = {
    "top 1": "{top1:.3f}",
    "top 5": "{top5:.3f}",
    "top 10": "{top10:.3f}",
    "top 10%": "{top10pct:.3f}",
    "worst task, top 10": "{worst_top10:.3f}",
}
"""Columns of what is kept of the best speed."""

OPERATIONS: Final = {
    "gla": "gla forward",
    "gated_delta_rule": "gated delta rule forward",
    "dyt": "DyT forward and backward",
    "mlp": "SwiGLU MLP",
    "moe": "mixture of experts",
    "layer_norm": "layer norm forward and backward",
    "cross_entropy": "cross entropy forward and backward",
    "bmm": "bmm (its own tuner, left alone)",
    "token": "1 token",
    "batch": "16 tokens",
    "prompt": "2048 tokens",
    "scan": "scan by chunks, forward and backward",
    "gated_norm": "gated RMS norm, forward and backward",
    "cut_cross_entropy": "loss without logits, forward and backward",
    "tensorwise": "cast to FP8, one scale",
    "experts": "cast of experts to FP8, a scale a row",
}


def laid_out(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a table.

    Args:
        columns: by head, the template of the cells.
        rows: the names that the templates have, one mapping a line.
    """
    cells = [[template.format_map(row) for template in columns.values()] for row in rows]
    return table(list(columns), cells)


def _ranked(scorer: str) -> str:
    """Set a scorer's own name as code, in a name such as `learned, before compiling`."""
    own, comma, moment = scorer.partition(",")
    return f"`{own}`{comma}{moment}"


@shown()
def replay() -> str:
    """Give the share of the best speed by scorer and cut."""
    scorers = results("replay")["scorers"]
    listed = ("chance", "weights", "roofline, before compiling", "roofline")
    listed += ("learned, before compiling", "learned, 25% compiled", "learned")
    rows = ({"ranked": _ranked(name), **scorers[name]["all"]} for name in listed)
    return laid_out({"ranked by": "{ranked}", **SHARES}, rows)


@shown()
def rows() -> str:
    """Give the share of the best speed over stored training rows, by file and scorer."""
    labels = {
        "oracle": "the {} of the first table",
        "families": "{} families",
        "families2": "{} more families",
        "h100_families": "{} of all these, timed on an H100",
        "kinds": "{} kernels of kinds that these lack",
    }
    lines = []
    for file, label in labels.items():
        data = results("replay_rows")["files"][file]
        for scorer, found in data["scorers"].items():
            names = {"kernels": label.format(len(found["kernels"])), "ranked": _ranked(scorer)}
            lines.append({**names, **data["about"], **found["all"]})
    columns = {"kernels": "{kernels}", "ranked by": "{ranked}", "tasks": "{tasks}"}
    columns |= {"of them thinned": "{tasks_thinned}", **SHARES}
    del columns["top 10%"]
    return laid_out(columns, lines)


@shown(ablation="ablation", ablation_families="ablation_families2")
def ablated(name: str) -> str:
    """Give the share of the best speed without some features."""
    scorers = results(name)["scorers"].items()
    rows = ({"features": scorer, **found["all"]} for scorer, found in scorers)
    return laid_out({"features": "{features}", **SHARES}, rows)


@shown()
def error() -> str:
    """Say what keeping a number of a ranking was worth, by scorer and moment."""
    counts = (1, 5, 10, 20, 50)
    lines = []
    for data in results("error")["tables"]:
        share = [f"{data['share'][data['counts'].index(n)][-1]:.3f}" for n in counts]
        dropped = f"{data['dropped'][data['counts'].index(10)][-1]:.0%}"
        moment = "" if data["moment"] == "assembly" else ", before compiling"
        lines.append([f"`{data['scorer']}`{moment}", *share, dropped])
    kept = (f"{count} kept" for count in counts)
    return table(["ranked by", *kept, "of 10, the best dropped"], lines)


@shown()
def first_stage() -> str:
    """Give what tile arithmetic keeps, alone and with sketches, by scorer."""
    data = results("first_stage")
    kept = data["kept"].items()
    lines = ([_ranked(way), *(f"{share:.3f}" for share in shares)] for way, shares in kept)
    return table(["ranked by", *(f"top {cut}" for cut in data["cuts"])], lines)


@shown()
def exact() -> str:
    """Count what is predicted exactly: failures and resources."""
    files = [results(name) for name in ("replay", "replay_families2")]
    lines = [
        ["failures told, of those recorded", *(_told(data, "fails") for data in files)],
        ["configs told to run, of those that ran", *(_told(data, "runs") for data in files)],
    ]
    labels = {"regs": "registers", "spills": "spilled words", "shared": "shared memory"}
    for name, label in labels.items():
        equal = (f"{data['resources'][f'{name} equal']:,}" for data in files)
        lines.append([f"configs whose {label} are equal", *equal])
    kernels = (f"{len(data['scorers']['learned']['kernels'])} kernels" for data in files)
    return table(("", *kernels), lines)


def _told(data: Mapping[str, Any], what: str) -> str:
    counts = data["failures"]
    recorded = sum(n for name, n in counts.items() if name.endswith(f"recorded {what}"))
    return f"{counts[f'told {what}, recorded {what}']:,} of {recorded:,}"


@shown(strategies="replay_strategies", strategies_kinds="replay_strategies_kinds")
def strategies(name: str) -> str:
    """Say what a search compiles, times and keeps."""
    plans = results(name)["plans"]
    searches = {
        f"effort `{effort}`": plans[f"effort {effort}"]["all"]
        for effort in ("quick", "balanced", "thorough")
    }
    if "random" in plans:
        fewer = plans["random"]["by_compiles"]["192"] | {"compiles": 192, "timings": 192}
        searches["`hierarchical`"] = plans["hierarchical"]["all"]
        searches["`random`, as many compiles as `thorough`"] = fewer
        searches["all configs, up to 512"] = plans["exhaustive"]["all"]
    columns = {
        f"{results(name)['tasks']} tasks": "{search}",
        "compiles a task": "{compiles:.0f}",
        "timings a task": "{timings:.0f}",
        "share of the best speed kept": "{kept:.4f}",
        "worst task": "{worst:.3f}",
    }
    return laid_out(columns, ({"search": search, **found} for search, found in searches.items()))


@shown()
def packages() -> str:
    """Compare the seconds of first calls of public packages."""
    columns = {
        "package, operation": "{package}, {operation}",
        "`triton.autotune`": "{first_s[plain]:.1f} s",
        "asmtune": "{first_s[asmtune]:.1f} s",
        "the next process": "{first_s[asmtune_warm]:.2f} s",
        "GPU speed": "{speed[asmtune]:.3f}",
        "outputs": "{verdict}",
        "measured, commit": "{provenance[date]:.10}, {provenance[commit]}",
    }
    lines = (
        {
            **found,
            "package": program["package"].split()[0],
            "operation": OPERATIONS[name],
            "provenance": program["provenance"],
        }
        for program in results("packages")["programs"]
        for name, found in program["operations"].items()
    )
    return laid_out(columns, lines)


@shown()
def launches() -> str:
    """Compare microseconds of host time a launch, on the hosts of two devices."""
    labels = {
        "triton.autotune": "`triton.autotune`",
        "triton.jit": "`@triton.jit`",
        "compiled[grid]": "`compiled[grid]`",
        "compiled.run": "the compiled kernel's own `run`",
        "asm_autotune": "`@asm_autotune`",
        "asm_autotune, in Python": "`@asm_autotune`, without a C compiler",
    }
    files = [results("launch_cost"), results("h100_launch_cost")]
    ways = [data[count] for data in files for count in ("19 arguments", "no arguments")]
    lines = (
        [label, *(f"{way[key]['median_us']:.1f} us" for way in ways)]
        for key, label in labels.items()
    )
    head = f"medians of {files[0]['rounds']} rounds"
    return table((head, "H200, 19 arguments", "none", "H100, 19 arguments", "none"), lines)


@shown()
def large_space() -> str:
    """Describe the tuning of one large space."""
    data = results("large_space")
    columns = {"GEMM configs": "{configs:,}", "tuned in": "{seconds:.0f} s"}
    columns |= {"compiled": "{compiled}", "timed": "{timed}"}
    columns |= {f"speed, best of a random {data['random']['sample']} = 1": "{speed:.3f}"}
    return laid_out(columns, [data])


@shown()
def cold_start() -> str:
    """Compare a new process that finds its key in the store with one without a tuner."""
    data = results("cold_start")["summary"]
    lines = [
        [label, *(f"{data['medians'][name][key]:.3f} s" for key in ("first_s", "whole_s"))]
        for name, label in (("plain", "without a tuner"), ("tuned", "`@asm_autotune`, key stored"))
    ]
    lines.append(["ratio", *(f"{data['ratios'][key]:.2f}" for key in ("first_s", "whole_s"))])
    return table(("a new process", "first launch", "all of it"), lines)


@shown()
def aibench8() -> str:
    """Give the speed of eight small kernels on two devices, and without each part of asmtune."""
    bars = {"tuned": "full", "defaults": "dispatch_off", "no contracts": "contract_off"}
    bars |= {"by chance": "asm_off"}
    files = [results(name)["summary"] for name in ("aibench8", "h100_aibench8")]
    lines = []
    for kernel in files[0]["speedup"]:
        found = (data["speedup"][kernel][bar] for data in files for bar in bars.values())
        lines.append([kernel, *(f"{one['speedup']:.2f}" for one in found)])
    means = (f"{data['geometric_mean'][bar]:.2f}" for data in files for bar in bars.values())
    heads = (f"{device}: {bar}" for device in ("H200", "H100") for bar in bars)
    return table(("kernel", *heads), [*lines, ["geometric mean", *means]])


@shown()
def host_cost() -> str:
    """Compare the host time of public functions with PyTorch's, in microseconds of a call."""
    devices = [results(f"{name}_host_cost") for name in ("h100", "h200")]
    lines = []
    for name, function in devices[0]["functions"].items():
        for phase in (phase for phase in devices[0]["aims"] if phase in function):
            cells = [f"`{name}`, {phase}"]
            for data in devices:
                figures = data["functions"][name][phase]
                medians = [figures[who]["median_us"] for who in ("ours", "torch", "function")]
                cells += [*(f"{median:.1f}" for median in medians), f"{figures['of_torch']:.2f}"]
            lines.append(cells)
    each = ("PyTorch", "function", "asmtune / PyTorch")
    return table(("call", "H100: asmtune", *each, "H200: asmtune", *each), lines)


@shown()
def lowprec_groups() -> str:
    """Give what FP8 scales clip and how far off they are, by granularity."""
    data = results("lowprec_groups")
    columns = {"one scale per": "{name}", "scales": "{scales:,}", "clip ratio": "{clip:.2g}"}
    columns |= {"p99 of the relative error": "{p99:.4f}"}
    chosen = f"group {data['chosen']}"
    within = f"**{chosen}**, the first within {data['clip_target']:g}"
    names = ({"name": within} if row["name"] == chosen else {} for row in data["rows"])
    return laid_out(columns, map(operator.or_, data["rows"], names))


@shown()
def sources() -> str:
    """List the result files with the commands that made them."""
    return table(("file", "command", "device", "CPUs", "date"), _sources())


def _sources() -> Iterator[list[str]]:
    for name in sorted(path.stem for path in RESULTS.glob("*.json")):
        data = results(name)
        origin = data.get("provenance", data.get("meta"))
        if origin is None:  # what a command of asmtune wrote, with its own account
            continue
        runs = data.get("runs", [origin])
        last = max(runs, key=lambda run: str(run["date"]))
        made = f"`{last['command']}`"
        if len(runs) > 1:
            made += f", the last of {len(runs)} runs, which the file lists"
        if recorded_by := data.get("recorded"):
            made, last = f"{made} of what `{recorded_by['command']}` recorded", recorded_by
        device = "no GPU" if last["device"] == "none" else last["device"]
        yield [link(name), made, device, str(last["cpus"]), last["date"][:10]]
