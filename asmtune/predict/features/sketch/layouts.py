"""TTGIR's layout encodings: how a tensor's elements lie over registers, lanes and warps.

Every layout of Triton's is linear over bits: which element a register of a lane of a
warp holds is the sum (exclusive or) of one basis vector for each bit that is set of the
register's number, the lane's and the warp's (Zhou et al., "Linear Layouts", 2025;
`lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp` in Triton). A basis is a
coordinate; a zero one means that the bit makes no difference: a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

_ALIAS: Final = re.compile(r"(#\w+) = (#tt\w*\..*)")
_NAME: Final = re.compile(r"#(?:\w+\.)?(\w+)")
_REFERENCE: Final = re.compile(r"#\w+(?![\w.])")


def read_aliases(text: str) -> dict[str, str]:
    """Return the encodings that a module's first lines define, with names in them resolved."""
    aliases: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("module"):
            break
        if match := _ALIAS.match(line):
            aliases[match[1]] = resolve(match[2], aliases)
    return aliases


def resolve(encoding: str, aliases: Mapping[str, str]) -> str:
    """Replace the names in an encoding's text by their definitions."""
    return _REFERENCE.sub(lambda match: aliases.get(match[0], match[0]), encoding)


def kind_of(encoding: str) -> str:
    """Return the name of an encoding: "blocked", "nvidia_mma", "slice", "nvmma_shared"."""
    match = _NAME.match(encoding)
    return match[1] if match else ""


def numbers(encoding: str, name: str) -> tuple[int, ...]:
    """Return a list attribute of an encoding, such as `order = [1, 0]`; empty if it has none."""
    match = re.search(rf"\b{name} = \[([\d, ]*)\]", encoding)
    return tuple(map(int, match[1].split(","))) if match and match[1].strip() else ()


def number(encoding: str, name: str, default: int) -> int:
    """Return a number attribute of an encoding."""
    match = re.search(rf"\b{name} = (\d+)", encoding)
    return int(match[1]) if match else default


def parent_of(encoding: str) -> str:
    """Return the parent encoding of a slice or a dot operand; "" if it has none."""
    _, found, rest = encoding.partition("parent = ")
    depth = 0
    for place, sign in enumerate(rest):
        depth += (sign in "<{[(") - (sign in ">}])")
        if depth < 0 or (depth == 0 and sign == ","):
            return rest[:place]
    return rest if found else ""


def own_part(encoding: str) -> str:
    """Return an encoding's attributes without its parent's."""
    parent = parent_of(encoding)
    return encoding.replace(parent, "") if parent else encoding


Basis = tuple[int, ...]
Shape = tuple[int, ...]


def combined(bases: Sequence[Basis], bits: int, first: Basis) -> Basis:
    """Return the place that the bits of a number name, each bit a basis."""
    place = first
    for bit, basis in enumerate(bases):
        if bits >> bit & 1:
            place = tuple(own ^ step for own, step in zip(place, basis, strict=True))
    return place


WARP: Final = 32


@dataclass(frozen=True)
class TensorLayout:
    """A layout over a tensor of one shape.

    Attributes:
        registers, lanes, warps: bases by bit, the lowest first.
        fast: the axis along which a thread's neighbours come first.
        width: how many of them the layout gives a thread, before it repeats itself.
    """

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    warps: tuple[Basis, ...]
    fast: int = 0
    width: int = 1

    @property
    def elements(self) -> int:
        """Return the registers of one thread, copies included."""
        return int(1 << len(self.registers))

    def distinct(self, varying: frozenset[int], skip: tuple[int, int] = (-1, 1)) -> int:
        """Return the different elements a thread holds, if only some axes make a difference.

        Args:
            varying: the axes along which elements differ.
            skip: an axis, and how many neighbours along it count as one.
        """
        axis, run = skip
        seen = set()
        for basis in self.registers:
            kept = tuple(
                0 if d not in varying or (d == axis and step < run) else step
                for d, step in enumerate(basis)
            )
            if any(kept):
                seen.add(kept)
        return int(1 << len(seen))

    def along(self, bases: Iterable[Basis], axis: int) -> int:
        """Return the factor by which some bases spread over an axis."""
        return int(1 << sum(1 for basis in bases if basis[axis]))

    def run(self, axis: int) -> int:
        """Return the neighbours along an axis that one thread holds."""
        steps = {b[axis] for b in self.registers if sum(map(bool, b)) == 1 and b[axis]}
        length = 1
        while length in steps:
            length *= 2
        return length


