"""Misuse of the decorator, of `tune` and of `patch`: a TypeError at once, with a right form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import triton
import triton.language as tl

import asmtune
from asmtune.base.errors import InputError
from asmtune.core.config import Config
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
    "kernel with heuristics": with_rules,
    "plain function": plain,
    "class": Thing,
    "text": "add",
    "number": 5,
    "one config": triton.Config({"BLOCK": 32}),
    "generator": endless(),
    "axes": SPACE,
    "space": Space(SPACE),
    "numbers": [1, 2],
    "nothing": [None],
    "a later number": [Config({}), 3],
    "values without a hash": [triton.Config({"BLOCK": [1, 2]})],
    "values without names": [triton.Config(5)],
}
NO_KERNELS = (plain, Thing, triton.JITFunction, len, "add", None, functools.partial(plain), [add])
OPTIONS: list[tuple[str, Any]] = [
    *[("space", value) for value in (add, Thing, "BLOCK", 3, endless())],
    *[("key", value) for value in ("n", 5, add, lambda n: n, [5])],
    *[("reset_to_zero", value) for value in (add, 5)],
    *[("restore_value", value) for value in (endless(), "x_ptr")],
    *[("prune_configs_by", value) for value in (add, {"perf_model": "x"}, {"top": 1})],
    *[("fallback", value) for value in (add, 5)],
    *[("skip_tuning_below_us", value) for value in (add, [1], "auto", -1.0)],
    *[("use_nearest_shape", "no"), ("pre_hook", "x"), ("on_miss", ["tune"]), ("check", True)],
]
NO_PROBLEMS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: asmtune.tune(add, SPACE),
    "name": lambda: asmtune.tune("softmax"),
    "kernels": lambda: asmtune.tune(problems=[problem, add], space=SPACE),
    "problem as problems": lambda: asmtune.tune(problems=problem, space=SPACE),
    "generator": lambda: asmtune.tune(problems=endless(), space=SPACE),
    "no space": lambda: asmtune.tune(problem),
    "text as space": lambda: asmtune.tune(problem, "BLOCK"),
    "kernel for prune_report": lambda: asmtune.prune_report(add),
    "kernel for roofline": lambda: asmtune.roofline([add]),
    "kernel for bench": lambda: asmtune.bench(decorated),
}
NO_PATCHES: dict[str, Callable[[], Any]] = {
    "kernel": lambda: asmtune.patch(add),
    "options": lambda: asmtune.patch({"effort": "quick"}),
    "over a kernel": lambda: asmtune.patch()(add),
    "over a decorated kernel": lambda: asmtune.patch()(by_triton),
    "over a class": lambda: asmtune.patch()(Thing),
}


def name_of(value: Any) -> str:
    """Name a case alike in every process."""
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


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
    assert name != "kernel" or "the kernel 'add'" in line


@pytest.mark.parametrize("kernel", NO_KERNELS, ids=name_of)
def test_no_kernel(kernel: Any) -> None:
    """What is no Triton kernel, such as a function with `@triton.jit` above, is refused at once."""
    line = refusal(lambda: asm_autotune(space=SPACE)(kernel))
    assert "is not a Triton kernel: put @triton.jit below @asm_autotune" in line


@pytest.mark.parametrize(
    ("kernel", "by"), [(decorated, "asm_autotune"), (by_triton, "triton.autotune")]
)
def test_decorated_twice(kernel: Any, by: str) -> None:
    """A kernel that has an autotuner, also below heuristics, gets no second one."""
    above = triton.heuristics({"n": lambda _: 32})(kernel)
    for one in (kernel, above):
        line = refusal(lambda one=one: asm_autotune(space=SPACE)(one))
        assert f"'add' has @{by} already" in line


@pytest.mark.parametrize(("option", "value"), OPTIONS, ids=name_of)
def test_no_value_of_an_option(option: str, value: Any) -> None:
    """A value that no option takes is refused when decorating."""
    options = {"space": SPACE, option: value}
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
