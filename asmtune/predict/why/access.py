"""Access patterns by line of the source: sectors that a warp's requests ask for, and use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import PurePath
from typing import Final, Literal

from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.ttir.analysis import LaunchArguments
from asmtune.ir.ttir.arguments import bind
from asmtune.ir.ttir.memory import KINDS, Kind, roots
from asmtune.ir.ttir.plan import Flow
from asmtune.ir.ttir.tree import Node
from asmtune.ir.ttir.work import MemoryAccess, Work
from asmtune.predict.features.requests import SECTOR
from asmtune.predict.features.sketch.demand import MEMORY
from asmtune.predict.features.sketch.kernel import SketchedKernel
from asmtune.predict.features.sketch.layouts import combined
from asmtune.predict.features.sketch.memory import memory_bits
from asmtune.predict.why.addresses import (
    Addresses,
    Linear,
    Place,
    Symbols,
    sectors,
    stretches,
)

Pattern = Literal["sequential", "strided", "gather", "broadcast", "single"]

_REQUESTS: Final = 16
"""Requests of a warp that are looked at, of each operation: they are alike but for masks."""

_TMA: Final[dict[str, Kind]] = {
    "ttng.async_tma_copy_global_to_local": "read",
    "ttng.async_tma_copy_local_to_global": "write",
    "ttng.async_tma_gather": "read",
    "ttng.async_tma_scatter": "write",
    "ttng.async_tma_reduce": "atomic",
}
_BY_INDEX: Final = ("ttng.async_tma_gather", "ttng.async_tma_scatter")
_MAKES: Final = "ttng.tensormap_create"
_Request = tuple[list[Linear], int]
"""Where the threads of a warp begin, and the bytes of each."""


@dataclass(frozen=True)
class AccessPattern:
    """A load, store or atomic of a kernel, as a warp's request has it.

    Attributes:
        line: of the source.
        file: name of the source, of a line that is not in the kernel's own file; "" otherwise.
        argument: the names of the arguments that the address may come from; "" if none is known.
        stride_bytes: between the elements of neighbours, of a strided access.
        run_bytes: neighbouring bytes that a request covers without a gap, the fewest.
        asked, used: sectors that a request touches, and sectors' worth of bytes that it wants.
        tile_share: of the bytes of sectors that requests of a tile touch together, those used; L1
            may keep a sector from one request to the next.
        by: "TMA" if the copy engine reads whole tiles, "cp.async" or "".
        sources: lines that load what the address depends on.
        bytes: that one program asks for at this line.
    """

    line: int
    file: str
    kind: Kind
    argument: str
    pattern: Pattern
    stride_bytes: int
    run_bytes: int
    asked: float
    used: float
    tile_share: float
    by: str
    sources: tuple[int, ...]
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
        verb = {"read": "load of", "write": "store to", "atomic": "atomic update of"}[self.kind]
        where = f"{self.file} line" if self.file else "line"
        return f"{where} {self.line}: {verb} {self.argument or 'memory'}: {self.words}"

    @property
    def words(self) -> str:
        """Return the pattern and the sectors, as text."""
        pattern: str = self.pattern
        if pattern == "strided":
            pattern = f"strided by {self.stride_bytes:,} B"
        elif pattern == "single":
            pattern = "one element"
        elif pattern == "broadcast":
            pattern = "broadcast: all threads read one address"
            if self.run_bytes > SECTOR or self.asked > 1:
                pattern = "broadcast: rows of the tile read the same addresses"
        elif pattern == "gather":
            pattern = "scatter" if self.kind != "read" else pattern
            lines = ", ".join(map(str, self.sources))
            pattern += f": address from what line{'s' * (len(self.sources) > 1)} {lines} loads"
        elif self.by == "TMA":
            pattern = f"sequential: rows of {self.run_bytes:,} B"
        whose = "a box by TMA" if self.by == "TMA" else "a warp's request"
        in_all = ""
        if self.tile_share > 1.5 * self.share and self.share <= 0.5:
            in_all = f", a tile's requests together {self.tile_share:.0%}"
        asked, used = (format(n, ",.0f" if n >= 1000 else ".3g") for n in (self.asked, self.used))
        return (
            f"{pattern}: {asked} sector{'s' * (self.asked != 1)} asked for {whose}, "
            f"{used} used ({self.share:.0%}){in_all}"
        )


class KernelAccesses:
    """Loads, stores and atomics of a compiled config in one launch.

    Raises:
        ParseError: the artifact's TTGIR cannot be read.
    """

    def __init__(
        self, artifact: Artifact, call: LaunchArguments, work: Work, target: Target
    ) -> None:
        text = artifact.outputs["ttgir"]
        self.kernel = SketchedKernel(text, int(artifact.metadata["num_warps"]), target)
        tree = self.kernel.values.tree
        self.call, self.work, self.target = call, work, target
        self._flow = Flow(tree)
        self._parameters = bind(tree.module, call.arguments, call.tensor_bytes)
        self.symbols = Symbols(self._flow)
        x, y, z = call.grid
        self.addresses = self.of_program((x // 2, y // 2, z // 2))

    def of_program(self, program: tuple[int, int, int]) -> Addresses:
        """Return the addresses of another program of the launch."""
        values = self.kernel.values
        own = values, self._flow, self._parameters, self.symbols
        return Addresses(*own, program, self.call.grid)

    @cached_property
    def patterns(self) -> tuple[AccessPattern, ...]:
        """Return the patterns in the order of lines; copies of a pipelined load count once."""
        patterns: dict[tuple[int, str, str], AccessPattern] = {}
        for node, item in self.operations():
            pattern = self._pattern(node, item)
            if pattern is not None:
                patterns[pattern.line, pattern.kind, pattern.argument] = pattern
        return tuple(sorted(patterns.values(), key=lambda pattern: (pattern.file, pattern.line)))

    def operations(self) -> Iterator[tuple[Node, MemoryAccess]]:
        """Yield operations on global memory with what one program asks for at their line."""
        by_place = {(item.line, item.kind, item.arguments): item for item in self.work.accesses}
        for node in self.kernel.values.tree.nodes():
            position = self.kernel.values.tree.line_of(node)
            if position is not None and (node.name in MEMORY or node.name in _TMA):
                kind = _TMA.get(node.name) or KINDS.get(node.name) or "read"
                item = by_place.get((position[1], kind, self.arguments(node)))
                if item is not None and item.line:
                    yield node, item

    def start(self, node: Node, addresses: Addresses) -> tuple[Linear, ...]:
        """Return where a program's first tile begins: its address, or a box's coordinates."""
        values = self.kernel.values
        scalars = [v for v in node.operands[1:] if values.kind(v).role == "scalar"]
        own = scalars if node.name in _TMA else node.operands[:1]
        return tuple(addresses.at(v, (0,) * len(values.kind(v).shape)) for v in own)

    def _pattern(self, node: Node, item: MemoryAccess) -> AccessPattern | None:
        if node.name in _TMA:
            return self._boxes(node, item)
        requests = self._requests(node)
        if not requests:
            return None
        counts = [sectors(starts, size) for starts, size in requests]
        asked = sum(count[0] for count in counts) / len(counts)
        used = sum(count[1] for count in counts) / len(counts)
        starts, size = requests[0]
        pattern, stride, run = self._classify(node, starts, size)
        if pattern is None:
            return None
        loaded = frozenset().union(*map(self.symbols.lines, starts))
        return AccessPattern(
            line=item.line,
            file=self._file(node),
            kind=item.kind,
            argument=self._names(item),
            pattern=pattern,
            stride_bytes=stride,
            run_bytes=run,
            asked=asked,
            used=used / SECTOR,
            tile_share=self._tile_share(node, requests),
            by="cp.async" if node.name.startswith("ttg.async") else "",
            sources=tuple(sorted(loaded)),
            bytes=item.bytes,
        )

    def _tile_share(self, node: Node, requests: Sequence[_Request]) -> float:
        """Return the share that all requests of a tile use of the sectors that they touch."""
        shape = self.kernel.values.kind(node.operands[0]).shape
        element = memory_bits(self.kernel.values, node) // 8
        extents = [extent for extent in shape if extent > 1]
        for extent, step in zip(extents, self.steps(node), strict=True):
            if step is not None and abs(step) == element and extent * element >= SECTOR:
                return 1.0
        starts = {start for own, _ in requests for start in own}
        ordered = sorted(starts, key=lambda start: (start.symbols, start.known))
        touched, wanted = sectors(ordered, requests[0][1])
        return min(1.0, wanted / (touched * SECTOR))

    def _file(self, node: Node) -> str:
        tree = self.kernel.values.tree
        own = tree.module.position(tree.kernel.location)
        position = tree.line_of(node)
        is_other = own is not None and position is not None and position[0] != own[0]
        return PurePath(position[0]).name if is_other and position is not None else ""

    def _names(self, item: MemoryAccess) -> str:
        names = {use.index: use.name for use in self.work.arguments}
        return ", ".join(filter(None, (names.get(place, "") for place in item.arguments)))

    def arguments(self, node: Node) -> tuple[int, ...]:
        """Return the positions of the arguments that an operation's address may come from."""
        places, _ = roots(self._flow, node.operands[0])
        if places or node.name not in _TMA:
            return places
        # A descriptor made in the kernel lies in scratch memory, where an operation writes it.
        reached = self._flow.computed_from(node.operands[:1])
        makers = (one for one in self.kernel.values.tree.nodes() if one.name == _MAKES)
        made = (one for one in makers if not reached.isdisjoint(one.operands[:1]))
        return next((roots(self._flow, one.operands[1])[0] for one in made), ())

    def _boxes(self, node: Node, item: MemoryAccess) -> AccessPattern | None:
        """Describe a copy of the hardware: boxes of a tile whose last axis is contiguous."""
        kinds = [self.kernel.values.kind(value) for value in node.operands]
        buffer = next((kind for kind in kinds if kind.role == "memory"), None)
        if buffer is None or not buffer.shape:
            return None
        size = max(1, buffer.bits // 8)
        run = buffer.shape[-1] * size
        rows = item.elements * size / run
        by_index = node.name in _BY_INDEX
        loaded: frozenset[int] = frozenset()
        for value, kind in zip(node.operands, kinds, strict=True):
            if kind.role in ("tensor", "scalar") and not kind.is_pointer:
                place = (0,) * len(kind.shape)
                loaded |= self.symbols.lines(self.addresses.at(value, place))
        asked, used = rows * -(-run // SECTOR), rows * run / SECTOR
        return AccessPattern(
            line=item.line,
            file=self._file(node),
            kind=item.kind,
            argument=self._names(item),
            pattern="gather" if by_index or loaded else "sequential",
            stride_bytes=0,
            run_bytes=run,
            asked=asked,
            used=used,
            tile_share=used / asked,
            by="TMA",
            sources=tuple(sorted(loaded)) or (item.line,),
            bytes=item.bytes,
        )

    def _requests(self, node: Node) -> list[_Request]:
        """Return requests of the first warp: where its threads begin, and bytes of each thread.

        Threads that a mask switches off are left out, unless it switches all off.
        """
        values, pointer = self.kernel.values, node.operands[0]
        bits = memory_bits(values, node)
        axis, run = self.kernel.runs[node]
        while run > 1 and not self._is_run(pointer, axis, run, bits // 8):
            run //= 2
        masks = [one for one in node.operands[1:] if values.kind(one).bits == 1]
        requests, everything = [], []
        for places in self._places(node, axis, run):
            starts = [self.addresses.at(pointer, place) for place in places]
            kept = [
                start
                for start, place in zip(starts, places, strict=True)
                if all(self._is_on(mask, place) for mask in masks)
            ]
            everything.append((starts, run * bits // 8))
            if kept:
                requests.append((kept, run * bits // 8))
        return requests or everything

    def _is_run(self, pointer: int, axis: int, run: int, size: int) -> bool:
        """Return whether that many neighbours along an axis lie beside each other in memory."""
        origin = (0,) * len(self.kernel.values.kind(pointer).shape)
        last = (*origin[:axis], run - 1, *origin[axis + 1 :])
        first, end = self.addresses.at(pointer, origin), self.addresses.at(pointer, last)
        return end == first.plus(Linear((run - 1) * size))

    def _is_on(self, mask: int, place: Place) -> bool:
        kind = self.kernel.values.kind(mask)
        number = self.addresses.at(mask, place if kind.shape else ())
        return bool(number.symbols) or bool(number.known)

    def _places(self, node: Node, axis: int, run: int) -> Iterator[list[Place]]:
        """Yield the tile's places where the lanes of a warp begin, one list a request."""
        values = self.kernel.values
        shape = values.kind(node.operands[0]).shape
        if not shape:
            yield [()]
            return
        layout = values.layout(node.operands[0])
        origin = (0,) * len(shape)
        outer = [
            basis
            for basis in layout.registers
            if any(basis) and not (basis[axis] and basis[axis] < run and sum(map(bool, basis)) == 1)
        ]
        for number in range(min(_REQUESTS, 1 << len(outer))):
            first = combined(outer, number, origin)
            yield [combined(layout.lanes, lane, first) for lane in range(1 << len(layout.lanes))]

    def _classify(
        self, node: Node, starts: Sequence[Linear], size: int
    ) -> tuple[Pattern | None, int, int]:
        """Return the pattern of a request, its stride and its shortest run of bytes."""
        known = {start.symbols for start in starts}
        distinct = sorted({start.known for start in starts})
        if any(map(self.symbols.is_loaded, starts)):
            return "gather", 0, size
        if len(known) > 1:
            return None, 0, 0  # a distance that nothing tells
        if self._elements(node) == 1:
            return "single" if node.name != "tt.load" else "broadcast", 0, size
        if len(distinct) == 1:
            # A tile of which the mask leaves one element is no broadcast.
            return "broadcast" if len(starts) > 1 else "single", 0, size
        runs = stretches(distinct, size)
        if self._repeats(node):
            return "broadcast", 0, min(runs)
        if len(runs) == 1 or min(runs) >= SECTOR:
            return "sequential", 0, min(runs)
        gaps = Counter(after - before for before, after in pairwise(distinct))
        common = max((gap for gap in gaps if gap > size), key=lambda gap: gaps[gap])
        element = memory_bits(self.kernel.values, node) // 8
        steps = [abs(step) for step in self.steps(node) if step and abs(step) > element]
        return "strided", min(steps, default=common), min(runs)

    def _elements(self, node: Node) -> int:
        return math.prod(self.kernel.values.kind(node.operands[0]).shape)

    def _repeats(self, node: Node) -> bool:
        """Return whether a tile reads the same addresses again along one of its axes."""
        return 0 in self.steps(node)

    def steps(self, node: Node) -> list[int | None]:
        """Return the bytes between neighbours along each axis of more than one element.

        None stands for a distance that nothing tells.
        """
        shape = self.kernel.values.kind(node.operands[0]).shape
        origin = (0,) * len(shape)
        first = self.addresses.at(node.operands[0], origin)
        places = (
            (*origin[:axis], 1, *origin[axis + 1 :]) for axis, size in enumerate(shape) if size > 1
        )
        between = (self.addresses.at(node.operands[0], place).plus(first, -1) for place in places)
        return [None if step.symbols else step.known for step in between]
