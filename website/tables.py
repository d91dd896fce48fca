"""Tables of the pages, each written from result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import table
from website.claims import notes, speed, star
from website.files import command, link, provenance, results, shown
from website.labels import (
    ABLATED,
    AIBENCH8,
    CUT_HEADS,
    CUTS,
    OPERATIONS,
    REPLAYED,
    ROWS,
    SOURCES,
    TASKS,
    TUNED_AGAINST,
)


def _shares(name: str, labels: Mapping[str, str], cuts: Sequence[str] = CUTS) -> Any:
    data = results(name)["scorers"]
    for key, label in labels.items():
        yield [label, *(f"{data[key]['all'][cut]:.3f}" for cut in cuts)]


@shown()
def replay() -> str:
    """Give the share of the best speed by scorer and cut."""
    return table(("ranked by", *CUT_HEADS), _shares("replay", REPLAYED))


@shown()
def rows() -> str:
    """Give the share of the best speed over stored training rows, by file and scorer."""
    lines = []
    for name, label in ROWS.items():
        data = results("replay_rows")["files"][name]
        about = data["about"]
        counts = [str(about["tasks"]), str(about["tasks_thinned"])]
        for scorer in data["scorers"]:
            shares = data["scorers"][scorer]["all"]
            figures = [f"{shares[cut]:.3f}" for cut in ("top1", "top5", "top10", "worst_top10")]
            kernels = len(data["scorers"][scorer]["kernels"])
            own, _, moment = scorer.partition(",")
            ranked = f"`{own}`{moment and ','}{moment}"
            lines.append([label.format(kernels=kernels), ranked, *counts, *figures])
    heads = ("kernels", "ranked by", "tasks", "of them thinned", "top 1", "top 5", "top 10")
    return table((*heads, "worst task, top 10"), lines)


@shown(ablation="ablation", ablation_families="ablation_families2")
def ablated(name: str) -> str:
    """Give the share of the best speed without some features."""
    columns = [i for i, cut in enumerate(CUTS) if cut != "top5pct"]
    heads = ("features", *(CUT_HEADS[i] for i in columns))
    return table(heads, _shares(name, ABLATED, [CUTS[i] for i in columns]))


@shown()
def error() -> str:
    """Say what keeping a number of a ranking was worth, by scorer and moment."""
    counts = (1, 5, 10, 20, 50)
    heads = ["ranked by", *(f"{count} kept" for count in counts), "of 10, the best dropped"]
    rows = []
    for data in results("error")["tables"]:
        share = [f"{data['share'][data['counts'].index(n)][-1]:.3f}" for n in counts]
        dropped = f"{data['dropped'][data['counts'].index(10)][-1]:.0%}"
        moment = "" if data["moment"] == "assembly" else ", before compiling"
        rows.append([f"`{data['scorer']}`{moment}", *share, dropped])
    return table(heads, rows)


@shown()
def first_stage() -> str:
    """Give what tile arithmetic keeps, alone and with sketches, by scorer."""
    data = results("first_stage")
    heads = ["ranked by", *(f"top {cut}" for cut in data["cuts"])]
    rows = []
    for way, shares in data["kept"].items():
        scorer, _, how = way.partition(", ")
        rows.append([f"`{scorer}`, {how}", *(f"{share:.3f}" for share in shares)])
    return table(heads, rows)


@shown()
def by_kernel() -> str:
    """Give the share of the best speed of `learned` for each of the recorded kernels."""
    data = results("replay")["scorers"]["learned"]["kernels"]
    rows = ([name, *(f"{shares[cut]:.3f}" for cut in CUTS)] for name, shares in data.items())
    return table(("kernel", *CUT_HEADS), rows)


@shown()
def strategies() -> str:
    """Say what a search compiles, times and keeps."""
    plans = results("replay_strategies")["plans"]
    rows = []
    for name in ("effort quick", "effort balanced", "effort thorough", "hierarchical"):
        kind, _, label = name.rpartition(" ")
        rows.append(_plan(f"{kind} `{label}`".strip(), plans[name]["all"]))
    fewer = plans["random"]["by_compiles"]["192"] | {"compiles": 192, "timings": 192}
    rows.append(_plan("`random`, as many compiles as `thorough`", fewer))
    rows.append(_plan("all configs, up to 512", plans["exhaustive"]["all"]))
    heads = (
        f"{results('replay_strategies')['tasks']} tasks",
        "compiles a task",
        "timings a task",
        "share of the best speed kept",
        "worst task",
    )
    return table(heads, rows)


@shown()
def strategies_kinds() -> str:
    """Say the same of kernels of kinds that no model is fitted on."""
    data = results("replay_strategies_kinds")
    names = ("quick", "balanced", "thorough")
    rows = [_plan(f"effort `{name}`", data["plans"][f"effort {name}"]["all"]) for name in names]
    heads = ("compiles a task", "timings a task", "share of the best speed kept", "worst task")
    return table((f"{data['tasks']} tasks", *heads), rows)


def _plan(label: str, data: Mapping[str, float]) -> list[str]:
    counts = [f"{data[name]:.0f}" for name in ("compiles", "timings")]
    return [label, *counts, f"{data['kept']:.4f}", f"{data['worst']:.3f}"]


@shown()
def side_by_side() -> str:
    """Compare the seconds to tune whole spaces, by tuner."""
    data = results("side_by_side")
    rows = []
    for task in data["tasks"]:
        if "triton.autotune" not in task:
            continue
        by_triton, best = task["triton.autotune"], task["exhaustive"]
        rows.append(
            [
                f"{TASKS[task['kernel']]} {', '.join(str(n) for n in _sizes(task['shape']))}",
                str(task["configs"]),
                f"{by_triton['seconds']:.0f} s{star(by_triton)}",
                f"{best['coarse']['seconds']:.0f} s",
                f"{task['asmtune']['seconds']:.1f} s",
                f"{speed(task):.3f}",
            ]
        )
    heads = ["task", "configs", "`triton.autotune`"]
    heads += [f"all compiled by {data['cores_a_lane']}, timed 5/20 ms"]
    return "\n\n".join([table((*heads, "asmtune", "speed"), rows), *notes()])


def _sizes(shape: Mapping[str, Any]) -> list[int]:
    return [value for value in shape.values() if not isinstance(value, bool)]


@shown()
def packages() -> str:
    """Compare the seconds of first calls of public packages."""
    rows = []
    for program in results("packages")["programs"]:
        for name, data in program["operations"].items():
            first = data["first_s"]
            rows.append(
                [
                    f"{program['package'].split()[0]}, {OPERATIONS[name]}",
                    f"{first['plain']:.1f} s",
                    f"{first['asmtune']:.1f} s",
                    f"{first['asmtune_warm']:.2f} s",
                    f"{data['speed']['asmtune']:.3f}",
                    data["verdict"],
                    f"{program['provenance']['date'][:10]}, {program['provenance']['commit']}",
                ]
            )
    heads = ("package, operation", "`triton.autotune`", "asmtune", "the next process")
    return table((*heads, "GPU speed", "outputs", "measured, commit"), rows)


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
    rows = (
        [label, *(f"{way[key]['median_us']:.1f} us" for way in ways)]
        for key, label in labels.items()
    )
    head = f"medians of {files[0]['rounds']} rounds"
    return table((head, "H200, 19 arguments", "none", "H100, 19 arguments", "none"), rows)


@shown()
def recorded() -> str:
    """List the recorded timings that predictions are held against."""
    rows = []
    for name in ("replay", "replay_families2"):
        data = results(name)
        kernels = len(data["scorers"]["learned"]["kernels"])
        rows.append([str(kernels), str(data["tasks"]), f"{data['rows']:,}", link(name)])
    data = results("error")["tables"][0]
    file = "[error.json](../asmtune/predict/score/data/error.json)"
    more = data["kernels"] - data["unlike"] - sum(int(row[0]) for row in rows)
    rest = f"those above, {more} more families, and {data['unlike']} kernels of other kinds"
    rows.append([str(data["kernels"]), str(data["tasks"]), rest, file])
    return table(("kernels", "tasks", "configs timed", "file"), rows)


@shown()
def exact() -> str:
    """Count what is predicted exactly: failures and resources."""
    files = [results(name) for name in ("replay", "replay_families2")]
    heads = [f"{len(data['scorers']['learned']['kernels'])} kernels" for data in files]
    rows = [
        ["failures told, of those recorded", *(_failures(data, "told fails") for data in files)],
        [
            "configs told to run, of those that ran",
            *(_failures(data, "told runs") for data in files),
        ],
    ]
    labels = {"regs": "registers", "spills": "spilled words", "shared": "shared memory"}
    for name, label in labels.items():
        equal = (f"{data['resources'][f'{name} equal']:,}" for data in files)
        rows.append([f"configs whose {label} are equal", *equal])
    return table(("", *heads), rows)


def _failures(data: Mapping[str, Any], told: str) -> str:
    recorded_as = told.replace("told", "recorded")
    counts = data["failures"]
    all_ = sum(n for name, n in counts.items() if name.endswith(recorded_as))
    return f"{counts[f'{told}, {recorded_as}']:,} of {all_:,}"


@shown()
def tuned_against() -> str:
    """Compare wall clock and choice with each other way to tune."""
    data = results("side_by_side")
    summary, cores = data["summary"], data["cores_a_lane"]
    present = [name for name in TUNED_AGAINST if name in summary]
    speeds = {"autotune": "speed_over_autotune", "exhaustive_5_20": "speed"}
    rows = []
    for name in present:
        pairs = [(summary[name], ".1f"), (summary.get(speeds.get(name)), ".3f")]
        cells = [
            format(pair[key], form) if pair else "-"
            for pair, form in pairs
            for key in ("geomean", "worst")
        ]
        rows.append([TUNED_AGAINST[name].format(cores=cores), *cells])
    heads = ("asmtune against", "times less wall clock", "worst", "speed of its choice", "worst")
    fit = f"The fit of `learned`, once an installation, took {data['fit_of_learned_s']:.1f} s more."
    return f"{table(heads, rows)}\n\n{fit}"


@shown()
def large_space() -> str:
    """Describe the tuning of one large space."""
    data = results("large_space")
    row = [f"{data['configs']:,}", f"{data['seconds']:.0f} s", str(data["compiled"])]
    row += [str(data["timed"]), f"{data['speed']:.3f}"]
    sample = data["random"]["sample"]
    heads = ("GEMM configs", "tuned in", "compiled", "timed")
    return table((*heads, f"speed, best of a random {sample} = 1"), [row])


@shown()
def cold_start() -> str:
    """Compare a new process that finds its key in the store with one without a tuner."""
    data = results("cold_start")["summary"]
    rows = [
        [label, *(f"{data['medians'][name][key]:.3f} s" for key in ("first_s", "whole_s"))]
        for name, label in (("plain", "without a tuner"), ("tuned", "`@asm_autotune`, key stored"))
    ]
    rows.append(["ratio", *(f"{data['ratios'][key]:.2f}" for key in ("first_s", "whole_s"))])
    return table(("a new process", "first launch", "all of it"), rows)


@shown()
def aibench8() -> str:
    """Give the speed of eight small kernels on two devices, and without each part of asmtune."""
    files = [results(name)["summary"] for name in ("aibench8", "h100_aibench8")]
    rows = (
        [label, *(f"{data['geometric_mean'][name]:.2f}" for data in files)]
        for name, label in AIBENCH8.items()
    )
    head = f"{files[0]['kernels']} kernels, plain untuned Triton = 1"
    return table((head, "H200", "H100"), rows)


@shown()
def host_cost() -> str:
    """Compare the host time of public functions with PyTorch's, in microseconds of a call."""
    devices = [results(f"{name}_host_cost") for name in ("h100", "h200")]
    rows = []
    for name, function in devices[0]["functions"].items():
        for phase in (phase for phase in devices[0]["aims"] if phase in function):
            cells = [f"`{name}`, {phase}"]
            for data in devices:
                figures = data["functions"][name][phase]
                medians = [figures[who]["median_us"] for who in ("ours", "torch", "function")]
                cells += [*(f"{median:.1f}" for median in medians), f"{figures['of_torch']:.2f}"]
            rows.append(cells)
    each = ("PyTorch", "function", "asmtune / PyTorch")
    return table(("call", "H100: asmtune", *each, "H200: asmtune", *each), rows)


