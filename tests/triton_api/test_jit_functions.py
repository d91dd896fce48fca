"""Contracts of Triton's kernels, of their decorators, and of its autotuner."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from asmtune.base.errors import ProblemError
from asmtune.kernels import tiled_matmul
from asmtune.triton_api import autotuners, jit_functions
from tests import gluon_kernels
from tests.sample_kernels import row_sum
from tests.triton_api import tiny_kernels
from tests.triton_api.tiny_kernels import autotuned, ruled, tiny, tuned

ALL = [tiny, ruled, autotuned, gluon_kernels.scale]


@pytest.mark.parametrize("kernel", ALL)
def test_kernels_are_known_under_decorators(kernel: Any) -> None:
    """A kernel is one under any decorator, and has one JIT function and one Python function."""
    inner = jit_functions.jit_function(kernel)
    assert jit_functions.is_kernel(kernel)
    assert type(inner).__name__ in ("JITFunction", "GluonJITFunction")
    assert jit_functions.innermost(kernel) is inner
    assert jit_functions.is_jit_function(inner)
    assert jit_functions.is_jit_function(kernel) == (kernel is inner)
    python = jit_functions.python_function(kernel)
    assert inspect.isfunction(python)
    assert jit_functions.plain_name(kernel) == python.__name__
    assert jit_functions.is_gluon(kernel) == (kernel is gluon_kernels.scale)


@pytest.mark.parametrize("value", [None, 3, triton.JITFunction, triton, len, [tiny]])
def test_other_values_are_no_kernels(value: Any) -> None:
    """Classes, modules, functions and lists are no kernels, and have no JIT function."""
    assert not jit_functions.is_kernel(value)
    with pytest.raises(ProblemError, match="not a Triton kernel"):
        jit_functions.jit_function(value)


def test_parameters_of_a_kernel() -> None:
    """Parameters come in order, with the constexprs and the defaults among them."""
    names = [parameter.name for parameter in jit_functions.parameters(tiny)]
    assert names == ["x_ptr", "n", "scale", "BLOCK"]
    assert jit_functions.constexprs(tiny) == {"BLOCK"}
    assert jit_functions.defaults(tiny) == {"scale": 2.0, "BLOCK": 16}


def test_sources_and_what_they_see() -> None:
    """The source begins at `def`; functions, constexprs and plain globals are seen by name."""
    assert jit_functions.source_text(tiny).startswith("def tiny(")
    seen = jit_functions.variables_seen(tiny)
    assert seen["twice"] is tiny_kernels.twice
    assert seen["LIMIT"] == 7
    assert jit_functions.is_device_function(seen["twice"])
    assert not jit_functions.is_device_function(seen["FACTOR"])


def test_globals_that_triton_compares() -> None:
    """After a compile Triton compares the constexpr that the kernel reads, in its module."""
    _ = tiny.cache_key
    assert (vars(tiny_kernels), "FACTOR") in jit_functions.globals_read(tiny)


def test_rules_of_heuristics() -> None:
    """Rules are named, and called with the launch's arguments; a stranger's layer hides them."""
    ((name, rule),) = jit_functions.heuristic_rules(ruled)
    assert (name, rule({"n": 8})) == ("BLOCK", 16)
    assert autotuners.plain_rules(ruled) == ((name, rule),)
    assert autotuners.plain_rules(tuned) == ()
    assert autotuners.plain_rules(autotuned) is None


def test_an_autotuner_among_decorators() -> None:
    """The autotuner is found, and taken away."""
    above = triton.heuristics({"n": lambda _: 1})(autotuned)
    assert autotuners.autotuner_in(above) is autotuned
    assert autotuners.autotuner_in(ruled) is autotuners.autotuner_in(7) is None
    assert autotuners.without_autotuner(autotuned) is tuned
    assert autotuners.without_autotuner(above).fn is tuned
    assert above.fn is autotuned


def test_what_an_autotuner_would_time() -> None:
    """The configs are those that `prune_configs_by` leaves; of one, it is not asked."""

    def small(configs: list[Any], arguments: Any, **_: Any) -> list[Any]:
        return [one for one in configs if one.kwargs["BLOCK"] <= arguments["n"]]

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]
    pruned = triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": small})(
        tiny
    )
    assert autotuners.searched_configs(pruned, (None, 32), {}) == configs[:2]
    assert getattr(pruned, "nargs", None) is None
    assert autotuners.searched_configs(triton.autotune(configs[:1], key=[])(tiny), (), {}) is None
    assert autotuners.searched_configs(tiny, (), {}) is None


def test_the_autotuner_that_prunes() -> None:
    """A function of `prune_configs_by` finds the autotuner that calls it, and none elsewhere."""
    found = []

    def prune(configs: list[Any], _: Any, **__: Any) -> list[Any]:
        found.append(autotuners.pruning_autotuner(prune))
        return configs

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    tuner = triton.autotune(configs, key=[], prune_configs_by={"early_config_prune": prune})(tiny)
    autotuners.searched_configs(tuner, (None, 32), {})
    prune(configs, {})
    assert found == [tuner, None]


def launches(x: torch.Tensor) -> None:
    """Launch a kernel."""
    tiny[(1,)](x, x.numel(), BLOCK=tl.constexpr(16))


def calls(x: Any, n: Any) -> None:
    """Call a kernel as a kernel does."""
    tiny(x, n, 2.0, 16)


def test_sources_of_kernels_and_what_launches() -> None:
    """A plain function that uses the language is a kernel's source, unless it launches."""
    sources = [tiny.fn, gluon_kernels.scale.fn, calls]
    assert all(map(jit_functions.is_source_of_kernel, sources))
    assert not jit_functions.is_source_of_kernel(launches)
    assert not jit_functions.is_source_of_kernel(test_rules_of_heuristics)