@lru_cache(maxsize=4096)
def layout_of(encoding: str, shape: Shape, num_warps: int) -> TensorLayout:
    """Return the layout of a tensor from its encoding without aliases.

    An unknown encoding is taken for rows over threads, the last axis fastest.
    """
    layout = _make(encoding, shape)
    if layout is None:
        layout = _default(shape, num_warps)
    if not shape:
        return layout
    width = min(layout.run(layout.fast), shape[layout.fast])
    return replace(_fit(layout, shape), width=width)


def _make(encoding: str, shape: Shape) -> TensorLayout | None:
    kind = kind_of(encoding)
    if kind == "blocked":
        return _blocked(encoding)
    if kind == "nvidia_mma":
        return _mma(encoding, len(shape))
    if kind == "slice":
        return _slice(encoding, shape)
    if kind == "dot_op":
        return _dot_operand(encoding, shape)
    if kind in ("linear", "generic_linear"):
        return _linear(encoding, len(shape))
    return None


def _unit(rank: int, axis: int, step: int) -> Basis:
    return tuple(step if d == axis else 0 for d in range(rank))


def _stack(levels: Sequence[tuple[str, int, int]], rank: int, fast: int) -> TensorLayout:
    """Stack levels of (part, axis, count); each starts where the axis's last one ended."""
    reach = [1] * rank
    parts: dict[str, list[Basis]] = {"register": [], "lane": [], "warp": []}
    for part, axis, count in levels:
        for _ in range(max(1, count).bit_length() - 1):
            if part.startswith("copy"):
                parts[part.removeprefix("copy ")].append((0,) * rank)
                continue
            parts[part].append(_unit(rank, axis, reach[axis]))
            reach[axis] *= 2
    return TensorLayout(tuple(parts["register"]), tuple(parts["lane"]), tuple(parts["warp"]), fast)


def _blocked(encoding: str) -> TensorLayout | None:
    own = numbers(encoding, "sizePerThread")
    lanes, warps = numbers(encoding, "threadsPerWarp"), numbers(encoding, "warpsPerCTA")
    order = numbers(encoding, "order") or tuple(range(len(own)))[::-1]
    if not own or not len(own) == len(lanes) == len(warps) == len(order):
        return None
    levels = [("register", d, own[d]) for d in order]
    levels += [("lane", d, lanes[d]) for d in order]
    levels += [("warp", d, warps[d]) for d in order]
    return _stack(levels, len(own), order[0])


