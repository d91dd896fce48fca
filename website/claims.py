"""The README's own tables, and those of kernels beside the vendor's functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.kernels.plan import Place
from benchmarks.kernels.rows import compared
from website.blocks import PageError
from website.files import link, results, shown
from website.labels import GROUPS

STAR = " *"
BELOW = 0.97
DEVICES = {"H100": ("h100_kernels", "wide_h100"), "H200": ("kernels", "wide_h200")}
PLAIN = ("gru_step", "tiled_matmul")
"""The plain way of another kernel, and the template."""
GRANULES = {
    (1, 128): "128 of a row", (1, 0): "a row", (128, 128): "128 x 128", (0, 0): "the matrix",
    (0, 1): "a column",
}  # fmt: skip
"""Elements that share a scale, by `group_rows` and `group_cols` of a row of `quantise`."""
WAYS = {"gluon": "Gluon", "": "Triton", "apart": "Triton, two launches", "cudnn": "cuDNN"}


@shown()
def first_look() -> str:
    """Compare the seconds of whole tunings, and say what was scaled."""
    data = results("side_by_side")
    tasks, summary = data["tasks"], data["summary"]
    rows = []
    for kernel, label in (("gemm", "GEMM 4096 cubed"), ("attention", "attention")):
        task = next(t for t in tasks if t["kernel"] == kernel)
        by_triton = task["triton.autotune"]
        seconds = [
            f"{by_triton['seconds']:.0f} s{star(by_triton)}",
            f"{task['exhaustive']['coarse']['seconds']:.0f} s",
            f"{task['asmtune']['seconds']:.1f} s",
        ]
        rows.append([f"{label}, {task['configs']} configs", *seconds, f"{speed(task):.2f}"])
    total, means = summary["seconds"], summary["speed"]
    seconds = [
        f"{total['autotune']:,.0f} s{STAR if _scaled(tasks) else ''}",
        f"{total['exhaustive_5_20']:.0f} s",
        f"{total['asmtune']:.0f} s",
    ]
    label = f"{summary['tasks']} tasks of {len({task['kernel'] for task in tasks})} kernels"
    share = f"{means['geomean']:.3f} (worst {means['worst']:.3f})"
    rows.append([label, *seconds, share])
    cores = data["cores_a_lane"]
    heads = [f"H200, {cores} cores, caches empty", "`triton.autotune`"]
    heads += [f"all compiled by {cores}, timed 5/20 ms", "asmtune"]
    heads.append("speed of the config chosen, best of all timed 5/20 ms = 1")
    return "\n\n".join([table(heads, rows), *notes()])


def _parts(tasks: int, whole: float, run: float, rest: float) -> str:
    """Say how many of the seconds of all tasks are scaled, and how many were run."""
    if not rest:
        return (
            f"All {whole:,.0f} s of the {tasks} tasks are scaled, for which {run:,.0f} s were run."
        )
    return (
        f"All {tasks} tasks take {whole + rest:,.0f} s. {whole:,.0f} s of these are scaled, for "
        f"which {run:,.0f} s were run. The other {rest:,.0f} s were run in full."
    )


def notes() -> list[str]:
    """Say what was scaled."""
    data = results("side_by_side")
    tasks, limit = data["tasks"], data.get("scaled_above_s", 300)
    lines = []
    if scaled := _scaled(tasks):
        whole = sum(one["seconds"] for one in scaled)
        run = sum(one["seconds_run"] for one in scaled)
        rest = sum(task["triton.autotune"]["seconds"] for task in tasks) - whole
        lines.append(
            f"`*` Scaled: a random {_share(scaled)} of the configs was run, where all would take "
            f"over {limit:.0f} s, and its choice is the best of those. "
            + _parts(len(tasks), whole, run, rest)
        )
    return lines


def _share(scaled: Sequence[Mapping[str, Any]]) -> str:
    """Name the share of the configs that was run, of all scaled tasks."""
    share = sum(one["run"] for one in scaled) / sum(one["configs"] for one in scaled)
    return {25: "quarter", 12: "eighth", 13: "eighth"}.get(round(share * 100), f"{share:.0%}")


def star(by_triton: Mapping[str, Any]) -> str:
    """Mark seconds that were scaled from a part of the configs."""
    return STAR if by_triton.get("scaled") else ""


def speed(task: Mapping[str, Any]) -> float:
    """Divide the time of the best of all configs by that of asmtune's choice."""
    return float(task["retimed_us"]["exhaustive"]) / float(task["retimed_us"]["asmtune"])