def test_products_and_loops_of_a_kernel() -> None:
    """They are found in the kernel and in the functions that it calls."""
    assert jit_functions.products_and_loops(tiny) == (False, False)
    assert jit_functions.products_and_loops(tiled_matmul.kernel) == (True, True)
    assert jit_functions.products_and_loops(row_sum) == (False, True)


def test_options_of_an_autotuner() -> None:
    """What a program gave `triton.autotune` is read back, but for configs and key."""
    given = autotuners.given_options(autotuned)
    assert given.keys() >= {"prune_configs_by", "pre_hook", "post_hook", "cache_results"}
    assert (given["reset_to_zero"], given["restore_value"]) == (["x_ptr"], [])
    assert given["prune_configs_by"] is given["pre_hook"] is None
    pruning = {"perf_model": len, "top_k": 3, "early_config_prune": max}
    other = triton.autotune(
        tiny_kernels.CONFIGS, ["n"], prune_configs_by=pruning, do_bench=min, pre_hook=print
    )(tuned)
    read = autotuners.given_options(other)
    assert read["prune_configs_by"] == pruning
    assert (read["do_bench"], read["pre_hook"]) == (min, print)


def test_replaced_parts_of_an_autotuner() -> None:
    """A subclass or an instance that replaces a part of the tuning is noticed."""

    class Own(autotuners.Autotuner):  # type: ignore[misc]
        def prune_configs(self, kwargs: Any) -> Any:
            return super().prune_configs(kwargs)

    assert not autotuners.has_own_parts(autotuned)
    assert autotuners.has_own_parts(object.__new__(Own))
    changed = triton.autotune(tiny_kernels.CONFIGS, key=[])(tuned)
    changed._bench = print
    assert autotuners.has_own_parts(changed)


def test_the_key_of_an_autotuners_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is what Triton itself keeps a launch's config under."""
    one = triton.autotune(tiny_kernels.CONFIGS, key=["n"])(tuned)
    monkeypatch.setattr(type(one), "_bench", lambda *_, **__: [1.0, 1.0, 1.0])
    monkeypatch.setattr(triton.JITFunction, "run", lambda *_, **__: None)
    tensor = torch.zeros(16, dtype=torch.float16)
    one[(1,)](tensor, n=16)
    assert [*one.cache] == [autotuners.launch_key(one, (tensor,), {"n": 16})]


def test_what_the_user_hears_of_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The knob says if the user wants to read of tuned keys."""
    assert not autotuners.prints_tuning()
    monkeypatch.setattr(knobs.autotuning, "print", True)
    assert autotuners.prints_tuning()
