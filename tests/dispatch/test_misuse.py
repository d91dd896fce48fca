"""Misuse of the decorator, of `tune` and of `patch`: a TypeError at once, with a right form."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import triton
import triton.language as tl

import asmtune
from asmtune.base.errors import InputError
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.runtime.decorator import asm_autotune

SPACE = {"BLOCK": [32, 64]}


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs."""


def plain(x_ptr, n, BLOCK):
    """Lacks `triton.jit`."""


class Thing:
    """No kernel."""


def endless() -> Iterator[triton.Config]:
    """Yield configs for ever."""
    while True:
        yield triton.Config({"BLOCK": 32})


decorated = asm_autotune(space=SPACE)(add)
by_triton = triton.autotune([triton.Config({"BLOCK": 32})], key=[])(add)
with_rules = triton.heuristics({"BLOCK": lambda _: 32})(add)
problem = Problem(add, {}, (1,))

NO_CONFIGS: dict[str, Any] = {
    "kernel": add,
    "decorated kernel": decorated,
    "kernel of triton.autotune": by_triton,
    "kernel with heuristics": with_rules,
    "plain function": plain,
    "class": Thing,
    "lambda": lambda x: x,
    "builtin": len,
    "text": "add",
    "bytes": b"add",
    "number": 5,
    "one config": triton.Config({"BLOCK": 32}),
    "generator": endless(),
    "function that yields": endless,
    "iterator": iter([triton.Config({"BLOCK": 32})]),
    "axes": SPACE,
    "space": Space(SPACE),
    "numbers": [1, 2],
    "nothing": [None],
    "kernels": [add],
    "set": {1, 2},
    "module": sys,
}
NO_KERNELS: dict[str, Any] = {
    "plain function": plain,
    "class": Thing,
    "Triton's class": triton.JITFunction,
    "lambda": lambda x: x,
    "builtin": len,
    "text": "add",
    "nothing": None,
    "instance": Thing(),
    "partial": functools.partial(plain),
    "module": sys,
    "list": [add],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "kernel as space": {"space": add},
    "class as space": {"space": Thing},
    "text as space": {"space": "BLOCK"},
    "number as space": {"space": 3},
    "generator as space": {"space": endless()},
    "text as key": {"key": "n"},
    "number as key": {"key": 5},
    "kernel as key": {"key": add},
    "function as key": {"key": lambda n: n},
    "number in key": {"key": [5]},
    "kernel as reset_to_zero": {"reset_to_zero": add},
    "generator as restore_value": {"restore_value": endless()},
    "number as reset_to_zero": {"reset_to_zero": 5},
    "text as restore_value": {"restore_value": "x_ptr"},
    "kernel as prune_configs_by": {"prune_configs_by": add},
    "text as perf_model": {"prune_configs_by": {"perf_model": "x"}},
    "text as early_config_prune": {"prune_configs_by": {"early_config_prune": "x"}},
    "kernel as heuristic": {"heuristic": add},
    "number as heuristic": {"heuristic": 5},
    "kernel as small": {"small": add},
    "list as small": {"small": [1]},
    "text as nearest": {"nearest": "no"},
    "text as pre_hook": {"pre_hook": "x"},
    "kernel as devices": {"devices": add},
    "text as devices": {"devices": "01"},
    "list as on_miss": {"on_miss": ["tune"]},
}
NO_PROBLEMS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: asmtune.tune(add, SPACE),
    "decorated kernel": lambda: asmtune.tune(decorated),
    "name": lambda: asmtune.tune("softmax"),
    "kernels": lambda: asmtune.tune(problems=[problem, add], space=SPACE),
    "kernel as problems": lambda: asmtune.tune(problems=add, space=SPACE),
    "problem as problems": lambda: asmtune.tune(problems=problem, space=SPACE),
    "generator": lambda: asmtune.tune(problems=endless(), space=SPACE),
    "no space": lambda: asmtune.tune(problem),
    "kernel as space": lambda: asmtune.tune(problem, add),
    "text as space": lambda: asmtune.tune(problem, "BLOCK"),
    "kernel for prune_report": lambda: asmtune.prune_report(add),
    "decorated kernel for prune_report": lambda: asmtune.prune_report(decorated),
    "number for roofline": lambda: asmtune.roofline(5),
    "kernel for roofline": lambda: asmtune.roofline([add]),
    "kernel for bench": lambda: asmtune.bench(decorated),
}
NO_PATCHES: dict[str, Callable[[], Any]] = {
    "kernel": lambda: asmtune.patch(add),
    "function": lambda: asmtune.patch(plain),
    "text": lambda: asmtune.patch("quick"),
    "options": lambda: asmtune.patch({"effort": "quick"}),
    "over a kernel": lambda: asmtune.patch()(add),
    "over a decorated kernel": lambda: asmtune.patch()(by_triton),
    "over a class": lambda: asmtune.patch()(Thing),
}


