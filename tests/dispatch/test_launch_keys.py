"""Which launches share a key, and what the decorator does at the first of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.runtime import choosing
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.events import UntunedWarning
from tests.dispatch.test_torch_compile import SPACE, adder, check, decorated
from tests.dispatch.torch_kernels import add
from tests.dispatch.torch_support import Imagined


@pytest.fixture
def keys(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> Imagined:
    """A machine on which launches do nothing."""
    monkeypatch.setattr(add, "run", lambda *_, **__: None)
    return machine


def tensor(dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """A tensor of eight elements."""
    return torch.zeros(8, dtype=dtype)


OTHER_LAUNCHES: dict[str, Callable[[AsmAutotuner], Any]] = {
    "a key's value": lambda k: k[(4,)](tensor(), tensor(), tensor(), 9),
    "a dtype": lambda k: k[(4,)](tensor(), tensor(torch.bfloat16), tensor(), 8),
    "dtypes exchanged by keyword": lambda k: k[(4,)](
        out_ptr=tensor(), y_ptr=tensor(), x_ptr=tensor(torch.float32), n=8
    ),
    "no tensor": lambda k: k[(4,)](tensor(), None, tensor(), 8),
    "a descriptor": lambda k: k[(4,)](
        TensorDescriptor.from_tensor(torch.zeros(16, 16), [16, 16]), tensor(), tensor(), 8
    ),
}


@pytest.mark.parametrize("launch", OTHER_LAUNCHES.values(), ids=OTHER_LAUNCHES)
def test_what_makes_another_key(keys: Imagined, launch: Callable[[AsmAutotuner], Any]) -> None:
    """Another key value, or another dtype at any tensor, is tuned for itself."""
    kernel = decorated()
    kernel[(4,)](tensor(), tensor(), tensor(), 8)
    kernel[(4,)](x_ptr=tensor(), y_ptr=tensor(torch.float32), out_ptr=tensor(), n=8)
    launch(kernel)
    assert len(kernel.cache) == len(keys.tuned) == 3


def test_dtypes_of_views_are_part_of_the_key(keys: Imagined) -> None:
    """Descriptors of another dtype, and tensors read as another dtype, are other keys."""
    kernel = decorated()
    for dtype in (torch.float16, torch.bfloat16):
        view = TensorDescriptor.from_tensor(torch.zeros(16, 16, dtype=dtype), [16, 16])
        kernel[(4,)](view, tensor(), tensor(), 8)
    for kind in (tl.float8e5, tl.float8e4nv):
        kernel[(4,)](triton.reinterpret(tensor(torch.int8), kind), tensor(), tensor(), 8)
    assert [key.dtypes["x_ptr"] for key in keys.tuned] == ["fp16", "bf16", "fp8e5", "fp8e4nv"]


def test_capture_never_tunes(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a graph is captured an unknown key gets the fallback's config and one warning."""
    kernel = decorated(fallback=Config({"BLOCK": 64}))
    monkeypatch.setattr(choosing, "is_capturing", lambda: True)
    with pytest.warns(UntunedWarning, match="add at n=8.*CUDA graph.*BLOCK=64"):
        check(adder(kernel), 8)
    assert machine.tuned == []
    monkeypatch.setattr(choosing, "is_capturing", lambda: False)
    check(adder(kernel), 8)
    assert len(machine.tuned) == 1
    monkeypatch.setattr(choosing, "is_capturing", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(adder(kernel), 8)
    assert [launch["BLOCK"] for launch in machine.launches] == [64, 128, 128]


def test_space_is_made_on_first_use(keys: Imagined) -> None:
    """A function that makes the space is called once, at the first launch, not when decorating."""
    calls: list[int] = []

    def make() -> dict[str, list[int]]:
        calls.append(1)
        return {"BLOCK": [64, 128]}

    kernel = decorated(space=make)
    assert calls == []
    for n in (8, 9):
        kernel[(4,)](tensor(), tensor(), tensor(), n)
    assert calls == [1]


def test_bad_options() -> None:
    """Options that do not fit are refused when decorating, by the name or the value."""
    for options, named in (
        ({}, "configs="),
        ({"configs": [Config({})], "space": {"BLOCK": [1]}}, "configs="),
        ({"space": SPACE, "effort": "hard"}, "'hard'"),
        ({"space": SPACE, "key": ["m"]}, "'m'"),
    ):
        with pytest.raises(InputError, match=named):
            asm_autotune(**options)(add)


def test_decorated_kernel_keeps_its_name() -> None:
    """The name and the parameters of the kernel underneath show."""
    kernel = asm_autotune(space=SPACE)(triton.heuristics({"BLOCK": lambda _: 64})(add))
    assert kernel.__name__ == "add"
    assert kernel.arg_names == ["x_ptr", "y_ptr", "out_ptr", "n", "BLOCK"]
    assert kernel.best_config is None
