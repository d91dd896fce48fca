"""Bad use of a decorated kernel on a real GPU: told before anything is tuned or launched."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import Space, asm_autotune, pow2
from asmtune.base.errors import InputError
from asmtune.store.database import Store
from asmtune.tuning.session import Session
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (128, 256), "num_warps": (2, 4)})
SIZE = 1024
UNTOUCHED = -7.0


def grid(meta: dict[str, int]) -> tuple[int]:
    """As it should be."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


@pytest.fixture
def out() -> torch.Tensor:
    """Make a launch's output tensor."""
    return torch.full((SIZE,), UNTOUCHED, device="cuda")


@pytest.fixture
def nothing_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning, which launches, fails the test."""
    monkeypatch.setattr(Session, "run", lambda *_: pytest.fail("tuned"))


Launch = Callable[[Any, torch.Tensor, torch.Tensor], Any]


def _by_two(add: Any, x: torch.Tensor, out: torch.Tensor) -> None:
    add[lambda meta: (meta["n"] / meta["BLOCK"],)](x, x, out, SIZE)


BAD: dict[str, tuple[Launch, str]] = {
    "grid below 0": (lambda add, x, out: add[(-1,)](x, x, out, SIZE), r"grid \(-1,\) at"),
    "grid of floats": (_by_two, r"grid \(8.0,\) at .*; a division of sizes needs //"),
    "grid over the limit": (
        lambda add, x, out: add[(1, 65536)](x, x, out, SIZE),
        "axis y has 65536 programs, and the limit is 65535",
    ),
    "CPU tensor": (
        lambda add, x, out: add[grid](x, x.cpu(), out, SIZE),
        r"argument y_ptr is a tensor of fp32 \(1024,\) on cpu: expected one on cuda:0",
    ),
    "float in the key": (
        lambda add, x, out: add[grid](x, x, out, math.nan),
        r"key pow2\(n\) at n=nan: TypeError: a bucket is of whole numbers",
    ),
    "axis given to the launch": (
        lambda add, x, out: add[grid](x, x, out, SIZE, BLOCK=64),
        "BLOCK=64 is given to the launch, and the configs set BLOCK to 128, 256",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.usefixtures("nothing_tuned")
def test_bad_launches(case: str, out: torch.Tensor, cache_dir: Path) -> None:
    """Each bad launch raises, writes nothing, and leaves no record; twice the same."""
    launch, message = BAD[case]
    add = asm_autotune(space=SPACE, key=[pow2("n")])(gpu_kernels.add)
    for _ in range(2):
        with pytest.raises(InputError, match=message) as caught:
            launch(add, torch.ones(SIZE, device="cuda"), out)
        assert "\n" not in str(caught.value)
    torch.cuda.synchronize()
    assert torch.equal(out, torch.full_like(out, UNTOUCHED))
    assert add.best_config is None
    if (cache_dir / "store.sqlite").exists():
        with Store.open(cache_dir / "store.sqlite") as store:
            assert store.records() == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("cuda:0", "cuda:1"), "argument y_ptr is a tensor .* on cuda:1, and x_ptr is on cuda:0"),
        (("cuda:1", "cuda:1"), "and .* is on cuda:1: expected all on one|out_ptr is a tensor"),
    ],
)
@pytest.mark.usefixtures("nothing_tuned")
def test_tensors_on_two_devices(places: tuple[str, str], message: str, out: torch.Tensor) -> None:
    """Tensors on two devices raise, and nothing is written."""
    add, x = asm_autotune(space=SPACE, key=["n"])(gpu_kernels.add), torch.ones_like(out)
    with pytest.raises(InputError, match=message):
        add[grid](x.to(places[0]), x.to(places[1]), out, SIZE)
    torch.cuda.synchronize()
    assert torch.equal(out, torch.full_like(out, UNTOUCHED))


def test_bad_use_after_good(out: torch.Tensor) -> None:
    """A launch that is planned already does not let a bad one of the same key through."""
    add, x = (
        asm_autotune(space=SPACE, key=["n"], skip_tuning_below_us=None)(gpu_kernels.add),
        torch.ones_like(out),
    )
    for _ in range(3):
        add[grid](x, x, out, SIZE)
    assert torch.equal(out, x + x)
    out.fill_(UNTOUCHED)
    # The key is known: here it is Triton's launcher, or ours in its place, that says so.
    with pytest.raises(ValueError, match="cpu"):
        add[grid](x, x.cpu(), out, SIZE)
    torch.cuda.synchronize()
    assert torch.equal(out, torch.full_like(out, UNTOUCHED))
