"""The role of each tensor argument, by the IR or the user's options, and the user's reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asmtune.base.errors import ForeignWriteError, InputError
from asmtune.core.failures import required
from asmtune.measure.accuracy import Bound
from asmtune.measure.checks.effects import Effects, is_part, tensor_parts
from asmtune.measure.checks.tensors import TensorArgument
from asmtune.triton_api.user_state import within

Reference = Callable[[Mapping[str, Any]], Any]
Restore = Callable[[Mapping[str, Any]], Any]

# Beyond this much work (by NumPy's measure) two views count as overlapping.
_OVERLAP_WORK: Final = 10_000


def call_reference(
    reference: Reference, arguments: Mapping[str, Any], written: Sequence[TensorArgument]
) -> dict[TensorArgument, Any]:
    """Call the user's reference, with clones of a launch's tensors, for what a kernel writes.

    Returns:
        Tensors of the shapes of the written arguments, by argument.

    Raises:
        InputError: it raises, names no written argument, or returns another shape.
    """
    returned = required(
        "reference=",
        lambda: within(reference)({name: _cloned(value) for name, value in arguments.items()}),
    )
    names = ", ".join(tensor.name for tensor in written)
    if not isinstance(returned, Mapping):
        if len(written) != 1 or returned is None:
            raise InputError(
                f"reference= returned {type(returned).__name__}, but the kernel may write "
                f"{names}: return a mapping from names to tensors"
            )
        returned = {written[0].name: returned}
    by_name = tensor_parts({str(name): _tensors(value) for name, value in returned.items()})
    expected = {
        tensor: _fitting(tensor, by_name[tensor.name])
        for tensor in written
        if tensor.name in by_name
    }
    if not expected:
        raise InputError(
            f"reference= returned {', '.join(map(str, returned)) or 'nothing'}, "
            f"of which the kernel writes none: it may write {names}"
        )
    return expected


def _fitting(tensor: TensorArgument, value: Any) -> Any:
    if tuple(value.shape) != tensor.shape:
        raise InputError(
            f"reference= gives {tensor.name} the shape {tuple(value.shape)}, "
            f"but the argument has {tensor.shape}"
        )
    return value


def _tensors(value: Any) -> Any:
    """Convert arrays of other libraries to tensors."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(_tensors(part) for part in value)
    is_array = not isinstance(value, torch.Tensor) and hasattr(value, "__array__")
    return torch.as_tensor(value) if is_array else value


def _cloned(value: Any) -> Any:
    """Clone the tensors of a value; those of descriptors and wrappers become plain tensors."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(_cloned(part) for part in value)
    base = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    return base.detach().clone() if isinstance(base, torch.Tensor) else value


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Holds what the user says of a kernel's arguments; the rest follows from the IR.

    Attributes:
        check: whether outputs are compared; the arguments are restored in any case.
        reference: takes the arguments by name, with the contents that the kernel finds, tensors
            cloned (those of descriptors as plain tensors). Returns what the kernel should leave:
            tensors by name, or one tensor if one argument is written. Arguments that it does not
            name are not compared, such as scratch that differs from config to config.
        restore_value: names of arguments that get the same contents before every run.
        reset_to_zero: names of arguments that are zeroed before every run.
        tolerance: how far elements may differ, relative to their magnitude, whatever their
            dtype; see `asmtune.measure.checks.compare`.
        bits_equal: whether only outputs pass that equal the default config's in every bit.
        accuracy: limits the errors of each floating-point output, in place of a tolerance: against
            the reference in its own precision, or the default config's output without one.
        restore: puts back memory of no tensor argument, such as that behind a table of addresses:
            called with the arguments by name before every run, and once after the last. Without it
            no kernel is launched many times that may write such memory.
    """

    check: bool = True
    reference: Reference | None = None
    restore_value: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    tolerance: float | None = None
    bits_equal: bool = False
    accuracy: Bound | None = None
    restore: Restore | None = None

    def require_repeatable(self, places: Sequence[str], *, isolated: bool) -> None:
        """Check that a kernel may be launched many times that writes memory of no argument.

        Args:
            places: where its source may write such memory; none if it does not.
            isolated: whether another process would launch it.

        Raises:
            ForeignWriteError: the user has not said so, or the process has no such memory.
        """
        if not places:
            return
        what = f"it may write memory that no tensor argument holds ({', '.join(places)})"
        if self.restore is None:
            raise ForeignWriteError(
                f"{what}, which some 50 timed launches would each change again: give "
                "restore_value= a function of the arguments by name that puts the memory back "
                "before each, or does nothing if launches may be repeated"
            )
        if isolated:
            raise ForeignWriteError(
                f"{what}, whose addresses mean nothing in another process: time it in this one "
                '(isolate=False or --no-isolate, on_miss="tune")'
            )


