"""Triton's own tests of its autotuner as a specification, on a GPU.

Each runs twice: with `@asm_autotune`, and with an unchanged `triton.autotune` under `patch()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune import asm_autotune
from asmtune.runtime.patching.redirect import patch
from tests.dispatch.host_gpu import configs, copy, grid

N = 1024
Decorator = Callable[..., Any]


@pytest.fixture(params=["asm_autotune", "patched"])
def autotune(request: pytest.FixtureRequest) -> Iterator[Decorator]:
    """The decorator as asmtune has it, and Triton's own, patched.

    `skip_tuning_below_us=None`, since the problems are so small that nothing would be timed.
    """
    if request.param == "asm_autotune":
        yield partial(asm_autotune, skip_tuning_below_us=None)
        return
    with patch(skip_tuning_below_us=None):
        yield triton.autotune


def briefly(kernel_call: Callable[[], Any], quantiles: Any) -> Any:
    """A user's clock: a millisecond of launches."""
    return triton.testing.do_bench(kernel_call, warmup=1, rep=1, quantiles=quantiles)


def in_graph(kernel_call: Callable[[], Any], quantiles: Any) -> Any:
    """A user's clock that captures launches in a CUDA graph."""
    return triton.testing.do_bench_cudagraph(kernel_call, rep=1, quantiles=quantiles)


def vectors(n: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    """Random numbers, and a place for as many."""
    x = torch.randn(n, device="cuda")
    return x, torch.empty_like(x)


@pytest.mark.parametrize("do_bench", [briefly, in_graph])
def test_keywords_in_any_order(autotune: Decorator, do_bench: Callable[..., Any]) -> None:
    """Positions and keywords in another order are the same launch; another key tunes again."""
    kernel = autotune(configs(), ["n"], do_bench=do_bench)(copy)
    x, out = vectors()
    kernel[grid](x, out, N, 2)
    assert torch.equal(out, x * 2)
    half = torch.zeros_like(out)
    kernel[grid](scale=2, n=N // 2, out_ptr=half, x_ptr=x)
    assert torch.equal(half[: N // 2], x[: N // 2] * 2)
    assert not half[N // 2 :].any()
    assert len(kernel.cache) == 2


# An edit of each IR that multiplies by 20 where the source says 10.
EDITS = {
    "ttir": ("1.000000e+01", "2.000000e+01"),
    "ttgir": ("1.000000e+01", "2.000000e+01"),
    "ptx": ("0f41200000", "0f41A00000"),
}


@triton.jit
def tenfold(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Multiply by ten."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 10.0, mask=at < n)


def edited(stage: str, folder: Path, edit: tuple[str, str]) -> str:
    """A file of a stage of `tenfold`'s IR, edited by hand."""
    x, out = vectors()
    text = tenfold[(N // 32,)](x, out, N, BLOCK=32).asm[stage]
    assert edit[0] in text, text
    path = folder / f"tenfold.{stage}"
    path.write_text(text.replace(*edit))
    return str(path)


@pytest.mark.parametrize("as_keyword", [False, True])
@pytest.mark.parametrize("stage", EDITS)
def test_ir_override(autotune: Decorator, tmp_path: Path, stage: str, as_keyword: bool) -> None:
    """The one config there is runs the IR of a user's file."""
    path = edited(stage, tmp_path, EDITS[stage])
    values = {"BLOCK": 32, "ir_override": path} if as_keyword else {"BLOCK": 32}
    own = triton.Config(values, ir_override=None if as_keyword else path)
    kernel = autotune([own], ["n"], do_bench=briefly)(tenfold)
    x, out = vectors()
    kernel[grid](x, out, n=N)
    torch.testing.assert_close(out, x * 20)


def tuned_copy(autotune: Decorator) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """`copy`, tuned, with its arguments."""
    kernel = autotune(configs(), ["n"])(copy)
    x, out = vectors()
    kernel[grid](x, out, N)
    return kernel, x, out


def test_launch_hooks_see_the_metadata(autotune: Decorator) -> None:
    """A launch of a known key calls Triton's hooks with grid and arguments of this launch."""
    seen: list[dict[str, Any]] = []

    def metadata(launched: Any, kernel: Any, values: dict[str, Any]) -> dict[str, Any]:
        return {"grid": launched, "value": values["n"]}

    @triton.jit(launch_metadata=metadata)
    def nothing(x_ptr, n, BLOCK: tl.constexpr):
        pass

    kernel = autotune(configs(32), [])(nothing)
    x, _ = vectors()
    kernel[(1,)](x, 5)

    def hook(told: Any) -> None:
        seen.append(told.get())

    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        kernel[(1, 3, 2)](x, 6)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    kernel[(1, 3, 2)](x, 7)
    ((launched, value),) = [(told["grid"], told["value"]) for told in seen]
    assert (tuple(launched), value) == ((1, 3, 2), 6)


def test_known_launches_compile_nothing(
    autotune: Decorator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated launches never ask Triton's cache; another divisibility does, as under Triton."""
    kernel, x, out = tuned_copy(autotune)
    compiled: list[Any] = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_cache_hook", lambda **told: compiled.append(told) and None
    )
    for _ in range(10):
        kernel[grid](x, out, N)
    assert compiled == []
    kernel[grid](x[1:], out, N - 16)
    kernel[grid](x, out[1:], N - 16)
    torch.cuda.synchronize()
    assert torch.equal(out[1 : N - 15], x[: N - 16])
