"""Arguments of host functions: those of the command line, on the meta device."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import is_tensor

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.assumed_tensors import MOST
from asmtune.core.dtypes import TORCH_NAMES, torch_dtype
from asmtune.core.inputs.plain_functions import POINTER, Pointer
from asmtune.core.inputs.shapes import named_text, parse_value, unique
from asmtune.triton_api.tensors import tree_leaves, tree_map


@dataclass(frozen=True)
class HostArguments:
    """Arguments of a host function.

    Attributes:
        args: by position; tensors are of the meta device, or the caller's own.
        kwargs: by name.
        known: index tensors among them, with what they hold.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    known: Sequence[tuple[Any, Any]] = ()

    @classmethod
    def of(cls, *args: Any) -> HostArguments:
        """Take a caller's own arguments: tensors lend sizes, and small ones of integers values."""
        known: list[tuple[Any, Any]] = []

        def lent(value: Any) -> Any:
            if not is_tensor(value) or value.is_meta:
                return value
            made = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
            if not value.is_floating_point() and value.numel() <= MOST:
                known.append((made, value.detach().cpu()))
            return made

        return cls(tree_map(lent, args), known=known)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its tensors."""
        return sum(one.nbytes for one in tree_leaves((self.args, self.kwargs)) if is_tensor(one))

    def drawn(self, place: str) -> HostArguments:
        """Return them with tensors of a place, which hold random numbers or what is known."""
        values = {id(tensor): value for tensor, value in self.known}
        whole = (self.args, dict(self.kwargs))
        return HostArguments(*tree_map(lambda one: _drawn(one, values, place), whole))


def _drawn(value: Any, known: Mapping[int, Any], place: str) -> Any:
    """Return a tensor for one of the meta device: random or known numbers, or zeros."""
    if not is_tensor(value) or not value.is_meta:
        return value
    if id(value) in known:
        return known[id(value)].to(place)
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=place)
    if value.dtype is not torch.bool and not value.dtype.is_floating_point:
        return made.zero_()
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.randn(value.shape, generator=generator, device="cpu")
    return made.copy_(drawn > 0 if value.dtype is torch.bool else drawn)


def parse_arguments(function: Any, texts: Sequence[str], where: str) -> HostArguments:
    """Read arguments of the command line, "name=value" each.

    A value is a number, a text, a dtype, `fp16[M,K]`, `fp16[K,N].T`, or a list of these in
    brackets.

    Raises:
        InputError: one is malformed, unknown or missing.
    """
    signature = _signature(function, where)
    every = signature.parameters
    names = {name: one for name, one in every.items() if one.kind not in _ANY}
    rest, named = (next((n for n, p in every.items() if p.kind is kind), None) for kind in _ANY)
    pairs = unique("--arg", map(named_text, texts))
    sizes = {name: parse_value(text) for name, text in pairs.items()}
    numbers = {name: value for name, value in sizes.items() if type(value) is int}
    own = {*names, rest} | (set() if named is None else pairs.keys())
    values = {n: _value(n, text, numbers) for n, text in pairs.items() if n in own}
    used = {word for text in pairs.values() for word in re.findall(r"[A-Za-z_]\w*", text)}
    for name in pairs.keys() - own:
        if name not in used or name not in numbers:
            hint = did_you_mean(name, names)
            raise InputError(f"{where} has no parameter {name!r}: it has {', '.join(names)}{hint}")
    missing = [n for n, p in names.items() if p.default is p.empty and n not in values]
    if missing:
        raise InputError(
            f"{where}: no value for {', '.join(missing)}; give a tensor as "
            f'--arg "{missing[0]}=fp16[4096,4096]", a number as --arg {missing[0]}=1'
        )
    bound = signature.bind_partial()
    if named is not None:
        bound.arguments[named] = {n: values.pop(n) for n in [*values] if n not in every}
    if rest in values:  # of *args, as --arg 'args=[fp16[4], fp16[8]]'
        more = values.pop(rest)
        bound.arguments[rest] = tuple(more) if isinstance(more, list) else (more,)
    bound.arguments.update(values)
    bound.apply_defaults()
    return HostArguments(bound.args, bound.kwargs)


_ANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _signature(function: Any, where: str) -> inspect.Signature:
    """Return the signature of a host function; of an autograd function's `apply` its forward's."""
    try:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return _of_apply(owner)
        is_module = isinstance(function, torch.nn.Module)
        return inspect.signature(function.forward if is_module else function)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: Python does not know its parameters: {error}") from error


def _of_apply(owner: type[torch.autograd.Function]) -> inspect.Signature:
    """Return the signature of `apply`, which takes what `forward` takes by position alone."""
    parameters = [*inspect.signature(owner.forward).parameters.values()]
    if owner.setup_context is torch.autograd.Function.setup_context:
        parameters = parameters[1:]  # the context comes first
    only = inspect.Parameter.POSITIONAL_ONLY
    return inspect.Signature([p if p.kind in _ANY else p.replace(kind=only) for p in parameters])


def _value(name: str, text: str, numbers: Mapping[str, int]) -> Any:
    """Make a value of its text, in which `numbers` may name sizes.

    Raises:
        InputError: it is malformed; names the argument.
    """
    if text[0] == "[" and text[-1] == "]":
        return [_value(name, part, numbers) for part in _parts(text[1:-1])]
    parsed = parse_value(text)
    if not isinstance(parsed, str):
        return parsed
    plain, dot, turned = text.rpartition(".")
    is_turned = bool(dot) and turned == "T" and plain.endswith("]")
    match = POINTER.fullmatch(plain if is_turned else text)
    if match is not None and match["sizes"] is not None:
        tensor = Pointer(torch_dtype(match["dtype"]), match["sizes"]).sized(name, numbers)
        return tensor.mT if is_turned else tensor
    bare = text.removeprefix("torch.")
    if bare in TORCH_NAMES or bare in TORCH_NAMES.values():
        return torch_dtype(bare)
    return text.strip("'\"")


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a list between its commas, those in inner brackets aside."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += letter
    if part.strip():
        yield part.strip()