@dataclass(frozen=True)
class Roles:
    """Holds what is done with the tensor arguments.

    Attributes:
        inputs: those that are read.
        written: those that may be written.
        kept: written ones whose original contents matter, restored before a run.
        zeroed: written ones that are zeroed before a run.
        poisoned: written ones whose original contents do not matter.
        stray: written ones that only a stray write of hand-edited code may change.
        scratch: written ones that the default config does not write, by its IR.
    """

    inputs: list[TensorArgument]
    written: list[TensorArgument]
    kept: list[TensorArgument]
    zeroed: list[TensorArgument]
    poisoned: list[TensorArgument]
    stray: list[TensorArgument]
    scratch: list[TensorArgument]

    @property
    def meant(self) -> list[TensorArgument]:
        """Return those that the kernel writes on purpose."""
        return [tensor for tensor in self.written if tensor not in self.stray]

    @classmethod
    def of(cls, tensors: list[TensorArgument], effects: Effects, options: CheckOptions) -> Roles:
        """Derive the roles from the user's options first, then from the IR's effects."""
        zeroed = [tensor for tensor in tensors if _is_named(tensor, options.reset_to_zero)]
        restored = [tensor for tensor in tensors if _is_named(tensor, options.restore_value)]
        writes, reads = effects.writes | effects.atomics, effects.reads | effects.atomics
        inputs = [s for s in tensors if s.name in reads | effects.unknown or s in restored]
        meant = [
            tensor
            for tensor in tensors
            if tensor.name in writes | effects.unknown or tensor in zeroed or tensor in restored
        ]
        stray = [
            tensor for tensor in tensors if tensor.name in effects.stray and tensor not in meant
        ]
        written = [tensor for tensor in tensors if tensor in meant or tensor in stray]
        # An argument that shares memory with an input may be read.
        shared = [s for s in written if any(overlap(s, other) for other in inputs)]
        live = [s for s in written if s in inputs or s in stray or s in shared]
        kept = [tensor for tensor in live if tensor not in zeroed]
        poisoned = [tensor for tensor in written if tensor not in live and tensor not in zeroed]
        scratch = [tensor for tensor in written if tensor.name in effects.scratch]
        return cls(inputs, written, kept, zeroed, poisoned, stray, scratch)


def check_names(options: CheckOptions, arguments: Mapping[str, Any]) -> None:
    """Check that the options name tensor arguments.

    Raises:
        InputError: a name is not a tensor argument's.
    """
    tensors = list(tensor_parts(arguments))
    given = {"restore_value": options.restore_value, "reset_to_zero": options.reset_to_zero}
    for option, names in given.items():
        for name in names:
            if arguments.get(name, name) is None:
                continue  # an optional tensor that this launch does not use
            if not any(is_part(path, name) for path in tensors):
                what = "is no tensor" if name in arguments else "is no argument"
                raise InputError(
                    f"{option}= names {name}, which {what} of the kernel: "
                    f"its tensors are {', '.join(tensors) or 'none'}"
                )


def _is_named(tensor: TensorArgument, names: tuple[str, ...]) -> bool:
    return any(is_part(tensor.name, name) for name in names)


def overlap(one: TensorArgument, other: TensorArgument) -> bool:
    """Return whether an element of one shares a byte with one of the other, gaps excluded."""
    (start, stop), (other_start, other_stop) = _addresses(one), _addresses(other)
    if start >= other_stop or other_start >= stop:
        return False
    first, second = (np.asarray(_Footprint(tensor)) for tensor in (one, other))
    try:
        return bool(np.shares_memory(first, second, max_work=_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True


def _addresses(tensor: TensorArgument) -> tuple[int, int]:
    base = tensor.storage.data_ptr()
    return base + tensor.start, base + tensor.stop


class _Footprint:
    """Gives a tensor's addresses as NumPy's array interface; the memory is never read.

    The memory may be a GPU's: NumPy's solver only uses addresses, extents and strides.
    """

    def __init__(self, tensor: TensorArgument) -> None:
        width = tensor.dtype.itemsize
        self.__array_interface__ = {
            "data": (_addresses(tensor)[0], False),
            "shape": tensor.sizes,
            "strides": tuple(step * width for step in tensor.strides),
            "typestr": f"|V{width}",
            "version": 3,
        }
