"""Ranks of a `torch.distributed` job use one config a key: real process groups, on the CPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from asmtune.base.errors import GroupStoreError, MeasureError
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.rank_agreement import (
    RankAgreement,
    RankJob,
    RankWarning,
    current_job,
    decode_config,
    encode_config,
)

ROOT = Path(__file__).parents[2]
FIRST, SECOND = Config({"BLOCK": 64}), Config({"BLOCK": 32})


def matter(store: Any, rank: int, n: int = 8, gpu: str = "NVIDIA H200") -> RankAgreement:
    """What a rank agrees on with others."""
    key = TuneKey("m.add", {"n": n}, {"x": "fp16"}, gpu)
    made = Provenance("source", "space", "3", "2", "0", "1", "now")
    return RankAgreement(RankJob(store, rank), key, made, lambda: [FIRST, SECOND])


def run_job(scene: str, world: int, folder: Path) -> list[dict[str, Any] | None]:
    """Run a job; return what each rank printed, None for one that was killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).with_name("rank_process.py")), scene]
    path = os.pathsep.join((str(ROOT), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(world), str(port), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [text for text in told if text and not text.startswith("{")] == []
    return [json.loads(text) if text else None for text in told]


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Three ranks with stores of their own, none of which dies."""
    found = run_job("peaceful", 3, tmp_path_factory.mktemp("ranks"))
    return [rank for rank in found if rank is not None]


@pytest.mark.slow
def test_all_ranks_use_the_config_that_is_published_first(peaceful: list[dict[str, Any]]) -> None:
    """Ranks that meet a new key at once go on with one config, hook included."""
    found = [rank["at once"] for rank in peaceful]
    assert len({made["config"] for made in found}) == 1
    assert all(made["hook"] and not made["warnings"] for made in found)


@pytest.mark.slow
def test_a_rank_that_never_meets_the_key_holds_nobody_up(peaceful: list[dict[str, Any]]) -> None:
    """Two of three ranks meet a key, agree, and the third is not asked."""
    assert "never met" not in peaceful[1]
    assert peaceful[0]["never met"]["config"] == peaceful[2]["never met"]["config"]
    assert not peaceful[0]["never met"]["warnings"]


@pytest.mark.slow
def test_launches_of_all_ranks_have_one_config(peaceful: list[dict[str, Any]]) -> None:
    """Launches, later ones, ones from the background and captured ones agree over all ranks."""
    found = [rank["launched"] for rank in peaceful]
    assert len({made["tuned"] for made in found}) == 1
    assert [made["again"] for made in found] == [made["tuned"] for made in found]
    assert [made["background"] for made in found] == [[64, 64]] * 3
    assert len({made["captured"] for made in found}) == 1


@pytest.mark.slow
def test_a_lost_store_is_told(tmp_path: Path) -> None:
    """Where the rank that serves the store is killed, the other goes its own way and says so."""
    first, second = run_job("deserted", 2, tmp_path)
    assert first is None
    assert second is not None
    assert second["tuned"]
    (text,) = second["warnings"]
    assert "rank 1: kernel m.deserted at n=8, x fp16 on NVIDIA H200" in text
    assert "others may have another config" in text


def test_no_job_without_a_group() -> None:
    """A process outside any group, and the one rank of a group of one, settle nothing."""
    assert current_job() is None
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert current_job() is None
    finally:
        dist.destroy_process_group()


def failing() -> Config:
    """Tune nothing."""
    raise MeasureError("nothing ran")


@pytest.mark.parametrize("kind", ["hash", "file"])
def test_every_store_of_pytorch_serves(kind: str, tmp_path: Path) -> None:
    """What ranks say works through PyTorch's stores in memory and in a file."""
    store = dist.HashStore() if kind == "hash" else dist.FileStore(str(tmp_path / "store"), 2)
    ranks = [matter(dist.PrefixStore("default_pg", store), rank) for rank in range(3)]
    with pytest.raises(MeasureError):
        ranks[0].agree(failing)
    assert ranks[1].agree(lambda: FIRST) is FIRST
    assert ranks[2].agree(failing) == FIRST

    def late() -> Config:
        ranks[1].agree(lambda: FIRST)
        return SECOND

    assert matter(store, 0, n=9).agree(lambda: SECOND) is SECOND
    assert matter(store, 0, n=9, gpu="NVIDIA H100").agree(lambda: FIRST) is FIRST
    ranks = [matter(store, rank, n=10) for rank in range(2)]
    assert ranks[0].agree(late) is FIRST


def test_a_store_that_cannot_compare_is_told() -> None:
    """A store that lacks what is needed costs one warning, and the rank goes its own way."""
    with pytest.warns(RankWarning, match="may have another config"):
        assert matter(dist.Store(), 3).agree(lambda: FIRST) is FIRST


def test_configs_survive_being_told() -> None:
    """Caps, overrides and hooks are what they were; values that JSON lacks are found again."""
    import triton.language as tl

    odd = Config({"TYPE": tl.float32}, num_warps=8)
    plain = Config({"BLOCK": 64}, 2, 1, 2, 168)
    replaced = Config({"BLOCK": 64}, ir_override="mine.ptx")
    assert decode_config(encode_config(odd), [plain, odd]) is odd
    assert decode_config(encode_config(plain), [plain]) == plain
    assert decode_config(encode_config(replaced), [Config({"BLOCK": 64}), replaced]) is replaced
    hooked = Config({"BLOCK": 64}, pre_hook=print)
    capped = decode_config(encode_config(FIRST.with_cap(96)), [hooked])
    assert (capped.maxnreg, capped.pre_hook) == (96, print)
    named = odd.with_alternative("vendor")
    assert decode_config(encode_config(named), [plain, odd]) == named
    for foreign in (encode_config(replaced), encode_config(plain), "{", "[1]", "[" * 100_000):
        with pytest.raises(GroupStoreError, match=r"not in the kernel's space|and no config"):
            decode_config(foreign, [odd])
