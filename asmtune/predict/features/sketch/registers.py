"""Registers that a thread needs: an estimate of what ptxas allocates.

The constants were measured over the recordings, whose cubins state what was allocated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Final

from asmtune.core.hardware.model import Target
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.sketch.kernel import SketchedKernel
from asmtune.predict.features.sketch.layouts import kind_of, number
from asmtune.predict.features.sketch.values import Kind, is_pointwise

BASE: Final = 12.0
"""Registers that every kernel needs beside its values."""

MARGIN: Final = 1.15
"""Factor on the estimate. A ranking puts first what is estimated too low, so that an unbiased
estimate chooses worse: 0.883 of the best speed at the first pick (`roofline`, 355 recorded tasks)
against 0.902 with this factor."""

_UNIT: Final = 8
"""ptxas gives registers in units of this many."""

_SLACK: Final = 0.2
"""Share of the cap that ptxas can save in registers before it spills."""

_SPILLED: Final = 1.4
"""Words in local memory for each register beyond that."""

POINTER_SHARE: Final = 0.2
"""Share of addresses, other than loops' own values, that are kept in registers."""

INTEGER_SHARE: Final = 0.25
"""The same of integers that are sums and products of indices: offsets and bounds."""

K_STEPS: Final = 1
"""Steps along K whose operands of mma.sync are in registers at once."""

FMA_STEPS: Final = 4
"""Elements along K whose operands of a product without tensor cores are in registers at once."""

COPY_WORDS: Final = 1.0
"""Words for each asynchronous copy of a loop: its address in shared memory."""

STORE_WORDS: Final = 0.5
"""Words for each store to shared memory of a loop: its address."""

_MMA_BITS: Final = 256
"""Bits of a row of an operand along K that one mma.sync takes."""

_FREE: Final = frozenset({"arith.constant", "tt.make_range", "ub.poison"})
_SPREADING: Final = frozenset({"tt.splat", "tt.broadcast", "tt.expand_dims"})
_ALIASES: Final = _SPREADING | frozenset(
    {"tt.trans", "tt.reshape", "ttg.convert_layout", "ttng.warp_group_dot_wait", "tt.bitcast",
     "arith.bitcast", "arith.extsi", "arith.extui"}
)  # fmt: skip
"""Operations whose result mostly is their operand, in the same registers."""

_PRODUCTS: Final = frozenset({"tt.dot", "ttng.warp_group_dot"})
_LOADS: Final = frozenset(
    {"tt.load", "ttg.local_load", "tt.gather", "tt.atomic_rmw", "tt.atomic_cas", "tt.histogram"}
)
_DIVISIONS: Final = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"})
_FENCES: Final = _PRODUCTS | frozenset(
    {"tt.reduce", "tt.scan", "tt.gather", "tt.histogram", "tt.store", "tt.atomic_rmw",
     "tt.atomic_cas", "ttg.local_alloc", "ttg.local_store", "ttg.convert_layout", "gpu.barrier",
     "ttg.async_wait", "ttng.wait_barrier"}
)  # fmt: skip
"""Operations, beside those with regions, that ptxas moves no load across. Element-wise work on both
sides of one is not merged."""

_WHOLE: Final = _PRODUCTS | frozenset({"tt.scan", "ttg.convert_layout", "scf.for", "scf.yield"})
"""Operations that need all elements of an operand at once."""