def _scaled(tasks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    runs = (task["triton.autotune"] for task in tasks if "triton.autotune" in task)
    return [run for run in runs if run.get("scaled")]


@shown()
def claims() -> str:
    """List what is claimed, each with its figure, what it is held against, and its file."""
    rows = [*_predictions(), *_assembly(), *_launch(), *_packages()]
    return table(("claim, on an H200", "figure", "against", "file"), rows)


def _predictions() -> list[list[str]]:
    data = results("replay")["scorers"]
    best, chance = data["learned"]["all"], data["chance"]["all"]
    kernels = len(data["learned"]["kernels"])
    first = "share of the best speed that the first pick keeps"
    ten = "the same, the best of the ten picked first"
    return [
        [
            f"{first}: {kernels} kernels, each predicted by a model that never saw it",
            f"{best['top1']:.3f}",
            f"chance {chance['top1']:.3f}",
            link("replay", "root"),
        ],
        [ten, f"{best['top10']:.3f}", f"chance {chance['top10']:.3f}", link("replay", "root")],
        *_rows("families2", "families of other kernels", (first, ten)),
        *_rows("kinds", "kernels of kinds that the families lack", (first, ten)),
    ]


def _rows(file: str, kind: str, labels: tuple[str, str]) -> list[list[str]]:
    """Give the same of the stored rows of other kernels."""
    data = results("replay_rows")["files"][file]["scorers"]
    label = f"{labels[0]}: {len(data['learned']['kernels'])} {kind}, replayed in the same way"
    return [
        [
            text,
            f"{data['learned']['all'][cut]:.3f}",
            f"`roofline` {data['roofline']['all'][cut]:.3f}",
            link("replay_rows", "root"),
        ]
        for text, cut in ((label, "top1"), (labels[1], "top10"))
    ]


def _assembly() -> list[list[str]]:
    data = results("ablation")
    shares = {name: scorer["all"]["top1"] for name, scorer in data["scorers"].items()}
    label = "what the assembly adds: first pick, by a model fitted on the other "
    label += f"{data['kernels_to_learn_from'] - 1} kernels alone"
    against = f"before compiling, without any assembly, {shares['before compiling']:.3f}; "
    against += f"by tile sizes, warps and stages alone {shares['tile sizes only']:.3f}"
    return [[label, f"{shares['all features']:.3f}", against, link("ablation", "root")]]


def _launch() -> list[list[str]]:
    data = results("launch_cost")["19 arguments"]
    us = {name: f"{times['median_us']:.1f} us" for name, times in data.items()}
    against = f"`@triton.jit` {us['triton.jit']}, `triton.autotune` {us['triton.autotune']}"
    label = "host time of a launch of a known key, 19 arguments"
    return [[label, us["asm_autotune"], against, link("launch_cost", "root")]]


def _packages() -> list[list[str]]:
    whole = results("packages")
    data = whole["summary"]
    seconds, speeds = data["first_s"], data["speed"]["asmtune"]
    label = f"first calls of {data['operations']} operations of {data['programs']} public packages"
    commits = {program["provenance"]["commit"] for program in whole["programs"]}
    if len(commits) > 1:
        label += f", in runs of {len(commits)} commits"
    by_triton = f"`triton.autotune` {seconds['plain']:.0f} s"
    figure = f"{speeds['geomean']:.3f} (worst {speeds['worst']:.3f})"
    file = link("packages", "root")
    return [
        [label, f"{seconds['asmtune']:.0f} s", by_triton, file],
        ["GPU speed of these operations", figure, "`triton.autotune`'s configs = 1", file],
    ]


@shown()
def kernels() -> str:
    """Compare kernels with the vendor's functions, by kind, on an H200 and on an H100."""
    timed = [compared(results(name)["rows"]) for name in ("kernels", "h100_kernels")]
    rows = []
    for label, against, group, kernel, over in GROUPS:
        line = [label, against]
        for of_device in timed:
            of_group = [row for row in of_device if row["group"] == group and over in row]
            factors = [row[over] for row in of_group if kernel in ("", row["kernel"])]
            figures = [f"{geometric_mean(factors):.3f}", f"{min(factors):.3f}"]
            line += [str(len(factors)), *figures]
        rows.append(line)
    heads = ("kernels", "against", "H200, rows", "speed", "least", "H100, rows", "speed", "least")
    return table(heads, rows)


_BY_DEVICE: Final = ("h100_kernels", "kernels")


@shown()
def kernels_by_device() -> str:
    """Compare kernels with the vendor's functions at the same rows on an H100 and on an H200.

    Raises:
        PageError: a device has rows that the other has not.
    """
    names = [{Place.of(row).name for row in results(name)["rows"]} for name in _BY_DEVICE]
    if names[0] != names[1]:
        apart = ", ".join(sorted(names[0] ^ names[1])[:3])
        raise PageError(f"{' and '.join(_BY_DEVICE)} have other rows, such as {apart}")
    lines: dict[str, list[str]] = {}
    for name in _BY_DEVICE:
        by_kernel: dict[str, list[Mapping[str, Any]]] = {}
        for row in compared(results(name)["rows"]):
            by_kernel.setdefault(row["kernel"], []).append(row)
        for kernel, rows in by_kernel.items():
            alone = [row["over_vendor"] for row in rows]
            called = [row["called_over_vendor"] for row in rows if "called_over_vendor" in row]
            figures = [f"{geometric_mean(alone):.3f}", f"{min(alone):.3f}"]
            figures.append(f"{min(called):.3f}" if called else "-")
            lines.setdefault(kernel, [kernel, str(len(rows))]).extend(figures)
    each = ("least", "least as called")
    return table(("kernel", "rows", "H100", *each, "H200", *each), list(lines.values()))


@shown(kernels_wide="wide_h200", kernels_wide_h100="wide_h100")
def wide(name: str) -> str:
    """Compare GEMM, scaled products and attention with the vendor's, at shapes few tune for."""
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for row in results(name)["rows"]:
        if "called_over_vendor" in row:
            by_group.setdefault(_group(row), []).append(row)
    lines = []
    for group, rows in sorted(by_group.items()):
        line = [group, str(len(rows))]
        for over in ("over_vendor", "called_over_vendor"):
            speeds = [row[over] for row in rows]
            low = sum(speed < BELOW for speed in speeds)
            line += [f"{geometric_mean(speeds):.3f}", f"{min(speeds):.3f}", str(low)]
        lines.append(line)
    heads = ["kernel", "rows"]
    heads += [w + p for w in ("alone", "as called") for p in ("", ", least", f", below {BELOW}")]
    return table(heads, lines)


@shown()
def recurrent_wide() -> str:
    """List GRU layers of 2000 steps, beside cuDNN's and a launch for each step."""
    lines = []
    for device, name in (("H100", "wide_h100"), ("H200", "wide_h200")):
        for row in (row for row in results(name)["rows"] if row["kernel"] == "gru"):
            sizes = (str(row["shape"][name]) for name in ("seq", "batch", "hidden"))
            factors = (f"{row[over]:.2f}" for over in ("over_vendor", "over_steps"))
            spread = row["ours"]["p90_us"] / row["ours"]["p50_us"]
            times = f"{row['ours']['p50_us']:.0f}", *factors, f"{spread:.2f}"
            lines.append([device, *sizes, *times])
    heads = ("GPU", "steps", "batch", "hidden", "us", "over cuDNN", "over a launch a step")
    return table((*heads, "p90 over p50"), lines)


@shown()
def backward_passes() -> str:
    """List training steps of convolutions and GRU layers, beside cuDNN's."""
    lines = []
    for name in ("conv2d", "gru"):
        data = results(f"backward_{name}")
        device = data["provenance"]["device"].removeprefix("NVIDIA ").partition(" ")[0]
        for row in data["rows"]:
            sizes = " ".join(f"{size} {n}" for size, n in row["shape"].items())
            passes = ("forward and backward", "backward")
            times = (f"{row['times'][f'ours, {one}']['p50_us']:.0f}" for one in passes)
            speeds = (f"{row[f'{one}, over torch']:.2f}" for one in passes)
            lines.append([name, sizes, device, *times, *speeds])
    heads = ("function", "sizes", "GPU", "both, us", "backward, us")
    heads += ("both over cuDNN", "backward over cuDNN")
    return table(heads, lines)


@shown()
def quantised_wide() -> str:
    """Compare quantisation with a copy of as many bytes, by what shares a scale.

    Where no tile holds a group, all of x (2 bytes an element) is read once more, for its amax.
    """
    lines = []
    for device, name in (("H100", "wide_h100"), ("H200", "wide_h200")):
        for row in (row for row in results(name)["rows"] if row["kernel"] == "quantise"):
            shape = row["shape"]
            group = (shape["group_rows"], shape["group_cols"])
            again = 2 * shape["rows"] * shape["cols"] if 0 in group and group != (1, 0) else 0
            moved = row["over_copy"] * (row["bytes"] + again) / row["bytes"]
            speeds = (f"{speed:.3f}" for speed in (row["over_copy"], moved))
            lines.append([device, GRANULES[group], f"{row['ours']['p50_us']:.1f}", *speeds])
    heads = ("GPU", "a scale for", "us", "bytes once, copy = 1", "bytes as often as they are read")
    return table(heads, lines)


@shown()
def scaled_errors() -> str:
    """Compare errors of scaled products, in shares of the tolerance, with `torch._scaled_mm`'s."""
    by_scales: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for device, files in DEVICES.items():
        for row in results(files[1])["rows"]:
            if row["kernel"] == "scaled_matmul" and "vendor_error_by_tolerance" in row:
                errors = (row["error_by_tolerance"], row["vendor_error_by_tolerance"])
                by_scales.setdefault((device, _group(row)), []).append(errors)
    lines = []
    for (device, group), errors in sorted(by_scales.items()):
        most = (f"{max(each):.3f}" for each in zip(*errors, strict=True))
        larger = sum(ours > theirs for ours, theirs in errors)
        scales = group.rpartition(", ")[2]
        lines.append([device, scales, str(len(errors)), *most, str(larger)])
    heads = ("GPU", "scales", "rows", "largest error", "of `torch._scaled_mm`")
    return table((*heads, "rows where ours is larger"), lines)


@shown()
def slower() -> str:
    """List kernels that are alone below 0.97 of the vendor's speed at some rows, by device.

    A place that several files have timed counts once, as it was timed last.
    """
    lines = []
    for device, files in DEVICES.items():
        newest: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for name in files:
            content = results(name)
            for row in compared(content["rows"]):
                date = content["runs"][row["run"]]["date"]
                place = Place.of(row).name
                if "over_vendor" in row and date >= newest.get(place, ("",))[0]:
                    newest[place] = (date, row)
        by_kernel: dict[str, list[Mapping[str, Any]]] = {}
        for _, row in newest.values():
            by_kernel.setdefault(f"{row['kernel']}{_heads(row['shape'])}", []).append(row)
        for kernel, rows in sorted(by_kernel.items()):
            low = sum(row["over_vendor"] < BELOW for row in rows)
            least = min(rows, key=lambda row: float(row["over_vendor"]))
            at = ", ".join(f"{name} {size}" for name, size in least["shape"].items())
            if low and kernel not in PLAIN:
                figures = [str(len(rows)), str(low), f"{least['over_vendor']:.3f}"]
                lines.append([device, kernel, *figures, f"{at}, {least['dtype']}"])
    heads = ("device", "kernel, alone", "rows", f"below {BELOW}", "least", "at")
    return table(heads, lines)


@shown()
def backward_ways() -> str:
    """Compare ways of attention's backward pass, as the shipped records have them."""
    lines = [
        [device, *line]
        for device in ("H100", "H200")
        for record in results(f"attention_backward-{device.lower()}")["records"]
        if record["key"]["kernel"].endswith(".attention_backward.kernel")
        for line in [_ways_of(record)]
    ]
    heads = ("GPU", "dtype", "tokens", "heads of", "causal", "heads a key head")
    return table((*heads, *(f"{way}, us" for way in WAYS.values()), "fastest", "timed"), lines)


def _ways_of(record: Mapping[str, Any]) -> list[str]:
    shape, best = record["key"]["shape"], dict.fromkeys(WAYS, math.inf)
    for timed in record["measurements"]:
        way = timed["config"].get("@alternative", "")
        best[way] = min(best.get(way, math.inf), timed["median_us"])
    fastest = WAYS[min(WAYS, key=lambda way: best[way])]
    sizes = [record["key"]["dtypes"]["q_ptr"], str(shape["pow2(M)"]), str(shape["D"])]
    sizes += ["yes" if shape["CAUSAL"] else "no", str(shape["GROUP"])]
    times = [f"{best[way]:.1f}" if best[way] < math.inf else "-" for way in WAYS]
    return [*sizes, *times, fastest, record["provenance"]["date"][:10]]


def _heads(shape: Mapping[str, Any]) -> str:
    """Name the size of heads where a shape has some; those that are no tile's are one group."""
    size = shape.get("D")
    return "" if size is None else f", heads of {size if size in (64, 128) else '40 to 192'}"


def _group(row: Mapping[str, Any]) -> str:
    shape, kernel = row["shape"], row["kernel"]
    if kernel == "matmul":
        return f"matmul, {row['dtype']}, M {'up to' if shape['M'] <= 64 else 'over'} 64"
    if kernel in ("attention", "attention_backward"):
        return f"{kernel}, {row['dtype']}{_heads(shape)}"
    scales = {0: "tensor", 128: "block"}.get(shape["GROUP_B"], "row and column")
    return f"{kernel}, e4m3, a scale a {scales}"
