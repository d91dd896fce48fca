"""`@asm_autotune` without a GPU: keys, lookups through a real store, and Triton's interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.runtime import choosing
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.tuning import tuner
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.session import Session

AXES = {"BLOCK": [32, 64, 128], "num_warps": [4, 8]}
DEFAULT = Config({"BLOCK": 64})
WINNER = Config({"BLOCK": 128}, num_warps=8)
DEVICE = "NVIDIA Imagined"


@triton.jit
def add(x_ptr, y_ptr, n, factor=1.0, BLOCK: tl.constexpr = 64):
    """Stand for a kernel that never runs: the tests see its launches."""


class Bench:
    """Sees launches, and answers for the tuner."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self.tuned: list[TuneKey] = []
        self.winner = WINNER
        self.options: TuneOptions | None = None

    def run(self, *args: Any, **keywords: Any) -> None:
        """Stand for the launch."""
        self.launches.append({"args": args, **keywords})

    def tune(self, request: TuningRequest) -> TuningResult:
        """Stand for the funnel and the clock."""
        self.tuned.append(request.key)
        timing = Measurement(self.winner, 2.0, 1.9, 2.1, (2.0,))
        record = TuneRecord(request.key, self.winner, (timing,), request.expected)
        return TuningResult(request, "tuned", record)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A machine with an imagined GPU and a fresh cache folder."""
    made = Bench()
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(add, "run", made.run)
    monkeypatch.setattr("asmtune.measure.timing.nvml.device_name", lambda: DEVICE)
    monkeypatch.setattr(tuner, "match_device", lambda _: load_target("H200"))

    def run(self: Session, request: TuningRequest) -> TuningResult:
        made.options = self.options
        return made.tune(request)

    monkeypatch.setattr(Session, "run", run)
    return made


def tuned(**options: Any) -> AsmAutotuner:
    """`add` under the decorator, as a new process would have it."""
    options = {
        "space": Space(AXES, default=DEFAULT),
        "key": ["n"],
        "skip_tuning_below_us": None,
        **options,
    }
    return asm_autotune(**options)(add)


def tensor(n: int = 8, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """A tensor of n elements."""
    return torch.zeros(n, dtype=dtype)


def test_miss_tunes_once_and_launches_the_winner(bench: Bench) -> None:
    """The first launch of a key tunes; it and all later ones run the winner's keywords."""
    kernel, x = tuned(), tensor()
    for _ in range(3):
        kernel[(4,)](x, x, 8)
    assert bench.tuned == [
        TuneKey(f"{add.__module__}.add", {"n": 8}, {"x_ptr": "fp16", "y_ptr": "fp16"}, DEVICE)
    ]
    assert [launch["BLOCK"] for launch in bench.launches] == [128] * 3
    first = bench.launches[0]
    assert first["args"] == (x, x, 8)
    assert (first["grid"], first["warmup"], first["num_warps"]) == ((4,), False, 8)
    assert kernel.best_config == WINNER


OTHER_LAUNCHES: dict[str, Callable[[AsmAutotuner], Any]] = {
    "a key's value": lambda k: k[(4,)](tensor(), tensor(), 9),
    "a dtype": lambda k: k[(4,)](tensor(), tensor(dtype=torch.bfloat16), 8),
    "dtypes exchanged by keyword": lambda k: k[(4,)](
        y_ptr=tensor(), x_ptr=tensor(dtype=torch.float32), n=8
    ),
    "no tensor": lambda k: k[(4,)](tensor(), None, 8),
    "a descriptor": lambda k: k[(4,)](
        TensorDescriptor.from_tensor(torch.zeros(16, 16), [16, 16]), tensor(), 8
    ),
}


@pytest.mark.parametrize("launch", OTHER_LAUNCHES.values(), ids=OTHER_LAUNCHES)
def test_what_makes_another_key(bench: Bench, launch: Callable[[AsmAutotuner], Any]) -> None:
    """Another key value, or another dtype at any tensor, is tuned for itself."""
    kernel = tuned()
    kernel[(4,)](tensor(), tensor(), 8)
    kernel[(4,)](x_ptr=tensor(dtype=torch.float16), y_ptr=tensor(dtype=torch.float32), n=8)
    launch(kernel)
    assert len(kernel.cache) == len(bench.tuned) == 3


def test_dtypes_of_views_are_part_of_the_key(bench: Bench) -> None:
    """Descriptors of another dtype, and tensors read as another dtype, are other keys."""
    kernel = tuned()
    for dtype in (torch.float16, torch.bfloat16):
        view = TensorDescriptor.from_tensor(torch.zeros(16, 16, dtype=dtype), [16, 16])
        kernel[(4,)](view, tensor(), 8)
    for dtype in (tl.float8e5, tl.float8e4nv):
        kernel[(4,)](triton.reinterpret(tensor(dtype=torch.int8), dtype), tensor(), 8)
    assert [key.dtypes["x_ptr"] for key in bench.tuned] == ["fp16", "bf16", "fp8e5", "fp8e4nv"]


def test_capture_never_tunes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a graph is captured an unknown key gets the fallback's config and one warning."""
    kernel = tuned(fallback=DEFAULT)
    monkeypatch.setattr(choosing, "is_capturing", lambda: True)
    with pytest.warns(
        UserWarning, match=r"add at n=8.*: not tuned; a CUDA graph .* goes on with BLOCK=64"
    ):
        kernel[(4,)](tensor(), tensor(), 8)
    assert bench.tuned == []
    monkeypatch.setattr(choosing, "is_capturing", lambda: False)
    kernel[(4,)](tensor(), tensor(), 8)
    assert len(bench.tuned) == 1
    monkeypatch.setattr(choosing, "is_capturing", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(4,)](tensor(), tensor(), 8)
    assert [launch["BLOCK"] for launch in bench.launches] == [64, 128, 128]


def test_space_is_made_on_first_use(bench: Bench) -> None:
    """A function that makes the space is called once, at the first launch, not when decorating."""
    calls: list[int] = []

    def make() -> dict[str, list[int]]:
        calls.append(1)
        return {"BLOCK": [64, 128]}

    kernel = tuned(space=make)
    assert calls == []
    for n in (8, 9):
        kernel[(4,)](tensor(), tensor(), n)
    assert calls == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either configs= or space="),
        ({"configs": [Config({})], "space": {"BLOCK": [1]}}, "give either configs= or space="),
        ({"space": AXES, "effort": "hard"}, "unknown effort 'hard': the efforts are quick, bal"),
        ({"space": AXES, "key": ["m"]}, "key 'm' is no parameter of add: they are x_ptr, y_ptr, n"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    """Options that do not fit are refused when decorating, in one line."""
    with pytest.raises(InputError, match=message):
        asm_autotune(**options)(add)


def test_decorated_kernel_keeps_its_name() -> None:
    """The name and the parameters of the kernel underneath show."""
    kernel = asm_autotune(space=AXES)(triton.heuristics({"BLOCK": lambda _: 64})(add))
    assert kernel.__name__ == "add"
    assert kernel.arg_names == ["x_ptr", "y_ptr", "n", "factor", "BLOCK"]
    assert kernel.best_config is None