def refusal(misuse: Callable[[], Any]) -> str:
    """The line of the TypeError that a misuse raises; it is one of the library's."""
    with pytest.raises(TypeError) as raised:
        misuse()
    assert isinstance(raised.value, InputError)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


@pytest.mark.parametrize("name", NO_CONFIGS)
def test_no_configs(name: str) -> None:
    """What is no list of configs, such as the kernel where parentheses lack, is refused at once."""
    line = refusal(lambda: asm_autotune(NO_CONFIGS[name]))
    assert line.startswith("asm_autotune: configs")
    assert "@asm_autotune(" in line


def test_no_parentheses() -> None:
    """`@asm_autotune` without parentheses names the kernel, and shows the form with them."""
    line = refusal(lambda: asm_autotune(add))
    assert "the kernel 'add'" in line
    assert '@asm_autotune(space={"BLOCK": [128, 256]}, key=["n"])' in line
    assert "@triton.jit" in line


@pytest.mark.parametrize("name", NO_KERNELS)
def test_no_kernel(name: str) -> None:
    """What is no Triton kernel, such as a function with `@triton.jit` above, is refused at once."""
    line = refusal(lambda: asm_autotune(space=SPACE)(NO_KERNELS[name]))
    assert "is not a Triton kernel" in line
    assert "put @triton.jit below @asm_autotune" in line


@pytest.mark.parametrize(
    ("kernel", "by"), [(decorated, "asm_autotune"), (by_triton, "triton.autotune")]
)
def test_decorated_twice(kernel: Any, by: str) -> None:
    """A kernel that has an autotuner, also below heuristics, gets no second one."""
    above = triton.heuristics({"n": lambda _: 32})(kernel)
    for one in (kernel, above):
        line = refusal(lambda one=one: asm_autotune(space=SPACE)(one))
        assert f"'add' has @{by} already" in line


@pytest.mark.parametrize("name", OPTIONS)
def test_no_value_of_an_option(name: str) -> None:
    """A value that no option takes is refused when decorating."""
    options = {"space": SPACE, **OPTIONS[name]}
    option = next(iter(OPTIONS[name]))
    assert option in refusal(lambda: asm_autotune(**options)(add))


@pytest.mark.parametrize("name", NO_PROBLEMS)
def test_no_problem(name: str) -> None:
    """What is no problem, space or kernel module is refused before a GPU is looked for."""
    refusal(NO_PROBLEMS[name])


@pytest.mark.parametrize("name", NO_PATCHES)
def test_no_patch(name: str) -> None:
    """`patch` takes keywords alone, and decorates functions alone."""
    assert "with asmtune.patch(" in refusal(NO_PATCHES[name])


def test_patch_checks_its_options_at_once() -> None:
    """An unknown option is refused when the context is made, not when it is entered."""
    with pytest.raises(InputError, match="'efort' is no option"):
        asmtune.patch(efort="quick")


def test_patch_decorates_functions() -> None:
    """A function under `@patch()` runs with it, as often as it is called."""
    runs = []

    @asmtune.patch()
    def program() -> None:
        """Decorate a kernel inside."""
        tuned = triton.autotune([triton.Config({"BLOCK": 32})], key=[])(add)
        runs.append(type(tuned).__mro__)

    program()
    program()
    assert len(runs) == 2
    assert all(any(kind.__name__ == "AsmAutotuner" for kind in mro) for mro in runs)


def test_a_decorated_kernel_is_no_list() -> None:
    """A loop over a decorated kernel raises; by `[]` alone it would never end."""
    with pytest.raises(TypeError, match="not iterable"):
        iter(decorated)
