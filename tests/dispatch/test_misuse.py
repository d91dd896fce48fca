"""Misuse of the decorator, of `tune` and of `patch`: a TypeError at once, with a right form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
above = triton.heuristics({"n": lambda _: 32})(decorated)
with_rules = triton.heuristics({"BLOCK": lambda _: 32})(add)
problem = Problem(add, {}, (1,))

NO_CONFIGS: list[Any] = [
    *(add, decorated, with_rules, plain, Thing, "add", 5, triton.Config({"BLOCK": 32}), endless()),
    *(SPACE, Space(SPACE), [1, 2], [None], [Config({}), 3]),
    *([triton.Config({"BLOCK": [1, 2]})], [triton.Config(5)]),
]
NO_KERNELS = (plain, Thing, triton.JITFunction, len, "add", None, partial(plain), [add])
OPTIONS: list[tuple[str, Any]] = [
    *[("space", value) for value in (add, Thing, "BLOCK", 3, endless())],
    *[("reset_to_zero", value) for value in (add, 5, "x_ptr")],
    *[("restore_value", value) for value in (endless(), "x_ptr")],
    *[("prune_configs_by", value) for value in (add, {"perf_model": "x"}, {"top": 1})],
    *[("fallback", value) for value in (add, 5)],
    *[("skip_tuning_below_us", value) for value in (add, [1], "auto", -1.0)],
    *[("pre_hook", "x"), ("on_miss", ["tune"]), ("check", True)],
]
MISUSES: dict[str, tuple[list[Callable[[], Any]], str]] = {
    "no configs": ([partial(asm_autotune, value) for value in NO_CONFIGS], "asm_autotune: configs"),
    "no kernel": (
        [partial(asm_autotune(space=SPACE), value) for value in NO_KERNELS],
        "is not a Triton kernel: put @triton.jit below @asm_autotune",
    ),
    "decorated twice": (
        [partial(asm_autotune(space=SPACE), value) for value in (decorated, by_triton, above)],
        "'add' has @",
    ),
    "options": (
        [partial(asm_autotune, **{"space": SPACE, name: value}) for name, value in OPTIONS],
        "",
    ),
    "keys": (
        [
            partial(asm_autotune(space=SPACE, key=value), add)
            for value in ("n", 5, add, lambda n: n, [5])
        ],
        "key",
    ),
    "problems": (
        [
            lambda: asmtune.tune(add, SPACE),
            lambda: asmtune.tune(problem),
            lambda: asmtune.tune(problem, "BLOCK"),
            lambda: asmtune.prune_report(add),
            lambda: asmtune.roofline([add]),
            lambda: asmtune.bench(decorated),
        ],
        "",
    ),
    "patches": (
        [
            lambda: asmtune.patch(add),
            lambda: asmtune.patch({"effort": "quick"}),
            lambda: asmtune.patch()(by_triton),
            lambda: asmtune.patch()(Thing),
        ],
        "with asmtune.patch(",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_a_type_error_of_one_line(name: str) -> None:
    """Each raises a TypeError at once that is one of the library's, in one short line."""
    misuses, said = MISUSES[name]
    lines = []
    for misuse in misuses:
        with pytest.raises(TypeError) as raised:
            misuse()
        assert isinstance(raised.value, InputError)
        lines.append(str(raised.value))
    assert [line for line in lines if said not in line or "\n" in line or len(line) > 400] == []


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
