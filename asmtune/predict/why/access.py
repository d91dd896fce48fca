"""Access patterns by line of the source, from the layouts and strides that the features count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.core.hardware.model import Target
from asmtune.ir.ttir.memory import Kind
from asmtune.ir.ttir.strides import Repeated, Step
from asmtune.ir.ttir.work import MemoryAccess, Work
from asmtune.predict.features.cycles import DIRECTIONS, AccessedTile, accessed_tiles
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.requests import SECTOR, Request, touched

Pattern = Literal["sequential", "strided", "gather", "broadcast", "single"]

UNUSED: Final = 0.5
"""Share of a request's sectors that is used, up to which an access is uncoalesced."""

_VERBS: Final = {"read": "load of", "write": "store to", "atomic": "atomic update of"}


@dataclass(frozen=True)
class AccessPattern:
    """A load, store or atomic of a kernel, as a warp's request has it.

    Attributes:
        line: of the source.
        file: name of the source, of a line that is not in the kernel's own file; "" otherwise.
        kind: what the operation does.
        argument: the names of the arguments that the address may come from; "" if none is known.
        pattern: how the elements of a request lie in memory.
        stride_bytes: between the elements of neighbours, of a strided access.
        asked, used: sectors that a request touches, and sectors' worth of bytes that it wants.
        tile_share: of the bytes of sectors that requests of a tile touch together, those used; L1
            may keep a sector from one request to the next.
        by: "TMA" if the copy engine reads whole tiles, "cp.async" or "".
        bytes: that one program asks for by this operation.
    """

    line: int
    file: str
    kind: Kind
    argument: str
    pattern: Pattern
    stride_bytes: int
    asked: float
    used: float
    tile_share: float
    by: str
    bytes: float

    @property
    def share(self) -> float:
        """Share of the sectors' bytes that are used."""
        return min(1.0, self.used / self.asked) if self.asked else 1.0

    @property
    def asked_bytes(self) -> float:
        """Return the bytes of the sectors that the requests of one program ask for."""
        return self.bytes / self.share

    @property
    def wasted_bytes(self) -> float:
        """Return the bytes of sectors that one program asks for and does not use."""
        return self.asked_bytes - self.bytes

    def __str__(self) -> str:
        where = f"{self.file} line" if self.file else "line"
        return (
            f"{where} {self.line}: {_VERBS[self.kind]} {self.argument or 'memory'}: {self._words}"
        )

    @property
    def _words(self) -> str:
        pattern: str = self.pattern
        if pattern == "strided":
            pattern = f"strided by {self.stride_bytes:,} B"
        elif pattern == "single":
            pattern = "one element"
        elif pattern == "broadcast":
            pattern = "broadcast: threads read the same addresses"
        elif pattern == "gather":
            pattern = "gather" if self.kind == "read" else "scatter"
            pattern += ": the address is loaded"
        whose = "a box by TMA" if self.by == "TMA" else "a warp's request"
        in_all = ""
        if self.tile_share > 1.5 * self.share and self.share <= UNUSED:
            in_all = f", a tile's requests together {self.tile_share:.0%}"
        asked, used = (format(n, ",.0f" if n >= 1000 else ".3g") for n in (self.asked, self.used))
        return (
            f"{pattern}: {asked} sector{'s' * (self.asked != 1)} asked for {whose}, "
            f"{used} used ({self.share:.0%}){in_all}"
        )


def access_patterns(profile: Profile, work: Work, target: Target) -> tuple[AccessPattern, ...]:
    """Return the patterns in the order of lines; copies of a pipelined load count once.

    An access whose neighbours lie at an unknown distance is left out.
    """
    moved = _Moved(profile, target)
    names = {use.index: use.name for use in work.arguments}
    found: dict[tuple[str, int, str, str], AccessPattern] = {}
    for item, tile in zip(work.accesses, accessed_tiles(work), strict=True):
        argument = ", ".join(filter(None, (names.get(place, "") for place in item.arguments)))
        pattern = moved.pattern(item, tile, argument) if item.line else None
        if pattern is not None:
            found[item.file, item.line, item.kind, argument] = pattern
    return tuple(sorted(found.values(), key=lambda pattern: (pattern.file, pattern.line)))


