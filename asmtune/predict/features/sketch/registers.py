"""Registers a thread, before a register allocator has been asked: the most that live at once.

Values live from the operation that makes them to the last that reads them; what a loop
reads from outside lives until its end. An operation's result takes the place of
operands that it is the last to read, since machine code works on one element after
another.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.sketch.encodings import kind_of
from asmtune.predict.features.sketch.kernel import SketchedKernel

_ALIASES: Final = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape", "ttg.convert_layout",
     "ttng.warp_group_dot_wait", "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui"}
)  # fmt: skip
"""Operations whose result mostly is their operand, in the same registers."""

POINTER_SHARE: Final = 0.2
"""Of addresses outside loops' own values that are kept in registers (measured)."""

K_STEPS: Final = 2
"""Steps along K whose operands of mma.sync are in registers at once (measured)."""

COPY_WORDS: Final = 1.0
"""For each asynchronous copy of a loop: its place in shared memory."""

STORE_WORDS: Final = 0.5
"""For each store to shared memory of a loop, likewise (measured)."""

_FREE: Final = frozenset({"arith.constant", "tt.make_range", "ub.poison"})


def live_registers(kernel: SketchedKernel) -> float:
    """Words of registers that a thread needs at the point where it needs most."""
    return _Lives(kernel).peak()


class _Lives:
    def __init__(self, kernel: SketchedKernel) -> None:
        self._kernel = kernel
        self._born: dict[int, int] = {}
        self._dies: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        self._loops: list[tuple[int, int]] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._clock = 0
        for body in kernel.values.tree.blocks:
            self._walk(body)
        self._extend()

    def _walk(self, body: Body) -> None:
        for argument in body.arguments:
            self._born.setdefault(argument, self._clock)
        for node in body.nodes:
            self._clock += 1
            for value in node.operands:
                self._dies[self._root(value)] = self._clock
            start = self._clock
            if node.name not in ("tt.reduce", "tt.scan"):
                for region in node.regions:
                    for inner in region:
                        self._walk(inner)
            if node.loop >= 0:
                self._clock += 1
                self._loops.append((start, self._clock))
                self._spans[node.loop] = (start, self._clock)
            self._make(node)

    def _make(self, node: Node) -> None:
        for place, result in enumerate(node.results):
            if node.name in _ALIASES and place < len(node.operands) and self._aliases(node):
                self._roots[result] = self._root(node.operands[place])
            self._born.setdefault(result, self._clock)

    def _aliases(self, node: Node) -> bool:
        if node.name != "ttg.convert_layout":
            return True
        layouts = [self._kernel.values.layout(v) for v in (node.operands[0], node.results[0])]
        return layouts[0].warps == layouts[1].warps and layouts[0].lanes == layouts[1].lanes

    def _root(self, value: int) -> int:
        while value in self._roots:
            value = self._roots[value]
        return value

    def _extend(self) -> None:
        """Keeps what a loop reads from outside until the loop's end."""
        for value, died in self._dies.items():
            born = self._born.get(value, 0)
            for start, end in self._loops:
                if born < start < died <= end:
                    self._dies[value] = max(self._dies[value], end)

    def peak(self) -> float:
        """The largest sum of living values' words."""
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
        """Loops with the words that places in shared memory take."""
        found = []
        for loop, (start, end) in self._spans.items():
            sums = self._kernel.sums[loop + 1]
            stores = sum(
                number
                for moved, number in sums.traffic.items()
                if (moved.space, moved.direction) == ("shared", "store")
            )
            copies = sums.classes[OpClass.ASYNC_COPY]
            found.append((start, end, COPY_WORDS * copies + STORE_WORDS * stores))
        return found

    def _words(self, value: int) -> float:
        values = self._kernel.values
        owner, _ = values.tree.sources[value]
        if isinstance(owner, Node) and owner.name in _FREE:
            return 0.0
        kind = values.kind(value)
        if kind.bits <= 1 or kind.role not in ("tensor", "scalar"):
            return 0.0
        if kind.role == "scalar":
            return max(1.0, kind.bits / 32)
        words = max(1.0, self._kernel.elements(value) * kind.bits / 32)
        if isinstance(owner, Node):
            if kind.is_pointer:
                # Made one at a time where they are used, or as a base and constants.
                return min(words, 2.0 + POINTER_SHARE * words)
            if owner.name == "ttg.local_load" and kind_of(kind.encoding) != "blocked":
                return words * min(1.0, K_STEPS * 16 / max(16, max(kind.shape)))
        return words
