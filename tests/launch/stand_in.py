"""Autotuned kernels whose launches come to a driver that takes notes: no GPU, and no compiler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.core.config import Config
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.launch.planning import reads_tensors
from asmtune.runtime.replay_calls import PreparedFunction

_POINTER, _INT64, _FLOAT64, _MAP, _EXTENT = 0, 4, 10, 11, 14


def plan_of_launch(part: Any, tuner: AsmAutotuner, given: dict[str, Any], **facts: Any) -> Any:
    """Make the plan that a launch would have: every parameter in 8 bytes, in its order."""
    names = tuner.arg_names
    chosen = facts.pop("config", Config({name: 1 for name in names if name not in given}))
    if facts.get("hook") is not None:
        facts["hook"](given | chosen.all_kwargs())
    slots, values, described = [], [], []
    for index, param in enumerate(tuner._function.params):
        value = given.get(param.name)
        values.append(part.GIVEN if param.name in given else chosen.kwargs.get(param.name))
        if param.is_constexpr or value is None:
            continue
        if isinstance(value, TensorDescriptor):
            axes = range(len(value.shape))
            slots += [(_MAP, index, 0), *((_EXTENT, index, axis) for axis in axes)]
            block = tuple(value.block_shape)
            described.append((index, block, None, (3, 2, 6, block, False)))
            continue
        is_float = isinstance(value, float)
        kind = _POINTER if isinstance(value, torch.Tensor) else _FLOAT64 if is_float else _INT64
        slots.append((kind, index, 0))
    slots += [(_POINTER, -1, 0), (_POINTER, -1, 0)]
    rest = (facts.pop("relay", print), facts.pop("between", ()), facts.pop("hook", None))
    handle, guards = facts.pop("function", 4711), facts.pop("guards", ())
    plan = (handle, 128, 0, tuple(slots) if handle else (), tuple(values), "kernel", chosen, guards)
    scratch = facts.pop("scratch", (0, 1, None))
    return part.Plan(
        *plan, *rest, chosen.all_kwargs(), scratch, (1, False, False), tuple(described)
    )


@contextmanager
def planned_launches(part: Any, **facts: Any) -> Iterator[list[str]]:
    """Let every kernel's first launch of a key make a plan; yields the names of those kernels.

    Prepared functions that are called inside go through the C part, with memory of the host.
    """
    slow: list[str] = []

    def launch(self: Any, _: Any, args: Any, kwargs: Any, key: Any, held: Any, *rest: Any) -> None:
        slow.append(self.__name__)
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if key is not None:
            self._launcher.keep(key, plan_of_launch(part, self, given, **facts), held)

    prepared: list[PreparedFunction] = []
    over = PreparedFunction.over

    def recorded(self: PreparedFunction, part: Any) -> Any:
        prepared.append(self)
        return over(self, part)

    assert reads_tensors(part)
    # One that was called before has seen that there is no GPU.
    for name in [name for name in sys.modules if name.startswith(("asmtune.kernels.", "tests."))]:
        for value in [*vars(sys.modules[name]).values()]:
            host = getattr(value, "prepared", None) if isinstance(value, FunctionType) else None
            if isinstance(host, PreparedFunction):
                host.call = host._first
    with (
        mock.patch.object(AsmAutotuner, "_launch", launch),
        mock.patch.object(AsmAutotuner, "_part", property(lambda _: part)),
        mock.patch.object(PreparedFunction, "over", recorded),
        mock.patch("asmtune.runtime.replay_calls.tensor_backend", return_value=part),
    ):
        try:
            yield slow
        finally:
            for host in prepared:
                host.call = host._first