class _Moved:
    """Requests and widths of a profile, matched to the accesses of a launch."""

    def __init__(self, profile: Profile, target: Target) -> None:
        self._requests, self._target = profile.requests, target
        self._met: Counter[tuple[int, str, int]] = Counter()
        self._widths: dict[tuple[int, str], int] = {}
        self._copied: set[tuple[int, str]] = set()
        for traffic in (each for segment in profile.segments for each in segment.traffic):
            if traffic.space == "global":
                place = traffic.line, traffic.direction
                self._widths[place] = max(traffic.bytes, self._widths.get(place, 0))
                if traffic.copies:
                    self._copied.add(place)

    def pattern(
        self, item: MemoryAccess, tile: AccessedTile, argument: str
    ) -> AccessPattern | None:
        """Return the pattern of an access; None where it is unknown."""
        place = item.line, DIRECTIONS[item.kind]
        width = self._widths.get(place)
        if width is None:
            return _box(item, argument)
        by = "cp.async" if place in self._copied else ""
        about = item.line, item.file, item.kind, argument
        if item.elements == 1:
            one: Pattern = "broadcast" if item.kind == "read" else "single"
            share = item.element_bytes / SECTOR
            return AccessPattern(*about, one, 0, 1.0, share, share, by, item.bytes)
        request = self._request(place, item.elements)
        if request is None or len(request.shape) != len(tile.strides):
            return None
        return _pattern(item, request, tile, width, about, by)

    def _request(self, place: tuple[int, str], elements: int) -> Request | None:
        """Return the next request of a line; tiles of one size follow each other in both texts."""
        alike = [r for r in self._requests.get(place, ()) if math.prod(r.shape) == elements]
        met = self._met[*place, elements]
        self._met[*place, elements] += 1
        return alike[min(met, len(alike) - 1)] if alike else None


def _box(item: MemoryAccess, argument: str) -> AccessPattern | None:
    """Describe a copy of the hardware, whose boxes are contiguous along their last axis."""
    if "descriptor" not in item.operation and "tma" not in item.operation:
        return None
    sectors = item.elements * item.element_bytes / SECTOR
    pattern: Pattern = "gather" if item.by_index else "sequential"
    about = item.line, item.file, item.kind, argument
    return AccessPattern(*about, pattern, 0, math.ceil(sectors), sectors, 1.0, "TMA", item.bytes)


def _pattern(
    item: MemoryAccess,
    request: Request,
    tile: AccessedTile,
    width: int,
    about: tuple[int, str, Kind, str],
    by: str,
) -> AccessPattern | None:
    one = touched(request, tile.strides, width).within(tile.argument_bytes, tile.share)
    size = item.element_bytes
    lanes = sum(_reaches(basis, tile.strides) for basis in request.lanes)
    used = min(one.sectors, (1 << lanes) * width / SECTOR)
    steps = [
        None if step is None else abs(step.step if isinstance(step, Repeated) else step) * size
        for step, extent in zip(tile.strides, request.shape, strict=True)
        if extent > 1
    ]
    pattern: Pattern = "sequential"
    stride = 0
    if item.by_index:
        pattern = "gather"
    elif None in steps:
        return None
    elif 0 in steps:
        pattern = "broadcast"
    elif used <= UNUSED * one.sectors:
        pattern, stride = "strided", min((s for s in steps if s and s > size), default=size)
    share = used / one.sectors
    in_all = 1.0 if _is_contiguous(steps, request.shape, size) else min(1.0, share / one.fresh)
    numbers = one.sectors, used, in_all
    return AccessPattern(*about, pattern, stride, *numbers, by, item.bytes)


def _reaches(basis: tuple[int, ...], strides: tuple[Step, ...]) -> bool:
    """Return whether a bit of a lane's number changes its address."""
    return any(at and step != 0 for at, step in zip(basis, strides, strict=True))


def _is_contiguous(steps: list[int | None], shape: tuple[int, ...], size: int) -> bool:
    """Return whether a tile fills whole sectors along one of its axes."""
    extents: Iterator[int] = (extent for extent in shape if extent > 1)
    return any(
        step == size and extent * size >= SECTOR
        for step, extent in zip(steps, extents, strict=True)
    )
