"""Other options for kernels that are decorated already."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.base.errors import InputError, MissError
from asmtune.runtime.decorator import autotuners, reconfigure
from tests.dispatch.host_gpu import EFFORT, HostGpu, copy

SPACE = {"BLOCK": [64, 128, 256], "num_warps": [4]}


def decorated(**options: Any) -> Any:
    """A kernel that copies; it times nothing and predicts nothing unless it is told to."""
    return asm_autotune(space=SPACE, key=["n"], effort=EFFORT, on_miss="raise", **options)(copy)


def launch(kernel: Any) -> None:
    x = torch.arange(64.0)
    kernel[lambda meta: (-(-64 // meta["BLOCK"]),)](x, torch.zeros(64), 64)


def test_small_problems_are_tuned_where_asked(gpu: HostGpu) -> None:
    """A kernel that refuses to tune, tunes after it was told to, by its fastest config."""
    kernel = decorated(skip_tuning_below_us=None)
    with pytest.raises(MissError):
        launch(kernel)
    reconfigure(kernel, on_miss="tune")
    launch(kernel)
    assert gpu.tuned == 1
    assert kernel.best_config.kwargs["BLOCK"] == 64
    assert kernel.options.choices["effort"] is EFFORT


def test_what_was_met_is_looked_up_anew(gpu: HostGpu) -> None:
    """Configs that the process remembers, planned launches included, are forgotten."""
    kernel = decorated(skip_tuning_below_us=None)
    reconfigure(kernel, on_miss="tune")
    launch(kernel)
    assert len(kernel.cache) == 1
    reconfigure(kernel, fallback={"BLOCK": 64})
    assert kernel.cache == {}
    launch(kernel)  # from the store
    assert (gpu.tuned, len(kernel.cache)) == (1, 1)


def test_all_kernels_of_a_module() -> None:
    """Kernels that a module names, or holds in dicts and lists, are changed, each once."""
    one, two, three = (decorated() for _ in range(3))
    module = ModuleType("kernels")
    vars(module).update(one=one, again=one, both={"a": one, "b": two}, listed=[three], size=3)
    assert autotuners(module) == [one, two, three]
    reconfigure(module, skip_tuning_below_us=None, on_miss="predict")
    assert [(k.options.skip_tuning_below_us, k.options.on_miss) for k in (one, two, three)] == [
        (None, "predict")
    ] * 3


def test_refused_changes() -> None:
    """What cannot be changed is refused by its name or value, and nothing has changed then."""
    kernel = decorated()
    before = kernel.options
    changes = {"on_mis": "tune", "restore_value": ["x_ptr"], "on_miss": "ask", "effort": "quik"}
    for name, value in changes.items():
        with pytest.raises(InputError, match=f"'{name}'|{value!r}"):
            reconfigure(kernel, **{name: value})
    assert kernel.options is before


def test_the_decorator_names_each_option_with_its_meaning() -> None:
    """It takes 24 keywords at most; each has a paragraph of its own in the docstring."""
    parameters = inspect.signature(asm_autotune).parameters
    assert len(parameters) <= 24
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())
    triton_own = inspect.signature(triton.autotune).parameters
    assert triton_own.keys() <= parameters.keys()
    arguments = (asm_autotune.__doc__ or "").partition("Args:")[2]
    assert all(f"\n        {name}: " in arguments for name in parameters)