@shown()
def lowprec_groups() -> str:
    """Give what FP8 scales clip and how far off they are, by granularity."""
    data = results("lowprec_groups")
    target, chosen = data["clip_target"], data["chosen"]
    rows = []
    for row in data["rows"]:
        is_chosen = row["name"] == f"group {chosen}"
        name = f"**{row['name']}**, the first within {target:g}" if is_chosen else row["name"]
        rows.append([name, f"{row['scales']:,}", f"{row['clip']:.2g}", f"{row['p99']:.4f}"])
    return table(("one scale per", "scales", "clip ratio", "p99 of the relative error"), rows)


@shown()
def sources() -> str:
    """List the result files with the commands that made them."""
    rows = []
    for name in SOURCES:
        runs = results(name).get("runs", [provenance(name)])
        last = max(runs, key=lambda run: str(run["date"]))
        made = f"`{command(last)}`"
        if len(runs) > 1:
            made += f", the last of {len(runs)} runs, which the file lists"
        if recorded_by := results(name).get("recorded"):
            made, last = f"{made} of what `{command(recorded_by)}` recorded", recorded_by
        device = "no GPU" if last["device"] == "none" else last["device"]
        rows.append([link(name), made, device, str(last["cpus"]), last["date"][:10]])
    return table(("file", "command", "device", "CPUs", "date"), rows)
