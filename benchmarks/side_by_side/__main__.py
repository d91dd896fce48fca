"""Measurement of every lane at once, with a GPU and an equal share of the cores each.

    python -m benchmarks.side_by_side KERNELS [--lanes 0,1,2,3] [--most-s S] [--keep FILE]
        [--output FILE]

KERNELS is a folder with the oracle's kernels. Needs as many GPUs as lanes. `--keep` takes over the
tasks that an earlier run on the same kind of machine measured, and runs only the others. The model
of `learned` is fitted before, once, as on a machine where asmtune ran before; its seconds are told
apart. All caches of compiled code are empty at the start of each task. A task that fails or runs
out of time is reported as such and does not stop the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, write
from benchmarks.side_by_side.summary import summary, table
from benchmarks.side_by_side.tasks import LANES


def fitted(folder: Path) -> float:
    """Fit the model into a folder; return the seconds, as asmtune's first use spends them."""
    from dataclasses import replace

    from asmtune.base.settings import Settings
    from asmtune.predict.score.learned import Learned

    start = time.perf_counter()
    scorer = Learned(replace(Settings.from_environment(), cache_dir=folder))
    assert scorer.effective_name == "learned", "the model of learned cannot be fitted here"
    return time.perf_counter() - start


class Lane(threading.Thread):
    """A GPU and some cores, and the tasks that it runs one after another."""

    def __init__(self, lane: int, place: tuple[int, Sequence[int]], options: Any) -> None:
        super().__init__()
        self.lane, (self.gpu, self.cores), self.options = lane, place, options
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        """Run each task in a process of its own; return a result or an error for each."""
        for number, task in enumerate(LANES[self.lane]):
            if _place(task.to_json()) in self.options.kept:
                continue
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                shutil.copytree(self.options.models, folder / "asmtune" / "models")
                output = folder / "result.json"
                done = self._process(number, folder, output)
                result = json.loads(output.read_text()) if output.exists() else task.to_json()
                if "retimed_us" not in result:
                    said = (done or "ran out of time").strip().splitlines()[-1:]
                    result["error"] = "".join(said)[:300]
                self.results.append(result)

    def _process(self, number: int, folder: Path, output: Path) -> str | None:
        where = (self.options.kernels, self.lane, number, folder, output)
        command = [sys.executable, "-m", "benchmarks.side_by_side.one", *map(str, where)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(self.gpu)}
        left = self.options.end - time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--most-s", str(self.options.most_s)],
                env=environment,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cores),
                capture_output=True,
                text=True,
                timeout=max(left, 1.0),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stderr


def _place(task: Mapping[str, Any]) -> str:
    """Name a task, or a result of one."""
    return json.dumps([task["kernel"], task["shape"]])


def measured(path: Path | None, share: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the tasks that an earlier run measured, and where it ran.

    Raises:
        ValueError: its lanes had another number of cores.
    """
    if path is None:
        return [], {}
    earlier = json.loads(path.read_text())
    if earlier["cores_a_lane"] != share:
        raise ValueError(f"{path}: {earlier['cores_a_lane']} cores a lane there, {share} here")
    tasks = [task for task in earlier["tasks"] if "retimed_us" in task]
    return tasks, {"kept": {"tasks": len(tasks), **earlier["provenance"]}}


def main() -> None:
    """Run the lanes and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--lanes", default=",".join(map(str, range(len(LANES)))))
    parser.add_argument("--gpus", type=int, default=len(LANES), help="shares of the cores")
    parser.add_argument("--most-s", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all together")
    parser.add_argument("--keep", type=Path, help="results of an earlier run")
    parser.add_argument("--output", type=Path, default=RESULTS / "side_by_side.json")
    options = parser.parse_args()
    options.end = time.monotonic() + options.seconds
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // options.gpus
    earlier, origin = measured(options.keep, share)
    options.kept = {_place(task) for task in earlier}
    with tempfile.TemporaryDirectory() as models:
        fit_s = fitted(Path(models))
        options.models = Path(models) / "models"
        lanes = [
            Lane(lane, (gpu, cores[gpu * share : (gpu + 1) * share]), options)
            for gpu, lane in enumerate(map(int, options.lanes.split(",")))
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    results = [*earlier, *(result for lane in lanes for result in lane.results)]
    setting: dict[str, Any] = {"cores_a_lane": share, "fit_of_learned_s": round(fit_s, 2), **origin}
    setting["scaled_above_s"] = options.most_s
    write(options.output, {**setting, "summary": summary(results), "tasks": results})
    print(table(results))


if __name__ == "__main__":
    main()
