"""Workspaces: arguments whose written elements depend on the config, by construction.

A backward kernel writes one partial sum a program, and the caller adds up as many as the chosen
config made. The IR shows where each config's programs write; an argument is a workspace if another
number of them writes slots of the same width while what they read ends at the same place. Then
sums over the slots are compared. If the IR shows no sum, which slots are written is compared; then
the IR must show that the programs leave nothing out that the reference's read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from asmtune.ir.ttir.slots import AccessStrides, ConfigSlots, ProgramStride, WrittenSlots
from asmtune.measure.checks.compare import Magnitude, bits, pieces, poison
from asmtune.measure.checks.tensors import TensorArgument

_AXES: Final = "xyz"


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Place of the slots of one config, in elements.

    Attributes:
        count: how many there are.
        stride: elements from one to the next.
        wrap: elements from the first slot of a group to that of the next; 0 if there is one group.
    """

    count: int
    stride: int
    wrap: int

    def over(self, flat: Any) -> Any:
        """View memory as groups x slots x elements; None if it is too short."""
        needed = self.count * self.stride
        if flat.numel() < needed:
            return None
        groups = (flat.numel() - needed) // self.wrap + 1 if self.wrap else 1
        sizes, strides = (groups, self.count, self.stride), (self.wrap, self.stride, 1)
        return flat.as_strided(sizes, strides)

    def whole(self, elements: int) -> SlotLayout:
        """Return the layout with as many slots as there is room for."""
        return replace(self, count=(self.wrap or elements) // self.stride)


@dataclass(frozen=True, slots=True)
class Workspace:
    """An argument that a config writes in slots of its own.

    Attributes:
        argument: its name.
        index: the programs that the slots belong to: "x", or "x//" for a part of them.
        own, reference: the slots of the config, and those of the one it is compared with.
        summed: whether the slots hold partial sums: what is left out shows in their sum.
    """

    argument: str
    index: str
    own: SlotLayout
    reference: SlotLayout
    summed: bool

    def __str__(self) -> str:
        along = f"programs along axis {_AXES.index(self.index[0])}"
        how = "checked to be written whole and finite"
        if self.summed:
            how = "compared by its sums"
        return f"{self.argument}: workspace of each config (rows = {along}), {how}"


def workspaces_of(own: ConfigSlots, reference: ConfigSlots) -> dict[str, Workspace]:
    """Return the arguments that are a workspace of a config, compared with another, by name."""
    pairs = [
        (one, other)
        for one in own.written
        for other in reference.written
        if one.argument == other.argument and one.bits == other.bits and _alike(one, other)
    ]
    workspaces = (_workspace(one, other, own, reference) for one, other in pairs)
    return {one.argument: one for one in workspaces if one is not None}


def _alike(one: WrittenSlots | AccessStrides, other: WrittenSlots | AccessStrides) -> bool:
    return [s.index for s in one.strides] == [s.index for s in other.strides]


def _workspace(
    one: WrittenSlots, other: WrittenSlots, own: ConfigSlots, reference: ConfigSlots
) -> Workspace | None:
    pairs = list(zip(one.strides, other.strides, strict=True))
    candidates = []
    for slot, base in pairs:
        layout, base_layout = _layout(one, slot), _layout(other, base)
        if layout is None or base_layout is None or not _differ(slot, base, layout, base_layout):
            continue
        units = layout.wrap or 1, base_layout.wrap or 1
        rest = [pair for pair in pairs if pair[0] is not slot]
        if all(a.count == b.count or _rest_alike(a, b, units) for a, b in rest):
            candidates.append((slot.index, layout, base_layout))
    # Where groups lie elsewhere, so do the groups of groups: the innermost index decides.
    moved = [found for found in candidates if found[1].count == found[2].count]
    candidates = [found for found in candidates if found not in moved] or moved[:1]
    if len(candidates) != 1:
        return None
    ((index, layout, base_layout),) = candidates
    # Means of tiles of another size differ by a constant; what else differs is taken for wrong.
    are_means = one.scales and other.scales and one.scales != other.scales
    summed = index in other.partial and not are_means
    moved_only = layout.count == base_layout.count
    if layout.stride != base_layout.stride or (moved_only and not summed):
        return None
    reads = _Reads.of(index, one.argument, own, reference)
    if not reads.agree or not (summed or reads.reach_all):
        return None
    if not (reads.counts_differ or moved_only or (summed and reads.leave_index_out)):
        return None
    return Workspace(one.argument, index, layout, base_layout, summed)


def _differ(
    slot: ProgramStride, base: ProgramStride, layout: SlotLayout, base_layout: SlotLayout
) -> bool:
    """Return whether two configs write other slots: more of them, or other distances of groups.

    What ends at the same place is an ordinary output: fewer programs, wider tiles.
    """
    if slot.count != base.count:
        return _end_alike(slot, base) is False
    return slot.stride == base.stride and 0 < layout.wrap != base_layout.wrap > 0


def _layout(written: WrittenSlots, slot: ProgramStride) -> SlotLayout | None:
    """Return where slots lie; None if other terms of the address fall between them."""
    others = (s.stride for s in written.strides if s is not slot and s.count > 1)
    wrap = math.gcd(*(stride for stride in (*written.others, *others) if stride >= slot.stride))
    fits = slot.stride > 0 and (wrap == 0 or wrap >= slot.width)
    return SlotLayout(slot.count, slot.stride, wrap) if fits else None


def _rest_alike(one: ProgramStride, other: ProgramStride, units: tuple[int, int]) -> bool:
    """Return whether an index covers the same in both, in groups of slots or in elements."""
    pair = [
        replace(stride, stride=stride.stride // unit) if stride.stride % unit == 0 else stride
        for stride, unit in zip((one, other), units, strict=True)
    ]
    return bool(_end_alike(*pair))


def _end_alike(one: ProgramStride, other: ProgramStride) -> bool | None:
    """Return whether what two configs' programs cover may end at the same place.

    The last program begins before the end, and reaches it. None if a loop's trips are not known.
    """
    if 0 in (one.trips, other.trips):
        return None
    ends = [(stride.width - stride.stride, stride.width) for stride in (one, other)]
    if _intersect(*ends):
        return True
    if one.trips == other.trips == 1:
        return False
    # Programs that walk on in steps of all of them: the end is in the last trip.
    ends = [((s.trips - 1) * s.width, s.trips * s.width) for s in (one, other)]
    return _intersect(*ends)


def _intersect(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


@dataclass(frozen=True, slots=True)
class _Reads:
    """Comparison of two configs' other accesses along the axis of an index.

    Attributes:
        agree: whether they cover the same, and no grid is seen to be too small.
        counts_differ: whether they do with another number of programs.
        reach_all: whether the config is seen to leave nothing out that the reference covers.
        leave_index_out: whether the index is a remainder that only the slots go by, as of locks.
    """

    agree: bool
    counts_differ: bool
    reach_all: bool
    leave_index_out: bool

    @classmethod
    def of(cls, index: str, argument: str, own: ConfigSlots, reference: ConfigSlots) -> _Reads:
        """Compare the accesses of two configs, without those of one argument."""
        axis = index[0]
        others = {one.place: one for one in reference.accesses if one.argument != argument}
        both = [(one, others[one.place]) for one in own.accesses if one.place in others]
        both = [(a, b) for a, b in both if a.argument == b.argument and _alike(a, b)]
        pairs = [
            pair
            for one, other in both
            for pair in zip(one.strides, other.strides, strict=True)
            if pair[0].index[0] == axis
        ]
        alike = [(a, b) for a, b in pairs if _end_alike(a, b)]
        has_gap = any(a.has_gap and not b.has_gap for a, b in both)
        is_end = all(a.trips * a.width >= b.trips * b.width for a, b in alike)
        agreed = {a.index for a, _ in alike}
        is_short = axis in own.short and axis not in reference.short
        return cls(
            bool(agreed) and agreed == {a.index for a, _ in pairs} and not is_short,
            any(a.count != b.count for a, b in alike),
            not has_gap and (axis in own.reached or is_end),
            index.endswith("%") and index not in agreed,
        )


class WorkspaceComparison:
    """Compares the slots of one config with those of the reference.

    Args:
        workspace: where both lie.
        tensor: the argument.
        expected: gives the elements of a view of it as the reference left them.
        poisoned: whether the poison pattern marks elements that are not written.
    """

    def __init__(
        self,
        workspace: Workspace,
        tensor: TensorArgument,
        expected: Callable[[TensorArgument], Any],
        *,
        poisoned: bool,
    ) -> None:
        self._workspace = workspace
        self._name = tensor.name
        flat = replace(tensor, sizes=(tensor.elements,), strides=(1,))
        self._actual = flat.view()
        self._expected = expected(flat).to(self._actual.device)
        self._poison = poison(tensor) if poisoned else None

    @classmethod
    def fits(cls, tensor: TensorArgument) -> bool:
        """Return whether an argument's elements lie side by side."""
        return bool(tensor.elements * tensor.dtype.itemsize == tensor.stop - tensor.start)

    @cached_property
    def _is_initialised(self) -> bool:
        """Return whether a hook, or the user, has filled what no program writes."""
        if self._poison is None:
            return True
        return all(bool(self._written(one).all()) for one in (self._actual, self._expected))

    @cached_property
    def _layouts(self) -> tuple[SlotLayout, SlotLayout]:
        """Return the slots to compare: all that there is room for if what they held is known."""
        own, base, elements = self._workspace.own, self._workspace.reference, self._actual.numel()
        return (own.whole(elements), base.whole(elements)) if self._is_initialised else (own, base)

    def applies(self) -> bool:
        """Return whether the reference wrote as its IR says, so that slots can be compared."""
        slots = self._layouts[1].over(self._expected)
        if self._is_initialised:
            return self._workspace.summed and slots is not None
        return slots is not None and self._is_regular(slots)

    def failure(self, tolerance: float) -> tuple[str, str] | None:
        """Return a failure's kind and detail; None if all is well."""
        layout, base_layout = self._layouts
        own, base = layout.over(self._actual), base_layout.over(self._expected)
        if own is None:
            return "wrong_output", f"{self._name} has no room for {layout.count} slots"
        wrong = None
        if not self._is_initialised:
            wrong = self._coverage(own, base) or self._not_finite(own, base)
        if wrong is not None or not self._workspace.summed:
            return wrong
        # Errors of parts grow with the root of their number, what one program leaves out does not.
        counts = self._workspace.own.count, self._workspace.reference.count
        parts = max(1, min(counts))
        return self._results(own, base, tolerance / math.sqrt(parts))

    def _written(self, values: Any) -> Any:
        return bits(values) != self._poison

    def _is_regular(self, slots: Any) -> bool:
        """Return whether the reference writes the same elements of all its slots, and no others."""
        written = self._written(slots)
        inside = int(written.sum())
        same = bool((written.all(1) == written.any(1)).all())
        return same and inside > 0 and inside == int(self._written(self._expected).sum())

    def _coverage(self, own: Any, base: Any) -> tuple[str, str] | None:
        """Check that all slots of the config are written where the reference writes its own."""
        written, due = self._written(own), self._written(base).any(1)
        groups = min(own.shape[0], due.shape[0])
        common = due[:groups, None]
        missing = int((common & ~written[:groups]).sum())
        missing += int(due.sum() - common.sum()) * own.shape[1]
        total = int(due.sum()) * own.shape[1]
        if missing:
            return "unwritten", (
                f"{missing:,} of {total:,} elements of this config's slots of {self._name} "
                "stay unwritten"
            )
        beyond = int(self._written(self._actual).sum()) - total
        if beyond:
            return "stray_write", (
                f"{beyond:,} elements of {self._name} outside this config's slots are written"
            )
        return None

    def _not_finite(self, own: Any, base: Any) -> tuple[str, str] | None:
        if not own.dtype.is_floating_point:
            return None
        wrong = int((self._written(own) & ~own.float().isfinite()).sum())
        if not wrong or not bool(base.float().isfinite()[self._written(base)].all()):
            return None
        return "wrong_output", f"{wrong:,} elements of {self._name} are NaN or infinite"

    def _results(self, own: Any, base: Any, tolerance: float) -> tuple[str, str] | None:
        """Compare the sums over slots, relative to those of magnitudes."""
        sums, expected = self._total(own), self._total(base)
        sizes = self._total(base, sizes=True)
        groups = max(own.shape[0], base.shape[0])  # those there is no room for hold nothing
        sums, expected, sizes = (_padded(v, groups) for v in (sums, expected, sizes))
        magnitude = Magnitude.of(sizes)
        worst, place, wrong = -1.0, (0, 0), 0
        for piece in pieces(sums.shape):
            c, r = sums[piece], expected[piece]
            deviations = (c - r).abs() / (r.abs() + magnitude.around(piece, r))
            deviations.masked_fill_(~(c.isfinite() & r.isfinite()), math.inf)
            deviations.masked_fill_((c == r) | (c.isnan() & r.isnan()), 0.0)
            wrong += int((deviations > tolerance).sum())
            if (most := float(deviations.amax())) > worst:
                at = divmod(int(deviations.argmax()), deviations.shape[1])
                place = (at[0] + piece[0].start, at[1] + piece[1].start)
                worst = most
        if not wrong:
            return None
        total = f"{int((sizes > 0).sum()):,} sums over the slots of {self._name}"
        return "wrong_output", (
            f"{wrong:,} of {total} differ from the "
            f"default config's, most at {[*place]}: {float(sums[place]):.6g} instead of "
            f"{float(expected[place]):.6g}, off by {worst:.3g} of its magnitude where "
            f"{tolerance:.3g} may be; if both are right, give tolerance="
        )

    def _total(self, slots: Any, *, sizes: bool = False) -> Any:
        """Return the sums over slots, or those of magnitudes, as 64-bit floats."""
        import torch

        written = None if self._poison is None else self._written(slots)
        if not slots.dtype.is_floating_point or slots.dtype.itemsize == 1:
            slots = slots.to(torch.float64)
        if written is not None and not bool(written.all()):
            slots = slots.masked_fill(~written, 0.0)
        if sizes:
            return torch.linalg.vector_norm(slots, 1, dim=1, dtype=torch.float64)
        return slots.sum(1, dtype=torch.float64)


def _padded(sums: Any, groups: int) -> Any:
    """Append sums of 0, for as many groups."""
    import torch

    return torch.nn.functional.pad(sums, (0, 0, 0, groups - sums.shape[0]))
