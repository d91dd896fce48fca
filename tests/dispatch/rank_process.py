"""The ranks of a job over gloo: processes that play a scene together.

python rank_process.py SCENE WORLD PORT FOLDER

Prints a JSON list of what each rank wrote: a JSON object, its error, or nothing where it was
killed. Ranks are forked off one process, which has imported PyTorch for all of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import triton

from asmtune import asm_autotune
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime import choosing
from asmtune.runtime.rank_agreement import RankAgreement, RankJob, current_job
from tests.dispatch import torch_kernels
from tests.dispatch.torch_support import Imagined
from tests.store.children import finish, start


def hooked(_: Any) -> None:
    """A `pre_hook`, which no message can carry."""


SPACE = [Config({"BLOCK": 2**i}, pre_hook=hooked) for i in range(4, 12)]


def matter(job: RankJob, name: str) -> RankAgreement:
    """Give what a scene agrees on."""
    made_with = Provenance("source", "space", "3", "2", "0", "1", "now")
    key = TuneKey(f"m.{name}", {"n": 8}, {"x": "fp16"}, "NVIDIA H200")
    return RankAgreement(job, key, made_with, lambda: SPACE)


class Player:
    """A rank that would tune to a config of its own, and what became of it."""

    def __init__(self, rank: int) -> None:
        job = current_job()
        assert job is not None
        self.job = job
        self.store = dist.distributed_c10d._get_default_store()
        self.rank = rank
        self.tuned: list[str] = []
        self.own = SPACE[rank]

    def play(self, name: str, *, work: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Agree on a config; a rank that resolves the key works first."""

        def resolve() -> Config:
            self.tuned.append(name)
            work()
            return self.own

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            config = matter(self.job, name).agree(resolve)
        return {
            "config": str(config),
            "hook": config.pre_hook is hooked,
            "tuned": name in self.tuned,
            "warnings": [str(warning.message) for warning in seen],
        }


def peaceful(player: Player) -> dict[str, Any]:
    """Scenes in which nobody dies, one after the other, all ranks together."""
    found = {"at once": player.play("at once", work=lambda: time.sleep(0.5))}
    dist.barrier()
    if player.rank != 1:
        found["never met"] = player.play("never met")
    dist.barrier()
    found["launched"] = launched(player, Path(os.environ["ASMTUNE_CACHE_DIR"]))
    dist.barrier()
    return found


def launched(player: Player, folder: Path) -> dict[str, Any]:
    """Ranks whose GPUs would tune to different configs launch, capture and trace kernels."""
    sizes = [32, 64, 128]
    machine = Imagined(winner=Config({"BLOCK": sizes[player.rank]}))
    own = Config({"BLOCK": sizes[-1 - player.rank]})
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        machine.installed(folder, patch)

        def block(n: int, **options: Any) -> int:
            options = {
                "space": {"BLOCK": sizes},
                "key": ["n"],
                "skip_tuning_below_us": None,
                **options,
            }
            kernel = asm_autotune(**options)(torch_kernels.add)
            launch_add(kernel, n)
            return int(machine.launches[-1]["BLOCK"])

        found["tuned"] = block(100)
        found["tunings"] = len(machine.tuned)
        dist.barrier()
        found["again"] = block(100)
        found["background"] = background(machine)
        dist.barrier()
        patch.setattr(choosing, "is_capturing", lambda: True)
        found["captured"] = block(300, fallback=own)
    return found


def background(machine: Imagined) -> list[int]:
    """Blocks before and after each rank's background has tuned."""
    options = {"on_miss": "background", "fallback": Config({"BLOCK": 64})}
    kernel = asm_autotune(
        space={"BLOCK": [32, 64, 128]}, key=["n"], skip_tuning_below_us=None, **options
    )(torch_kernels.add)
    launch_add(kernel, 200)
    blocks, end = [machine.launches[-1]["BLOCK"]], time.monotonic() + 30
    done = torch.zeros(1)
    while not done and time.monotonic() < end:  # one of them tunes
        done.fill_(any(key.shape["n"] == 200 for key in machine.tuned))
        dist.all_reduce(done)
        time.sleep(0.2)
    assert done, "no rank tuned in the background"
    time.sleep(0.3)
    launch_add(kernel, 200)
    return [*blocks, machine.launches[-1]["BLOCK"]]


def launch_add(kernel: Any, n: int) -> None:
    """Add two vectors."""
    x = torch.ones(n)
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, x, torch.empty(n), n)


def deserted(player: Player) -> dict[str, Any]:
    """Rank 0, which serves the group's store, ends before the other has tuned."""
    if player.rank == 0:
        player.store.wait(["begun"])
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        player.store.set("begun", "")
        time.sleep(1)

    return player.play("deserted", work=work)


SCENES = {"peaceful": peaceful, "deserted": deserted}


def play(scene: str, world: int, port: str, folder: str, rank: int, pipe: int) -> None:
    """Join the job, play, and write what was found; the process then ends at once.

    A group that lost a rank cannot be taken down.
    """
    os.environ["ASMTUNE_CACHE_DIR"] = str(Path(folder) / f"rank{rank}")
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=100),
    )
    os.write(pipe, json.dumps(SCENES[scene](Player(rank))).encode())


def main() -> None:
    """Start the ranks, wait for all, print."""
    scene, world, port, folder = sys.argv[1:]
    job = partial(play, scene, int(world), port, folder)
    ranks = [start(partial(job, rank)) for rank in range(int(world))]
    print(json.dumps([finish(*rank) for rank in ranks]))  # noqa: T201


if __name__ == "__main__":
    main()
