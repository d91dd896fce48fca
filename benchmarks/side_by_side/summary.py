"""Summary of the runs: how much less time, and the speed of the chosen configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import device_of, table

_BASELINES: Final = ("autotune", "exhaustive_5_20")


def ratios(task: dict[str, Any]) -> dict[str, float]:
    """Compute for a task the factor in wall clock against each baseline, and the relative speed.

    The speed is that of the best of all configs, by 5/20 ms, over that of the choice.
    """
    seconds = task["asmtune"]["seconds"]
    times = task["retimed_us"]
    took = _seconds(task)
    del took["asmtune"]
    return {
        **{name: value / seconds for name, value in took.items()},
        "speed": times["exhaustive"] / times["asmtune"],
        "speed_over_autotune": times["triton.autotune"] / times["asmtune"],
    }


def summary(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute geometric means and worst cases over the finished tasks that have the baseline."""
    whole = [ratios(task) for task in tasks if "error" not in task]
    if not whole:
        return {"tasks": 0}
    result: dict[str, Any] = {"tasks": len(whole), "of": len(tasks)}
    for name in (*_BASELINES, "speed", "speed_over_autotune"):
        if values := [one[name] for one in whole if name in one]:
            means = {"geomean": geometric_mean(values), "worst": min(values)}
            result[name] = {key: round(value, 4) for key, value in means.items()}
            if len(values) < len(whole):
                result[name]["tasks"] = len(values)
    took = [_seconds(task) for task in tasks if "error" not in task]
    result["seconds"] = {
        name: round(sum(one.get(name, 0.0) for one in took), 1)
        for name in ("asmtune", *_BASELINES)
        if any(name in one for one in took)
    }
    return result


_NAMES: Final = {
    "gemm": "GEMM",
    "gemm_bias_gelu": "GEMM + bias + GELU",
    "attention": "attention",
    "layernorm": "layer norm",
    "broadcast_relu": "broadcast + ReLU",
}

STAR: Final = " *"


def document(content: Mapping[str, Any]) -> str:
    """Tabulate the seconds of whole tunings, and say what was scaled."""
    tasks = [task for task in content["tasks"] if "error" not in task]
    means, cores = content["summary"], content["cores_a_lane"]
    total, speed = means["seconds"], means["speed"]
    share = f"{speed['geomean']:.3f} (worst {speed['worst']:.3f})"
    label = f"{means['tasks']} tasks of {len({task['kernel'] for task in tasks})} kernels"
    star = STAR if _scaled(tasks) else ""
    seconds = [f"{total['autotune']:,.0f} s{star}", f"{total['exhaustive_5_20']:.0f} s"]
    heads = (f"{device_of(content)}, {cores} cores, caches empty", "`triton.autotune`")
    heads += (f"all compiled by {cores}, timed 5/20 ms", "asmtune")
    heads += ("speed of the config chosen, best of all timed 5/20 ms = 1",)
    rows = [*map(_task, tasks), [label, *seconds, f"{total['asmtune']:.0f} s", share]]
    return "\n\n".join([table(heads, rows), *_notes(content)])


def _task(task: Mapping[str, Any]) -> list[str]:
    sizes = [str(size) for size in task["shape"].values() if not isinstance(size, bool)]
    by_triton, times = task["triton.autotune"], task["retimed_us"]
    star = STAR if by_triton.get("scaled") else ""
    return [
        f"{_NAMES[task['kernel']]} {', '.join(sizes)}, {task['configs']} configs",
        f"{by_triton['seconds']:.0f} s{star}",
        f"{task['exhaustive']['coarse']['seconds']:.0f} s",
        f"{task['asmtune']['seconds']:.1f} s",
        f"{times['exhaustive'] / times['asmtune']:.3f}",
    ]


def _notes(content: Mapping[str, Any]) -> Iterator[str]:
    """Say what was scaled, how many seconds were run for it, and what the model's fit took."""
    if scaled := _scaled(content["tasks"]):
        share = sum(one["run"] for one in scaled) / sum(one["configs"] for one in scaled)
        yield (
            f"`*` Scaled: a random {share:.0%} of the configs was run, where all would take over "
            f"{content.get('scaled_above_s', 300):.0f} s, and its choice is the best of those. "
            f"{sum(one['seconds'] for one in scaled):,.0f} s are scaled, for which "
            f"{sum(one['seconds_run'] for one in scaled):,.0f} s were run."
        )
    fit_s = content["fit_of_learned_s"]
    yield f"The fit of `learned`, once an installation, took {fit_s:.1f} s more."


def _scaled(tasks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    runs = (task["triton.autotune"] for task in tasks if "triton.autotune" in task)
    return [run for run in runs if run.get("scaled")]


def _seconds(task: dict[str, Any]) -> dict[str, float]:
    """Read the seconds of asmtune and of each baseline that was run."""
    return {
        "asmtune": task["asmtune"]["seconds"],
        "autotune": task["triton.autotune"]["seconds"],
        "exhaustive_5_20": task["exhaustive"]["coarse"]["seconds"],
    }
