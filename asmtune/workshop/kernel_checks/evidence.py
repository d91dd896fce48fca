"""Evidence from a kernel's TTIR: where it may race, and where it adds up in a narrow type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.base.errors import InputError
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from asmtune.ir.ttir.arguments import bind
from asmtune.ir.ttir.memory import KINDS, MemoryOperation, mask_of
from asmtune.ir.ttir.plan import Flow
from asmtune.ir.ttir.tree import Node
from asmtune.measure.checks.tensors import tensor_arguments

_NARROW: Final = {"f16": "fp16", "bf16": "bf16"}
_SUMS: Final = ("arith.addf", "tt.dot", "math.fma")
_COMPUTING: Final = ("math.", "tt.dot", "tt.reduce")
_ENDS: Final = ("tt.dot", *KINDS)
_FRONT_END_S: Final = 60.0


@dataclass(frozen=True)
class KernelEvidence:
    """Facts about a launch that a kernel's TTIR shows.

    Attributes:
        written: arguments that are stored to or updated, by name.
        narrow_sums: sums in fp16 or bf16, a sentence each.
        rounded_operands: the 16-bit dtype that computed values are rounded to for a product; "".
        lost_updates: arguments that programs read and write at the same place, a sentence each.
        indexed_updates: arguments that are read and written at loaded indexes, a sentence each.
        beyond: arguments whose memory ends before the furthest access, a sentence each.
        atomics: arguments that are updated atomically, by name.
        uses_tf32: whether it multiplies fp32 as TF32.
        note: why there is no evidence; "" if there is.
    """

    written: tuple[str, ...] = ()
    narrow_sums: tuple[str, ...] = ()
    rounded_operands: str = ""
    lost_updates: tuple[str, ...] = ()
    indexed_updates: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    atomics: tuple[str, ...] = ()
    uses_tf32: bool = False
    note: str = ""

    def tolerance_rows(self, device: str) -> dict[str, str]:
        """Return rows of tolerances for results of products in fewer digits than they have."""
        rows = {"fp32": "tf32"} if device == "cuda" and self.uses_tf32 else {}
        if (narrow := self.rounded_operands) and not self.narrow_sums:
            rows |= dict.fromkeys(("fp32", narrow), f"{narrow} weights")
        return rows


def evidence_of(problem: Problem, config: Config, target: Target) -> KernelEvidence:
    """Lower a launch, of meta tensors or others, to TTIR without a GPU, and read it."""
    try:
        request = Lowering(problem, target, _FRONT_END_S).request(config)
        if isinstance(request, Failure):
            return KernelEvidence(note=request.detail.splitlines()[0])
        kernel, grid = Kernel(request.ttir), problem.programs(config)
        call = LaunchArguments(
            problem.bind(config),
            grid,
            problem.tensor_bytes,
            read_table=problem.index_table,
        )
        work = kernel.work(call)
        bound = bind(kernel.tree.module, call.arguments, call.tensor_bytes)
    except InputError as error:
        return KernelEvidence(note=str(error))
    reader = _Reader(kernel, [one.name for one in bound], grid)
    # Views reach further than they have elements.
    sizes = {one.name: one.stop - one.start for one in tensor_arguments(problem.arguments)[0]}
    beyond = tuple(
        f"{use.name} has {sizes[use.name]:,} bytes and is accessed up to byte {use.end_bytes:,}"
        for use in work.arguments
        if use.end_bytes > sizes.get(use.name, use.end_bytes)
    )
    return KernelEvidence(
        written=tuple(use.name for use in work.arguments if use.writes),
        narrow_sums=reader.narrow_sums(),
        rounded_operands=reader.rounded_operands(),
        lost_updates=reader.lost_updates(),
        indexed_updates=reader.indexed_updates(),
        beyond=beyond,
        atomics=tuple(use.name for use in work.arguments if use.atomics),
        uses_tf32=any(dot.precision == "tf32" for dot in work.dots),
    )


class _Reader:
    def __init__(self, kernel: Kernel, names: Sequence[str], grid: Sequence[int]) -> None:
        self._tree, self._names, self._grid = kernel.tree, names, grid
        self._operations = kernel.operations
        self._flow = Flow(kernel.tree)

    def narrow_sums(self) -> tuple[str, ...]:
        """Return sums in a narrow type that a loop carries or a reduction makes."""
        carried: set[int] = set()
        for loop in self._tree.loops:
            for blocks in loop.regions:
                carried.update(*(body.arguments for body in blocks))
        casts = [node for node in self._tree.nodes() if node.name in ("arith.extf", "arith.truncf")]
        widened = {node.operands[0]: node.results[0] for node in casts if node.name == "arith.extf"}
        found: dict[str, None] = {}
        for node in self._tree.nodes():
            if node.name not in _SUMS or not node.results:
                continue
            in_reduction = any(owner.name == "tt.reduce" for owner in node.body.owners())
            sums = [value for value in carried if {value, widened.get(value)} & {*node.operands}]
            # A wide sum may be carried in a narrow type, or be rounded to it and widened again.
            rounded = [c.results[0] for c in casts if c.operands[0] == node.results[0]]
            values = [node.results[0], *sums, *(value for value in rounded if value in widened)]
            narrow = [_NARROW.get(self._tree.type_of(value).element) for value in values]
            if (element := next(filter(None, narrow), "")) and (in_reduction or sums):
                line = self._line(next((o for o in node.body.owners() if in_reduction), node))
                what = "a reduction adds" if in_reduction else "a loop adds up"
                found[f"{what} in {element}{line}"] = None
        return tuple(found)

    def rounded_operands(self) -> str:
        """Return the narrow type that what a kernel computes is rounded to for a product.

        Hardware multiplies such operands in 16 bits, so that this is no fault of the kernel's.
        """
        for node in self._tree.nodes():
            operands = node.operands[:2] if node.name == "tt.dot" else ()
            for value in self._flow.follow(operands, lambda n: () if n.name in _ENDS else None):
                owner = self._tree.sources[value][0]
                if isinstance(owner, Node) and owner.name == "arith.truncf":
                    reached = self._flow.computed_from(owner.operands)
                    origins = [self._tree.sources[one][0] for one in reached]
                    if any(isinstance(o, Node) and o.name.startswith(_COMPUTING) for o in origins):
                        return _NARROW.get(self._tree.type_of(value).element or "", "")
        return ""

    def _line(self, node: Node) -> str:
        position = self._tree.line_of(node)
        return f" ({position[0].rpartition('/')[2]}, line {position[1]})" if position else ""

    def lost_updates(self) -> tuple[str, ...]:
        """Return the arguments of which several programs read and write the same elements."""
        reads: dict[int, list[set[int]]] = {}
        for one in self._operations:
            if one.kind == "read":
                for root in one.roots:
                    reads.setdefault(root, []).append(self._common_axes(one))
        lost: dict[str, None] = {}
        for one in self._operations:
            if one.kind != "write" or len(one.roots) != 1 or one.by_index:
                continue
            axes, name = self._common_axes(one), self._names[one.roots[0]] or "an argument"
            if any(axes & other for other in reads.get(one.roots[0], [])):
                programs = " x ".join(str(self._grid[axis]) for axis in sorted(axes))
                place = f"the same elements of {name}{self._line(one.node)}"
                lost[f"{programs} programs read and then write {place}, not atomically"] = None
        return tuple(lost)

    def indexed_updates(self) -> tuple[str, ...]:
        """Return the arguments that are read and written at indexes that were loaded."""
        indexed = [one for one in self._operations if one.by_index and len(one.roots) == 1]
        read = {one.roots for one in indexed if one.kind == "read"}
        found = (
            f"programs read and then write elements of {self._names[one.roots[0]]} at "
            f"indexes that were loaded{self._line(one.node)}, not atomically"
            for one in indexed
            if one.kind == "write" and one.roots in read
        )
        return tuple(dict.fromkeys(found))

    def _common_axes(self, one: MemoryOperation) -> set[int]:
        """Return axes of the grid along which all programs access the same elements."""
        values = [one.node.operands[0]]
        if (mask := mask_of(one.node)) is not None:
            values.append(mask)
        values += [v for owner in one.node.body.owners() for v in owner.operands]
        names = [self._tree.sources[value][0] for value in self._flow.computed_from(values)]
        used = {
            axis
            for owner in names
            if isinstance(owner, Node) and owner.name == "tt.get_program_id"
            for axis, letter in enumerate("xyz")
            if letter in owner.text[:4]
        }
        # Programs that end early, and queues of work, are not followed.
        if len(self._tree.blocks) > 1 or any(
            isinstance(owner, Node) and owner.name.startswith("tt.atomic") for owner in names
        ):
            return set()
        return {axis for axis, size in enumerate(self._grid) if size > 1} - used
