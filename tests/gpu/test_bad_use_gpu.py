"""Bad use of a decorated kernel on a real GPU: told before anything is tuned or launched."""

from __future__ import annotations

import pytest
import torch
import triton

from asmtune import Space, asm_autotune
from asmtune.base.errors import InputError
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
