"""A program that compiles three configs in the way that its argument names, or times one."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs, warm
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from tests.compile.readings import admit, digest_of
from tests.sample_kernels import scale_problem

CONFIGS = [Config({"BLOCK": block}) for block in (256, 512, 1024)]


def compiled(jobs: int) -> int:
    """Count the configs that compile, in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(cache_dir=Path(folder), jobs=jobs, compile_timeout_s=300)
        lowering = Lowering(scale_problem(), load_target("H200"), 30)
        made = dict(compile_configs(lowering, CONFIGS, Hooks(digest_of, admit), settings))
    return sum(isinstance(outcome, CompiledConfig) for outcome in made.values())


def say(line: str) -> None:
    """Tell who started this program."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def compiled_in_a_fork() -> None:
    """Compile in a process that forks off, and wait for it."""
    if (child := os.fork()) == 0:
        say(f"{compiled(2)} compiled")
        os._exit(0)
    os.waitpid(child, 0)


def compiled_after_a_warm_start() -> None:
    """Start workers early; fork off, and spawn, meanwhile; then compile."""
    settings = Settings(cache_dir=Path("unused"), jobs=2)
    warm(load_target("H200").machine, (digest_of.__module__,), settings)
    if (child := os.fork()) == 0:
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    say(f"exit code {os.waitstatus_to_exitcode(status)}")
    spawned = multiprocessing.get_context("spawn").Process(target=say, args=("spawned",))
    spawned.start()
    spawned.join()
    say(f"{compiled(2)} compiled")


def time_one() -> None:
    """Time a config that hangs."""
    from asmtune.measure.bench.child_bench import ChildBench
    from tests.bench.bench_support import CHILD, entrant, setup

    bench = ChildBench(setup(run_timeout_s=300.0), command=CHILD)
    bench.begin(entrant("good"))
    say("at work")
    bench.trial([entrant("hang")])


def main(way: str) -> None:
    """Compile or time, and say so."""
    if way == "bench":
        time_one()
    elif way == "warm":
        compiled_after_a_warm_start()
    else:
        say(f"{compiled(1 if way == 'alone' else 2)} compiled")
    if way == "idle":
        say("at work")
        time.sleep(300)
    if way == "then fork":
        compiled_in_a_fork()
        say(f"{compiled(2)} compiled")


if __name__ == "__main__":
    main(sys.argv[1])
