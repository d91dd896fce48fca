"""TTIR and sketches are made once: another shape and another process find them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.compile import artifacts
from asmtune.compile.artifacts import ArtifactCache, StoredTtir
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.triton_api import caches
from asmtune.triton_api.compiler import Toolchain
from tests.compile.making import accepted, sketch_one
from tests.sample_kernels import asks_for_warps, scale_problem, tensor

CONFIG = Config({"BLOCK": 512})
FACTOR = tl.constexpr(2)


@triton.jit
def times_factor(x_ptr, n, BLOCK: tl.constexpr):
    """Multiply by a global."""
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * FACTOR, mask=at < n)


@pytest.fixture(autouse=True)
def no_texts() -> Iterator[None]:
    """Forget what this process has lowered, as a new process has not lowered it."""
    artifacts._texts.clear()
    yield
    artifacts._texts.clear()


@pytest.fixture
def front_ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the TTIR that Triton's front end makes."""
    made: list[str] = []
    front_end = Toolchain.front_end

    def counted(toolchain: Toolchain, source: object) -> object:
        result = front_end(toolchain, source)  # type: ignore[arg-type]
        made.append(result[0])
        return result

    monkeypatch.setattr(Toolchain, "front_end", counted)
    return made


def lowering(problem: Problem, target: Target, settings: Settings) -> Lowering:
    """A problem's front end, over the TTIR of a folder."""
    return Lowering(problem, target, 30, stored=StoredTtir(ArtifactCache.of(settings)))


def ttir(made: Lowering, config: Config = CONFIG) -> str:
    """Lower a config."""
    request = accepted(made, config)
    return request.ttir


def files(settings: Settings, kind: str) -> list[Path]:
    """The entries of a kind on disk."""
    return sorted(settings.artifacts_dir.glob(f"*/*.{kind}.json.gz"))


def test_another_shape_and_process_lower_nothing(
    target: Target, empty_settings: Settings, front_ends: list[str]
) -> None:
    """TTIR of an equal specialisation is taken from the process, then from the disk."""
    first = ttir(lowering(scale_problem(), target, empty_settings))
    assert len(front_ends) == 1
    assert ttir(lowering(scale_problem(), target, empty_settings)) == first
    (path,) = files(empty_settings, "ttir")
    assert path.stat().st_mode & 0o77 == 0
    artifacts._texts.clear()
    assert ttir(lowering(scale_problem(), target, empty_settings)) == first
    assert len(front_ends) == 1
    ttir(lowering(scale_problem(), target, empty_settings), Config({"BLOCK": 256}))
    assert len(front_ends) == 2


def test_a_changed_global_is_another_source(
    target: Target,
    empty_settings: Settings,
    front_ends: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that reads another value than before is lowered again."""
    made = Problem(times_factor, {"x_ptr": tensor(torch.float32), "n": 64}, (1,))
    first = ttir(lowering(made, target, empty_settings))
    monkeypatch.setitem(times_factor.fn.__globals__, "FACTOR", tl.constexpr(3))
    assert ttir(lowering(made, target, empty_settings)) != first
    assert len(front_ends) == 2


@triton.jit
def square(x_ptr):
    """Multiply a tile with itself."""
    at = x_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(at, tl.dot(tl.load(at), tl.load(at)))


def test_what_changes_the_front_end_changes_the_key(
    target: Target, empty_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's knob, set without its variable, and another Triton make other TTIR."""
    made = Problem(square, {"x_ptr": tensor(torch.float32)}, (1,))
    first = ttir(lowering(made, target, empty_settings), Config({}))
    with triton.knobs.language.scope():
        monkeypatch.setattr(triton.knobs, "propagate_env", False)
        triton.knobs.language.fp32_default = "ieee"
        assert ttir(lowering(made, target, empty_settings), Config({})) != first
    stored = StoredTtir(ArtifactCache.of(empty_settings))
    for identity, count in (("one", 3), ("other", 4)):
        monkeypatch.setattr(caches, "_triton_identity", lambda own=identity: own)
        ttir(Lowering(made, target, 30, stored), Config({}))
        assert len(files(empty_settings, "ttir")) == count


def cast_to(kind: Any) -> Any:
    """A kernel that casts to a type of its closure."""

    @triton.jit
    def cast(x_ptr):
        tl.store(x_ptr, tl.load(x_ptr).to(kind).to(tl.float32))

    return cast


def test_kernels_of_one_source_stay_apart(target: Target, empty_settings: Settings) -> None:
    """Two functions of the same lines that differ in a type alone have TTIR of their own."""
    kernels = (cast_to(kind) for kind in (tl.float16, tl.bfloat16))
    problems = [Problem(kernel, {"x_ptr": tensor(torch.float32)}, (1,)) for kernel in kernels]
    texts = [ttir(lowering(made, target, empty_settings), Config({})) for made in problems]
    assert ["bf16" in text for text in texts] == [False, True]


def test_what_options_decide_is_not_stored(target: Target, empty_settings: Settings) -> None:
    """TTIR of a kernel that asks for its warps is made for each number of them."""
    problem = Problem(asks_for_warps, {"x_ptr": tensor(torch.int32)}, (1,))
    made = lowering(problem, target, empty_settings)
    texts = {ttir(made, Config({}, num_warps=warps)) for warps in (4, 8)}
    assert len(texts) == 2
    assert files(empty_settings, "ttir") == []


def test_damage_is_repaired(
    target: Target, empty_settings: Settings, front_ends: list[str]
) -> None:
    """A damaged file is made again, and nothing of it is used."""
    problem = scale_problem()
    first = ttir(lowering(problem, target, empty_settings))
    request = accepted(lowering(problem, target, empty_settings), CONFIG)
    sketch = sketch_one(request, empty_settings)
    for kind in ("ttir", "sketch"):
        (path,) = files(empty_settings, kind)
        path.write_bytes(path.read_bytes()[:-9])
    artifacts._texts.clear()
    assert ttir(lowering(problem, target, empty_settings)) == first
    assert len(front_ends) == 2
    assert sketch_one(request, empty_settings) == sketch
    hasty = replace(empty_settings, compile_timeout_s=1e-4)  # a stage would fail
    assert sketch_one(request, hasty) == sketch