def _mma(encoding: str, rank: int) -> TensorLayout | None:
    """Lay out accumulators of mma.sync and wgmma: pairs along N, four lanes a row, eight rows."""
    warps, tile = numbers(encoding, "warpsPerCTA"), numbers(encoding, "instrShape")
    version = number(encoding, "versionMajor", 2)
    if len(warps) != rank or len(tile) < 2 or rank < 2:
        return None
    m, n = rank - 2, rank - 1
    rows, columns = (tile[0], tile[1]) if version == 3 else (tile[-2], tile[-1])
    order = range(rank) if version == 3 else reversed(range(rank))
    levels = [("register", n, 2), ("lane", n, 4), ("lane", m, 8)]
    levels += [("register", m, rows // 8), ("register", n, columns // 8)]
    return _stack([*levels, *(("warp", d, warps[d]) for d in order)], rank, n)


def _slice(encoding: str, shape: Shape) -> TensorLayout | None:
    axis = number(own_part(encoding), "dim", 0)
    whole = (*shape[:axis], 1, *shape[axis:])
    layout = _make(parent_of(encoding), whole)
    if layout is None:
        return None
    layout = _cut(layout, whole)

    def without(bases: Iterable[Basis]) -> tuple[Basis, ...]:
        return tuple((*basis[:axis], *basis[axis + 1 :]) for basis in bases)

    registers = tuple(basis for basis in without(layout.registers) if any(basis))
    fast = len(shape) - 1 if layout.fast == axis else layout.fast - (layout.fast > axis)
    return TensorLayout(registers, without(layout.lanes), without(layout.warps), fast)


def _dot_operand(encoding: str, shape: Shape) -> TensorLayout | None:
    """Return the layout of an operand: like the accumulator over M or N, whole along K."""
    own, parent = own_part(encoding), parent_of(encoding)
    index, rank = number(own, "opIdx", 0), len(shape)
    if rank < 2:
        return None
    k = rank - 1 if index == 0 else rank - 2
    other = rank - 2 if index == 0 else rank - 1
    warps = numbers(parent, "warpsPerCTA")
    if len(warps) != rank:
        return None
    if kind_of(parent) == "blocked":
        return _fma_operand(parent, k, shape)
    width = max(1, number(own, "kWidth", 2))
    levels = [("register", k, width), ("lane", k, 4), ("lane", other, 8)]
    levels += [("register", other, 2 if index == 0 else 1), ("register", k, 2)]
    order = range(rank) if number(parent, "versionMajor", 2) == 3 else reversed(range(rank))
    levels += [("copy warp" if d == k else "warp", d, warps[d]) for d in order]
    return _stack(levels, rank, k)


def _fma_operand(parent: str, k: int, shape: Shape) -> TensorLayout | None:
    own, lanes = numbers(parent, "sizePerThread"), numbers(parent, "threadsPerWarp")
    warps, order = numbers(parent, "warpsPerCTA"), numbers(parent, "order")
    if not len(own) == len(lanes) == len(order) == len(shape):
        return None
    levels = [("register", d, shape[k] if d == k else own[d]) for d in order]
    levels += [("copy lane" if d == k else "lane", d, lanes[d]) for d in order]
    levels += [("copy warp" if d == k else "warp", d, warps[d]) for d in order]
    return _stack(levels, len(shape), order[0])


def _linear(encoding: str, rank: int) -> TensorLayout | None:
    def bases(name: str) -> tuple[Basis, ...]:
        match = re.search(rf"\b{name} = \[((?:\[[\d, ]*\](?:, )?)*)\]", encoding)
        groups = re.findall(r"\[([\d, ]*)\]", match[1]) if match else []
        return tuple(tuple(map(int, group.split(","))) for group in groups if group.strip())

    registers, lanes, warps = bases("register"), bases("lane"), bases("warp")
    first = next((b for b in (*registers, *lanes) if any(b)), (0,) * rank)
    fast = max(range(rank), key=lambda axis: (first[axis], axis)) if len(first) == rank else 0
    sizes = {len(basis) for basis in (*registers, *lanes, *warps)}
    return TensorLayout(registers, lanes, warps, fast) if sizes <= {rank} else None


def _default(shape: Shape, num_warps: int) -> TensorLayout:
    last = len(shape) - 1
    levels = [("lane", last, WARP), ("warp", last, num_warps)] if shape else []
    return _stack(levels, len(shape), max(0, last))


def _cut(layout: TensorLayout, shape: Shape) -> TensorLayout:
    """Drop the parts of a layout that reach over the tensor's edge."""

    def cut(bases: Iterable[Basis]) -> tuple[Basis, ...]:
        return tuple(
            tuple(0 if step >= size else step for step, size in zip(basis, shape, strict=True))
            for basis in bases
        )

    return replace(
        layout,
        registers=cut(layout.registers),
        lanes=cut(layout.lanes),
        warps=cut(layout.warps),
    )


def _fit(layout: TensorLayout, shape: Shape) -> TensorLayout:
    """Cut what reaches over the tensor's edge, and repeat in registers what falls short."""
    fitted = _cut(layout, shape)
    extra: list[Basis] = []
    for axis in reversed(range(len(shape))):
        steps = [basis[axis] for basis in (*fitted.registers, *fitted.lanes, *fitted.warps)]
        reach = 1 << max(steps, default=0).bit_length()
        while reach < shape[axis]:
            extra.append(_unit(len(shape), axis, reach))
            reach *= 2
    return replace(fitted, registers=(*fitted.registers, *extra))