def allocated(target: Target, wanted: float, warps: int, cap: int | None) -> tuple[int, float]:
    """Return the registers as allocated, and the words that do not fit."""
    per_thread = target.registers_per_sm // (warps * target.warp_size) // _UNIT * _UNIT
    most = min(target.max_registers_per_thread, max(_UNIT, per_thread))
    most = min(most, int(cap)) if cap else most
    units = -(-int(wanted) // _UNIT) * _UNIT
    return min(units, most), max(0.0, wanted - most * (1.0 + _SLACK)) * _SPILLED


class LiveRegisters:
    """The words of registers that a thread needs: an estimate of what an allocator would need.

    Values live from the operation that makes them to the last that reads them; values that a loop
    reads from outside live until its end. A result takes the place of operands that are read for
    the last time. ptxas moves code, and this counts:

    - Loads go to the front of their block, as far as addresses are known and no fence is crossed.
    - Element-wise results that are used up before the next fence exist one element at a time.
    - Integers that are sums and products of indices are mostly computed again where they are used.
    """

    def __init__(self, kernel: SketchedKernel) -> None:
        self._kernel = kernel
        self._born: dict[int, int] = {}
        self._dies: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        self._costly: dict[int, bool] = {}
        self._whole: set[int] = set()
        self._fences: list[int] = []
        self._loops: list[tuple[int, int]] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._clock = 0
        for body in kernel.values.tree.blocks:
            self._walk(body)
        self._extend()

    def _walk(self, body: Body) -> None:
        front = self._clock
        for argument in body.arguments:
            self._born.setdefault(argument, self._clock)
        for node in body.nodes:
            self._clock += 1
            known = max((self._known.get(value, 0) for value in node.operands), default=0)
            at = max(front, known) if node.name == "tt.load" else self._clock
            self._read(node, at)
            if node.regions or (node.name in _FENCES and not self._stays(node)):
                self._fences.append(self._clock)
                self._walk_regions(node)
                front = self._clock
            self._make(node, at if node.name == "tt.load" else self._clock)
            for result in node.results:
                early = _is_single(node) or not node.operands
                self._known[result] = known if early else self._clock

    def _read(self, node: Node, at: int) -> None:
        whole = node.name in _WHOLE and not self._stays(node)
        for root in map(self._root, node.operands):
            self._dies[root] = max(at, self._dies.get(root, 0))
            if whole:
                self._whole.add(root)

    def _walk_regions(self, node: Node) -> None:
        if node.name in ("tt.reduce", "tt.scan"):
            return
        start = self._clock
        for region in node.regions:
            for inner in region:
                self._walk(inner)
        if node.loop >= 0:
            self._clock += 1
            self._fences.append(self._clock)
            self._loops.append((start, self._clock))
            self._spans[node.loop] = (start, self._clock)

    def _make(self, node: Node, at: int) -> None:
        for place, result in enumerate(node.results):
            if node.name in _ALIASES and place < len(node.operands) and self._stays(node):
                self._roots[result] = self._root(node.operands[place])
            self._born.setdefault(result, at)

    def _stays(self, node: Node) -> bool:
        """Say whether an operation's result can lie in its operand's registers."""
        if node.name != "ttg.convert_layout":
            return node.name in _ALIASES
        layouts = [self._kernel.values.layout(v) for v in (node.operands[0], node.results[0])]
        return layouts[0].warps == layouts[1].warps and layouts[0].lanes == layouts[1].lanes

    def _root(self, value: int) -> int:
        while value in self._roots:
            value = self._roots[value]
        return value

    def _extend(self) -> None:
        """Keep the values that a loop reads from outside alive until the loop's end."""
        for value, died in self._dies.items():
            born = self._born.get(value, 0)
            for start, end in self._loops:
                if born < start < died <= end:
                    self._dies[value] = max(self._dies[value], end)

    def peak(self) -> float:
        """Return the words at the point where most are needed."""
        changes: defaultdict[int, float] = defaultdict(float)
        for value, died in self._dies.items():
            words = self._words(value)
            if words and value not in self._roots:
                changes[self._born.get(value, 0)] += words
                changes[died] -= words
        for start, end, words in self._places():
            changes[start] += words
            changes[end] -= words
        most = now = 0.0
        for moment in sorted(changes):
            now += changes[moment]
            most = max(most, now)
        return most

    def _places(self) -> list[tuple[int, int, float]]:
        """Return loops with the words that addresses in shared memory take."""
        places = []
        for loop, (start, end) in self._spans.items():
            sums = self._kernel.sums[loop + 1]
            stores = sum(
                number
                for moved, number in sums.traffic.items()
                if (moved.space, moved.direction) == ("shared", "store")
            )
            copies = sums.classes[OpClass.ASYNC_COPY]
            places.append((start, end, COPY_WORDS * copies + STORE_WORDS * stores))
        return places

    def _words(self, value: int) -> float:
        values = self._kernel.values
        owner, _ = values.tree.sources[value]
        if _is_free(owner):
            return 0.0
        kind = values.kind(value)
        if kind.bits <= 1 or kind.role not in ("tensor", "scalar"):
            return 0.0
        if kind.role == "scalar":
            return max(1.0, kind.bits / 32)
        words = max(1.0, self._kernel.elements(value) * kind.bits / 32)
        if not isinstance(owner, Node):
            return words
        if kind.is_pointer:
            # Made one at a time where they are used, or as a base and constants.
            return min(words, 2.0 + POINTER_SHARE * words)
        if owner.name == "tt.load" and self._kernel.runs.get(owner, (0, 2))[1] == 1:
            return max(words, self._kernel.elements(value))  # none shares a register with another
        if owner.name == "ttg.local_load" and kind_of(kind.encoding) == "dot_op":
            return words * _share_along_k(kind)
        if self._is_used_up(value, owner):
            return min(words, max(1.0, kind.bits / 32))
        if kind.element.startswith("i") and kind.bits >= 16 and not self._is_costly(value):
            return min(words, 2.0 + INTEGER_SHARE * words)
        return words

    def _is_used_up(self, value: int, owner: Node) -> bool:
        """Say whether a result is made element by element, each where it is used."""
        if not _is_single(owner) or value in self._whole:
            return False
        place = bisect_right(self._fences, self._born.get(value, 0))
        return place == len(self._fences) or self._fences[place] >= self._dies.get(value, 0)

    def _is_costly(self, value: int) -> bool:
        """Say whether a number is costly to compute again: loaded, divided, or a loop's own."""
        if value not in self._costly:
            owner, _ = self._kernel.values.tree.sources[value]
            self._costly[value] = isinstance(owner, Node) and (
                owner.name in _LOADS
                or owner.name in _DIVISIONS
                or bool(owner.regions)
                or any(self._is_costly(operand) for operand in owner.operands)
            )
        return self._costly[value]


def _is_free(owner: Node | Body) -> bool:
    """Say whether a value needs no register: a constant, or an argument of the kernel."""
    if isinstance(owner, Body):
        return owner.owner is None  # it is read from constant memory
    return owner.name in _FREE


def _is_single(node: Node) -> bool:
    """Say whether each result element needs the operands' elements at its place alone."""
    return is_pointwise(node) or node.name in _SPREADING


def _share_along_k(kind: Kind) -> float:
    """Return the share of an operand of a product that is in registers at once."""
    k = kind.shape[-1 if number(kind.encoding, "opIdx", 0) == 0 else -2]
    on_tensor_cores = "nvidia_mma" in kind.encoding
    steps = K_STEPS * _MMA_BITS // kind.bits if on_tensor_cores else FMA_STEPS
    return min(1.0, steps / k)
