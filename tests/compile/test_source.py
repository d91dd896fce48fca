"""The identity of a kernel's source: what changes it and what does not."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from asmtune.compile.source import source_digest, text_of

SOURCE = """
import triton
import triton.language as tl
import {owner} as owner

WIDTH: tl.constexpr = tl.constexpr(4)
n = 5
acc = 7

@triton.jit
def inner(x):
    return x * WIDTH

@triton.jit
def helper(x):
    return inner(x) + owner.OFFSET

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    acc = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr, helper(acc) + n)
"""

Edit = Callable[[str], str]

NUMBERS = itertools.count()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Make a module of the source, edited, beside a module `owner` with an OFFSET."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(
        edit: Edit = lambda text: text, offset: int = 1, owner: str = "offsets_of_kernel"
    ) -> ModuleType:
        number = next(NUMBERS)
        owner = f"{owner}_{number}"
        (tmp_path / f"{owner}.py").write_text(
            f"from types import ModuleType\nOFFSET = {offset}\n"
            f"inner = ModuleType('inner')\ninner.OFFSET = OFFSET\n"
        )
        path = tmp_path / f"kernel_{number}.py"
        path.write_text(edit(SOURCE.format(owner=owner)))
        # One name for all, since the digest holds the module's.
        spec = importlib.util.spec_from_file_location("edited", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return make


def replaced(old: str, new: str) -> Edit:
    """An edit of one text, which must be there."""

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


UNCHANGED = {
    "nothing": lambda text: text,
    "lines above": lambda text: "# a comment\n\n\n" + text,
    "a comment inside": replaced("    acc =", "    # loads\n    acc ="),
    "a docstring": replaced("    acc =", '    """Loads."""\n    acc ='),
    "a docstring of what it calls": replaced("    return x *", "    r'Scale.'\n    return x *"),
    "layout": replaced("helper(acc) + n)", "helper( acc )+n )"),
    "another global": lambda text: text + "\nUNUSED = 3\n",
    "a global hidden by a parameter": replaced("n = 5", "n = 6"),
    "a global hidden by a variable": replaced("acc = 7", "acc = 8"),
}

CHANGED = {
    "the body": replaced("helper(acc) + n", "helper(acc) - n"),
    "a parameter": replaced("x_ptr, n, BLOCK: tl.constexpr", "x_ptr, n, BLOCK"),
    "what it calls": replaced("inner(x) + owner", "inner(x) - owner"),
    "what that calls": replaced("x * WIDTH", "x + WIDTH"),
    "a global constexpr": replaced("constexpr(4)", "constexpr(8)"),
    "a string": replaced("    acc =", "    tl.static_assert(BLOCK, 'a block')\n    acc ="),
}


@pytest.mark.parametrize("edit", UNCHANGED.values(), ids=UNCHANGED)
def test_what_leaves_the_digest(load: Callable[..., ModuleType], edit: Edit) -> None:
    """An edit that cannot change the binary leaves the digest."""
    assert source_digest(load(edit).kernel) == source_digest(load().kernel)


@pytest.mark.parametrize("edit", CHANGED.values(), ids=CHANGED)
def test_what_changes_the_digest(load: Callable[..., ModuleType], edit: Edit) -> None:
    """An edit of the kernel, of what it calls or of a global it reads changes the digest."""
    assert source_digest(load(edit).kernel) != source_digest(load().kernel)


@pytest.mark.parametrize("owner", ["offsets_of_kernel", "triton_offsets"])
@pytest.mark.parametrize("path", ["owner.OFFSET", "owner.inner.OFFSET"])
def test_attribute_of_another_module(
    owner: str, path: str, load: Callable[..., ModuleType]
) -> None:
    """A number that the kernel takes from another module, or a module of it, counts."""
    edit = replaced("owner.OFFSET", path)
    one, other = (load(edit, offset, owner).kernel for offset in (1, 2))
    assert source_digest(one) != source_digest(other)


def test_recursion_ends(load: Callable[..., ModuleType]) -> None:
    """Functions that call each other are read once each."""
    kernel = load(replaced("return x * WIDTH", "return helper(x)")).kernel
    assert len(source_digest(kernel)) == 64


def test_docstring_alone() -> None:
    """Functions, classes and modules that are only docstrings have the text of empty ones."""
    for opening in ("def f(x):", "async def f(x):", "class A:"):
        assert text_of(f"{opening}\n    'Do nothing.'") == f"{opening}\n    pass"
    assert text_of("'Nothing.'") == ""
    nested = "'A module.'\nclass A:\n    'A class.'\n    def f(x):\n        'A method.'\n"
    assert text_of(nested) == "class A:\n\n    def f(x):\n        pass"


def test_text_does_not_depend_on_python() -> None:
    """Quotes inside f-strings, which versions of Python write differently, do not count.

    The text is that of Python 3.11, 3.12 and 3.13.
    """
    source = """def f(x, *rest):
        tl.static_assert(x, f"{x!r:>{W}} of {', '.join(rest)}, it's {d['a']}")
        return g(*(x, 1.0), k=1e-05, **{'a': -1})
    """
    assert text_of(source) == (
        "def f(x, *rest):\n"
        "    tl.static_assert(x, ((x, 114, ('>', (W, -1, None))), ' of ', "
        "(', '.join(rest), -1, None), \", it's \", (d['a'], -1, None)))\n"
        "    return g(*(x, 1.0), k=1e-05, **{'a': -1})"
    )
