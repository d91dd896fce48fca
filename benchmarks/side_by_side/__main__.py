"""Measurement of the tasks, on GPUs with an equal share of the cores each.

    python -m benchmarks.side_by_side KERNELS [--gpus N] [--tasks 0,1,2] [--most-s S] [--parts N]
        [--seconds S] [--keep FILE] [--output FILE]

KERNELS is a folder with the oracle's kernels. Each of `--gpus` GPUs takes one task after the other
until `--seconds` are over; the task that runs then is cut. `--keep` takes over the tasks that an
earlier run on the same kind of machine measured, and runs only the others: what one call cannot do,
the next does.

Where `triton.autotune` would take more than `--most-s`, a random 1/`--parts` of the configs is run,
and its seconds are scaled: each such task says `scaled`, how many configs it ran (`run`), and their
`share`.
The model of `learned` is fitted before, once, as on a machine where asmtune ran before; its seconds
are reported separately. All caches of compiled code are empty at the start of each task. A task
that fails or runs out of time is reported as such and does not stop the others.
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
from queue import Empty, Queue
from typing import Any

from benchmarks.harness import RESULTS, fitted, write
from benchmarks.side_by_side.baselines import Effort
from benchmarks.side_by_side.summary import document, summary
from benchmarks.side_by_side.tasks import TASKS


class Worker(threading.Thread):
    """A GPU and some cores, which take one task after another."""

    def __init__(self, queue: Queue[int], place: tuple[int, Sequence[int]], options: Any) -> None:
        super().__init__()
        self.queue, (self.gpu, self.cores), self.options = queue, place, options
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        """Run each task in a process of its own; note a result or an error for each."""
        while True:
            try:
                number = self.queue.get_nowait()
            except Empty:
                return
            start = time.monotonic()
            if start >= self.options.end:
                self.results.append({**TASKS[number].to_json(), "error": "not begun"})
                continue
            result = self._result(number)
            self.results.append(result)
            spent = f"{time.monotonic() - start:.0f} s"
            print(f"{task_name(result)}: {result.get('error', spent)}", flush=True)

    def _result(self, number: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(self.options.models, folder / "asmtune" / "models")
            output = folder / "result.json"
            done = self._process(number, folder, output)
            task = TASKS[number].to_json()
            result: dict[str, Any] = json.loads(output.read_text()) if output.exists() else task
            if "retimed_us" not in result:
                said = (done or "ran out of time").strip().splitlines()[-1:]
                result["error"] = "".join(said)[:300]
            return result

    def _process(self, number: int, folder: Path, output: Path) -> str | None:
        where = (self.options.kernels, number, folder, output)
        command = [sys.executable, "-m", "benchmarks.side_by_side.one", *map(str, where)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(self.gpu)}
        left = self.options.end - time.monotonic()
        try:
            done = subprocess.run(
                [*command, *_effort_options(self.options.effort)],
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


def _effort_options(effort: Effort) -> list[str]:
    return ["--most-s", str(effort.most_s), "--parts", str(effort.parts)]


def task_name(task: Mapping[str, Any]) -> str:
    """Name a task, or a result of one."""
    return json.dumps([task["kernel"], task["shape"]])


def measured(path: Path | None, share: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the tasks that an earlier run measured, and where it ran.

    Raises:
        ValueError: its GPUs had another number of cores.
    """
    if path is None:
        return [], {}
    earlier = json.loads(path.read_text())
    if earlier["cores_a_lane"] != share:
        raise ValueError(f"{path}: {earlier['cores_a_lane']} cores a GPU there, {share} here")
    tasks = [task for task in earlier["tasks"] if "retimed_us" in task]
    return tasks, {"kept": {"tasks": len(tasks), **earlier["provenance"]}}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--tasks", default=",".join(map(str, range(len(TASKS)))))
    parser.add_argument("--gpus", type=int, default=4, help="GPUs, and shares of the cores")
    parser.add_argument("--most-s", type=float, default=300.0)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all together")
    parser.add_argument("--keep", type=Path, help="results of an earlier run")
    parser.add_argument("--output", type=Path, default=RESULTS / "side_by_side.json")
    options = parser.parse_args(arguments)
    unknown = set(options.tasks.split(",")) - set(map(str, range(len(TASKS))))
    if unknown:
        parser.error(f"no task {', '.join(sorted(unknown))}; there are 0 to {len(TASKS) - 1}")
    for name in ("gpus", "parts"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    options.end = time.monotonic() + options.seconds
    options.effort = Effort(options.most_s, options.parts)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tasks and write the results."""
    options = _options(arguments)
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // options.gpus
    try:
        earlier, origin = measured(options.keep, share)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"--keep {options.keep}: {error!r}; give a file that this wrote") from None
    finished = {task_name(task) for task in earlier}
    queue: Queue[int] = Queue()
    for number in map(int, options.tasks.split(",")):
        if task_name(TASKS[number].to_json()) not in finished:
            queue.put(number)
    with tempfile.TemporaryDirectory() as models:
        fit_s = fitted(Path(models))
        options.models = Path(models) / "models"
        workers = [
            Worker(queue, (gpu, cores[gpu * share : (gpu + 1) * share]), options)
            for gpu in range(options.gpus)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    results = [*earlier, *(result for worker in workers for result in worker.results)]
    in_order = [task_name(task.to_json()) for task in TASKS]
    results.sort(key=lambda result: in_order.index(task_name(result)))
    setting: dict[str, Any] = {"cores_a_lane": share, "fit_of_learned_s": round(fit_s, 2), **origin}
    setting |= {"scaled_above_s": options.most_s, "first_part": 1 / options.parts}
    content = write(options.output, {**setting, "summary": summary(results), "tasks": results})
    print(document(content))


if __name__ == "__main__":
    main()
