"""The user's own word on what a kernel computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asmtune.base.errors import InputError
from asmtune.core.failures import required
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.checks.tensors import Slot

Reference = Callable[[Mapping[str, Any]], Any]


def ask(
    reference: Reference, arguments: Mapping[str, Any], written: Sequence[Slot]
) -> dict[Slot, Any]:
    """What a reference expects of the arguments that a kernel writes.

    Args:
        reference: see `CheckOptions`.
        arguments: the launch's; the reference gets clones of the tensors.
        written: what the kernel may write.

    Returns:
        Tensors of the arguments' shapes, by argument.

    Raises:
        InputError: it raises, or returns what stands for no written argument, or another shape.
    """
    made = required(
        "reference=",
        lambda: reference({name: _cloned(value) for name, value in arguments.items()}),
    )
    names = ", ".join(slot.name for slot in written)
    if not isinstance(made, Mapping):
        if len(written) != 1 or made is None:
            raise InputError(
                f"reference= returned a {type(made).__name__}, but the kernel may write {names}: "
                "return a mapping from names to tensors"
            )
        made = {written[0].name: made}
    told = tensor_parts({str(name): _tensors(value) for name, value in made.items()})
    found = {slot: _fitting(slot, told[slot.name]) for slot in written if slot.name in told}
    if not found:
        raise InputError(
            f"reference= returned {', '.join(map(str, made)) or 'nothing'}, "
            f"of which the kernel writes none: it may write {names}"
        )
    return found


def _fitting(slot: Slot, value: Any) -> Any:
    if tuple(value.shape) != slot.shape:
        raise InputError(
            f"reference= gives {slot.name} the shape {tuple(value.shape)}, "
            f"but the argument has {slot.shape}"
        )
    return value


def _tensors(value: Any) -> Any:
    """A value with the arrays of other libraries as tensors."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(_tensors(part) for part in value)
    is_array = not isinstance(value, torch.Tensor) and hasattr(value, "__array__")
    return torch.as_tensor(value) if is_array else value


def _cloned(value: Any) -> Any:
    """A value with its tensors cloned, those of descriptors and wrappers as plain tensors."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(_cloned(part) for part in value)
    base = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    return base.detach().clone() if isinstance(base, torch.Tensor) else value
