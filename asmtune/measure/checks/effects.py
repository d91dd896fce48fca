"""Derives what a launch may do to its arguments' memory from the IR of every config.

Nothing here needs a GPU or PyTorch: tensors are recognised by their `data_ptr`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmtune.ir.ttir.work import ArgumentUse, Work


@dataclass(frozen=True)
class Effects:
    """Holds what a launch with any of the configs may do to its tensor arguments.

    Tensors are named by their parameter; those inside a tuple by name and position, `t.1`.

    Attributes:
        reads: loaded from, or updated atomically.
        writes: stored to, or updated atomically.
        atomics: updated atomically.
        unknown: the analysis cannot follow their address; counted as read and written.
        foreign: whether memory of no argument may be written, such as that behind a table of
            addresses; all arguments are then unknown.
        stray: not written by the IR, but maybe by hand-edited code; they must not change.
        products: element types of matrix products, as MLIR names them ("f16", "bf16"), "tf32" for
            32-bit floats that are rounded first.
        scratch: written by other configs than the default one.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    atomics: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    foreign: bool = False
    products: frozenset[str] = frozenset()
    stray: frozenset[str] = frozenset()
    scratch: frozenset[str] = frozenset()

    @classmethod
    def of(cls, works: Iterable[Work], arguments: Mapping[str, Any]) -> Effects:
        """Unite the effects of several configs: a constexpr may turn a store into an atomic.

        Args:
            works: the analysed IR of the configs. One that could not be read, or that uses an
                argument without a name, makes all arguments unknown.
            arguments: the problem's arguments, by parameter name; may be meta tensors.
        """
        parts = tensor_parts(arguments)
        each = [_of_one(work, parts) for work in works]
        return reduce(_either, each) if each else cls.everything(arguments)

    @classmethod
    def everything(cls, arguments: Mapping[str, Any]) -> Effects:
        """Return the effects of a launch of which nothing is known."""
        names = frozenset(tensor_parts(arguments))
        return cls(reads=names, writes=names, unknown=names)

    def beside(self, default: Iterable[Work], arguments: Mapping[str, Any]) -> Effects:
        """Mark as scratch what the default config does not write, such as parts of a split sum."""
        by_default = Effects.of(default, arguments)
        return replace(
            self, scratch=(self.writes | self.atomics) - by_default.writes - by_default.atomics
        )

    def cover(self, other: Effects) -> bool:
        """Return whether all that the other launches may do is among these effects."""
        return all(getattr(other, f.name) <= getattr(self, f.name) for f in fields(Effects))

    def with_strays(self, arguments: Mapping[str, Any]) -> Effects:
        """Add stray writes for code edited by hand, which may write what the IR does not."""
        return replace(self, stray=frozenset(tensor_parts(arguments)) - self.writes - self.atomics)

    def unchecked_notes(self, foreign_names: Iterable[str]) -> list[str]:
        """Return remarks on memory that can be neither saved nor checked."""
        notes = [
            f"{name} is no PyTorch tensor: neither saved nor checked" for name in foreign_names
        ]
        if self.foreign:
            notes.insert(
                0,
                "the kernel may write memory behind an address that is no tensor argument: that is "
                "neither saved nor checked",
            )
        if self.unknown:
            names = ", ".join(sorted(self.unknown))
            notes.append(f"the IR does not tell what becomes of {names}: taken as read and written")
        return notes


def tensor_parts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name in order, those in tuples too: `x_ptr`, `t.1`, `t.2.0`.

    Tensor descriptors and reinterpreted tensors are returned as they are.
    """
    return {path: part for name, value in arguments.items() for path, part in _parts(name, value)}


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple | list):
        for place, part in enumerate(value):
            yield from _parts(f"{path}.{place}", part)
    elif hasattr(value, "data_ptr") or hasattr(getattr(value, "base", None), "data_ptr"):
        yield path, value


def is_part(path: str, name: str) -> bool:
    """Return whether a tensor's path is the name, or a part of the argument of that name."""
    return path == name or path.startswith(f"{name}.")


def _of_one(work: Work, parts: Mapping[str, Any]) -> Effects:
    # Others split a float into several narrow ones ("tf32x3"), which compensates the rounding.
    narrow = ("tf32" if dot.precision == "tf32" else dot.dot.operand for dot in work.dots)
    products = frozenset(narrow)
    uses = None if work.foreign_writes or not work.name else _uses(work, list(parts))
    if uses is None:
        everything = Effects.everything(parts)
        return replace(everything, foreign=work.foreign_writes, products=products)
    unknown = {path for path, use in uses if use.unknown_use}
    unknown |= parts.keys() - {path for path, _ in uses}
    reads = {path for path, use in uses if use.reads} | unknown
    writes = {path for path, use in uses if use.writes} | unknown
    if any(access.foreign for access in work.accesses):
        # It may read what it writes through an address in memory.
        reads |= writes
    return Effects(
        reads=frozenset(reads),
        writes=frozenset(writes),
        atomics=frozenset(path for path, use in uses if use.atomics),
        unknown=frozenset(unknown),
        products=products,
    )


def _uses(work: Work, paths: list[str]) -> list[tuple[str, ArgumentUse]] | None:
    """Pair tensors with their uses; None if a use cannot be assigned to an argument.

    The front end numbers a tuple's parts in its own way (it drops a 1 among them), so they are
    matched in order. If their number differs, each use counts for all of them.
    """
    by_parameter: dict[str, list[ArgumentUse]] = {}
    for use in sorted(work.arguments, key=lambda use: use.index):
        by_parameter.setdefault(use.name.partition(".")[0], []).append(use)
    pairs: list[tuple[str, ArgumentUse]] = []
    for name, uses in by_parameter.items():
        named = [path for path in paths if is_part(path, name)]
        if not name or not named:
            return None
        if len(named) == len(uses):
            pairs += zip(named, uses, strict=True)
        else:
            pairs += [(path, use) for path in named for use in uses]
    return pairs


def _either(one: Effects, other: Effects) -> Effects:
    names = [field.name for field in fields(Effects)]
    return Effects(**{name: getattr(one, name) | getattr(other, name) for name in names})
