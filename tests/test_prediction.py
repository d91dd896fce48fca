"""`asmtune.predict`: the ranking of a launch, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import asmtune
from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.core.hardware.model import Target
from tests.tuning_support import add, problem, space


@pytest.mark.slow(seconds=10)
def test_predict_from_python(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A decorated kernel's space is ranked as one that is given, by name or by position."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    made, own = problem(1 << 20), space(warps=(4, 8))
    arguments = dict(made.arguments)
    decorated = asmtune.asm_autotune(space=own, key=["n"])(add)
    found = asmtune.predict(decorated, arguments, made.grid, target=target)
    assert {one.config for one in found} == set(own.configs(n=1 << 20))
    assert all(one.us > 0 for one in found)
    plain = asmtune.predict(add, (*arguments.values(),), made.grid, space=own, target=target)
    assert plain == found
    with pytest.raises(InputError, match=r"add has no space of its own: give space="):
        asmtune.predict(add, arguments, made.grid, target=target)
    with pytest.raises(InputError, match=r"9 arguments, and add has \d parameters"):
        asmtune.predict(decorated, (1,) * 9, made.grid, target=target)
    with pytest.raises(ArgumentTypeError, match=r"predict: 3 is no kernel"):
        asmtune.predict(3, (), made.grid, target=target)
