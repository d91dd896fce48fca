"""Arguments of a host function, as the command line has them: a text each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.base.errors import InputError
from asmtune.runtime.offline.host_arguments import parse_arguments


def host(x: Any, y: float, n: int = 3, *rest: int, **more: Any) -> None:
    """Take parameters of every kind."""


def plain(x: Any, y: float, n: int = 3) -> None:
    """Take what it names."""


def test_texts_become_arguments() -> None:
    """Tensors have no memory, their sizes may be other arguments', and defaults are filled in."""
    texts = ["x=fp16[n,4].T", "y=2.5", "n=8"]
    for function in (host, plain):
        x, *others = parse_arguments(function, texts, "f").args
        assert (x.shape, x.stride(), x.dtype) == ((4, 8), (1, 4), torch.float16)
        assert x.is_meta
        assert others == [2.5, 8]
    made = parse_arguments(host, [*texts[:2], "n=5", "rest=[1, 2]", "scale=0.5"], "f")
    assert (made.args[1:], made.kwargs) == ((2.5, 5, 1, 2), {"scale": 0.5})
    made = parse_arguments(plain, ["x=fp16[rows, 2]", "rows=9", "y=1"], "f")
    assert (made.args[0].shape, made.args[1:], made.kwargs) == ((9, 2), (1, 3), {})


@pytest.mark.parametrize("texts", [["x=1"], ["x=1", "y=2", "m=3"], ["x=1", "y=2", "y=3"], ["x"]])
def test_texts_that_do_not_fit(texts: list[str]) -> None:
    """What is missing, unknown, given twice or no pair is refused in one line."""
    with pytest.raises(InputError) as raised:
        parse_arguments(plain, texts, "f")
    assert "\n" not in str(raised.value)
