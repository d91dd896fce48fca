"""Files of shapes: what they say, and what is wrong in one is named by its line."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.inputs.shapes import read_shapes, shapes_of
from asmtune.core.kernel_module import KernelModule

MODULE = KernelModule(
    name="mine",
    kernel=SimpleNamespace(),
    space=lambda: pytest.fail("not asked for"),
    problem=lambda *_: pytest.fail("not asked for"),
    shapes=({"M": 1, "N": 2}, {"M": 3, "N": 4}),
    dtypes=("fp16",),
)


def refused(path: Path) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(InputError) as caught:
        shapes_of(MODULE, (path,))
    assert "\n" not in str(caught.value)
    return str(caught.value)


shape = st.fixed_dictionaries({"M": st.integers(-5, 2**40), "N": st.booleans()})


@given(shapes=st.lists(shape, min_size=1, max_size=5))
def test_shapes_are_read_in_order(
    shapes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A line is a shape, unless it is empty or a remark."""
    lines = (", ".join(f"{name} = {value}" for name, value in one.items()) for one in shapes)
    path = tmp_path_factory.mktemp("forms") / "shapes.txt"
    path.write_text("# sizes\n" + "  # why\n\n".join(lines))
    assert [read for _, read in read_shapes(path)] == shapes


def test_what_is_tuned(tmp_path: Path) -> None:
    """Shapes are tuned once each; without any the module's own are, and one must be given else."""
    path = tmp_path / "shapes.txt"
    path.write_text("M=1,N=2\nN=2,M=1\nM=5,N=2\n")
    found = shapes_of(MODULE, ("M=5,N=2", "M=7,N=2", path))
    assert found == [{"M": 5, "N": 2}, {"M": 7, "N": 2}, {"M": 1, "N": 2}]
    assert shapes_of(MODULE, ()) == [{"M": 1, "N": 2}, {"M": 3, "N": 4}]
    bare = KernelModule("mine", None, MODULE.space, MODULE.problem, (), ("fp16",))
    with pytest.raises(InputError, match="mine has no SHAPES: give --shape or --shapes"):
        shapes_of(bare, ())
    for name, says in (("absent.txt", "No such file"), ("", "Is a directory")):
        with pytest.raises(InputError, match=says):
            shapes_of(MODULE, (tmp_path / name,))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.txt", "M=1\n", "line 1: kernel mine: the shape lacks N"),
        ("a.txt", "# none\n", "it holds no shape; a file of shapes has a line"),
        ("a.txt", "M=1,N=2\n\nM=1,N\n", "line 3: 'N' is not NAME=VALUE"),
        ("a.txt", "M=1,N=2\nM=1,M=2\n", "line 2: M is given twice"),
        ("a.txt", "M=1 N=2\n", "line 1: '1 N=2' is no value; write commas between NAME=VALUE"),
        ("a.txt", "\udcff\udcfe", "no text: invalid start byte"),
    ],
)
def test_what_is_wrong(name: str, text: str, says: str, tmp_path: Path) -> None:
    """A line of the wrong form, or a shape that does not fit the kernel, is named."""
    path = tmp_path / name
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(InputError) as caught:
        shapes_of(MODULE, (path,))
    assert re.fullmatch(f"--shapes {path}.*{re.escape(says)}.*", str(caught.value))
