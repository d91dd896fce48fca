"""Runs specialised Gluon kernels in Python: partitions take turns at random, memory is watched.

A kernel's own source is executed with other globals. Tiles are NumPy arrays. Copies and products
are in flight until they must be over, so that a tile that is read or overwritten too early is an
error or a wrong number. Waits know a phase by its parity alone, as the device does. Loops carry
what Triton's front end would carry from one iteration to the next, or are an error.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from triton.experimental.gluon import language as gl
from triton.runtime.jit import JITFunction

from tests.kernels.gluon_memory import Joined, MachineError, Memory, Slot
from tests.kernels.gluon_values import (
    DTYPES,
    Int,
    Tile,
    atomic_add,
    chosen,
    load,
    scalar,
    store,
    tile,
)

Step = tuple[Any, ...]
"""An operation of a partition: its kind, and what it is about."""


@dataclass
class Barrier:
    """An mbarrier: how many arrivals a phase takes, what it still waits for, and its number."""

    count: int
    pending: int
    loads: int = 0
    phase: int = 0

    def settle(self) -> None:
        """Begin the next phase if nothing is missing in this one."""
        if self.pending == 0 and self.loads == 0:
            self.phase, self.pending = self.phase + 1, self.count

    def passes(self, parity: int) -> bool:
        """Say if a wait for a parity is over."""
        return self.phase & 1 != parity & 1


@dataclass
class Product:
    """Sums of a product that may be in flight."""

    compute: Callable[[], Any]
    slots: tuple[Slot, ...]
    result: Any = None
    done: bool = False
    type: ClassVar[Any] = Tile.type


@dataclass
class Agent:
    """A partition: its thread, what it waits for, and its operations so far."""

    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: tuple[Slot, int] | None = None
    finished: bool = False
    error: BaseException | None = None
    products: list[Product] = field(default_factory=list)
    stores: list[tuple[Slot, Callable[[], None]]] = field(default_factory=list)
    unfenced: set[Slot] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)


class Machine:
    """Runs one program of a kernel, and records what each partition does."""

    def __init__(self, program: int, programs: int, seed: int) -> None:
        self.program, self.programs = program, programs
        self.random = random.Random(seed)
        self.allocations = 0
        self.barriers: dict[Slot, Barrier] = {}
        self.flights: list[tuple[Slot, Slot, Callable[[], None]]] = []
        self.begun: dict[Slot, int] = {}
        self.readers: dict[Slot, int] = {}
        self.agents: list[Agent] = []
        self.current: Agent | None = None
        self.turn = threading.Semaphore(0)
        self._functions: dict[int, Callable[..., Any]] = {}

    # What a kernel calls.

    def allocate(self, dtype: Any, shape: Sequence[int], _: Any) -> Memory:
        """Allocate shared memory."""
        self.allocations += 1
        data = np.full(shape, np.nan if str(dtype).startswith("fp") else 0)
        return Memory(self, self.allocations, data.astype(DTYPES[str(dtype)]), dtype)

    def init(self, barrier: Memory, count: int) -> None:
        """Set a barrier up."""
        assert barrier.slot not in self.barriers, "a barrier is set up twice"
        self.barriers[barrier.slot] = Barrier(count, count)

    def arrive(self, barrier: Memory, count: int = 1, pred: Any = True) -> None:
        """Arrive at a barrier."""
        if pred:
            self.do("arrive", barrier.slot)
            state = self.barriers[barrier.slot]
            state.pending -= count
            if state.pending < 0:
                raise MachineError(f"too many arrivals at {barrier.slot}")
            state.settle()

    def expect(self, barrier: Memory, nbytes: int) -> None:
        """Arrive at a barrier whose phase takes so many bytes besides."""
        self.do("expect", barrier.slot, nbytes)
        state = self.barriers[barrier.slot]
        state.loads += nbytes
        state.pending -= 1
        if state.pending < 0:
            raise MachineError(f"too many arrivals at {barrier.slot}")

    def wait(self, barrier: Memory, phase: int) -> None:
        """Wait for a parity."""
        self.do("wait", barrier.slot, int(phase) & 1)

    def load(self, desc: Any, coordinates: Sequence[int], barrier: Memory, target: Memory) -> None:
        """Begin to copy a tile; what lies outside the tensor is 0."""
        self.do("load", target.slot, barrier.slot, desc.block_type.nbytes)
        self.begun[target.slot] = self.begun.get(target.slot, 0) + 1
        self.refuse_readers(target.slot)
        if any(flight[0] == target.slot for flight in self.flights):
            raise MachineError(f"{target.slot} is loaded twice at once")
        target.data[...] = np.nan

        def complete() -> None:
            target.data[...] = desc.read(coordinates)
            self.barriers[barrier.slot].loads -= desc.block_type.nbytes
            self.barriers[barrier.slot].settle()

        self.flights.append((target.slot, barrier.slot, complete))

    def store(self, desc: Any, coordinates: Sequence[int], source: Memory) -> None:
        """Begin to write a tile to the tensor."""
        self._begin_store(source, lambda: desc.write(coordinates, source.data))

    def add(self, desc: Any, coordinates: Sequence[int], source: Memory) -> None:
        """Begin to add a tile to the tensor."""
        self._begin_store(source, lambda: desc.add(coordinates, source.data))

    def _begin_store(self, source: Memory, complete: Callable[[], None]) -> None:
        agent = self.do("store", source.slot, self.begun.get(source.slot, 0))
        self.refuse_unfenced(source.slot)
        self.readers[source.slot] = self.readers.get(source.slot, 0) + 1
        agent.stores.append((source.slot, complete))

    def store_wait(self, pendings: int) -> None:
        """Wait until all tiles that this partition writes have been read."""
        assert pendings == 0
        agent = self.do("stored")
        for slot, complete in agent.stores:
            complete()
            self.readers[slot] -= 1
        agent.stores.clear()

    def fence(self) -> None:
        """Let copies see what the partition has written."""
        if self.agents:
            self.do("fence").unfenced.clear()

    def multiply(
        self, a: Any, b: Memory | Joined, acc: Any, *, use_acc: bool = True, is_async: bool
    ) -> Product:
        """Begin a product."""
        assert is_async
        slots = tuple(slot for x in (a, b) if not isinstance(x, np.ndarray) for slot in x.slots)
        agent = self.do("multiply", slots, tuple(self.begun.get(slot, 0) for slot in slots))
        for slot in slots:
            self.refuse_unfenced(slot)
            self.readers[slot] = self.readers.get(slot, 0) + 1

        def compute() -> Any:
            left = (a.data if isinstance(a, Memory) else a).astype(np.float32)
            before = acc.result if isinstance(acc, Product) else acc
            # Not @, whose threads wait for each other on a busy machine.
            product = np.einsum("mk,kn->mn", left, b.data.astype(np.float32))
            return tile(product + before if use_acc else product)

        agent.products.append(Product(compute, slots))
        return agent.products[-1]

    def multiplied(self, num_outstanding: int = 0, deps: Sequence[Any] = ()) -> Any:
        """Wait until so many products at most are in flight; return what the names are now."""
        agent = self.do("multiplied", num_outstanding)
        while len(agent.products) > num_outstanding:
            product = agent.products.pop(0)
            product.result, product.done = product.compute(), True
            if np.isnan(product.result).any() and product.slots:
                raise MachineError(f"a product read {product.slots} before the copy was done")
            for slot in product.slots:
                self.readers[slot] -= 1
        now = [d.result if isinstance(d, Product) and d.done else d for d in deps]
        return now[0] if len(now) == 1 else tuple(now)

    # How partitions take turns.

    def refuse_readers(self, slot: Slot) -> None:
        """Refuse to overwrite a tile that is being read."""
        if self.readers.get(slot, 0):
            raise MachineError(f"{slot} is overwritten while it is read")

    def refuse_unfenced(self, slot: Slot) -> None:
        """Refuse that the copy engine or a product reads what is written and not fenced."""
        if any(slot in agent.unfenced for agent in self.agents):
            raise MachineError(f"{slot} is read without a fence")

    def do(self, kind: str, *about: Any) -> Agent:
        """Let another partition or a copy go first; then go on, when a wait is over."""
        agent = self.current
        assert agent is not None, "only barriers are set up before partitions begin"
        agent.waits = about if kind == "wait" else None  # type: ignore[assignment]
        self.turn.release()
        agent.go.acquire()
        agent.steps.append((kind, *about))
        if kind == "write":
            self.refuse_readers(about[0])
            agent.unfenced.add(about[0])
        return agent

    def specialize(
        self, parts: Sequence[tuple[Any, Any]], warps: Sequence[int], registers: Sequence[int]
    ) -> None:
        """Run the partitions until all are done."""
        assert len(parts) - 1 == len(warps) == len(registers)
        for function, arguments in parts:
            agent = Agent()
            self.agents.append(agent)
            # An error in one partition leaves the others waiting.
            arguments = (agent, function, arguments)
            threading.Thread(target=self._run, args=arguments, daemon=True).start()
        while not all(agent.finished for agent in self.agents):
            self._advance()
        if self.flights or any(agent.products or agent.stores for agent in self.agents):
            raise MachineError("the kernel ended with copies or products in flight")

    def _run(self, agent: Agent, function: Callable[..., Any], arguments: Any) -> None:
        agent.go.acquire()
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 (the scheduler raises it)
            agent.error = error
        agent.finished = True
        self.turn.release()

    def _advance(self) -> None:
        ready = [agent for agent in self.agents if not agent.finished and self._may_go(agent)]
        choice = self.random.randrange(len(ready) + len(self.flights) or 1)
        if not ready and not self.flights:
            waits = [agent.waits for agent in self.agents if not agent.finished]
            raise MachineError(f"all partitions wait for ever: {waits}")
        if choice >= len(ready):
            self.flights.pop(choice - len(ready))[2]()
            return
        self.current = ready[choice]
        self.current.go.release()
        self.turn.acquire()
        if self.current.error is not None:
            raise self.current.error

    def _may_go(self, agent: Agent) -> bool:
        return agent.waits is None or self.barriers[agent.waits[0]].passes(agent.waits[1])

    # How a kernel's source is given these.

    def function(self, jitted: Any) -> Callable[..., Any]:
        """Return a kernel's function, or one that it calls, as Python that calls this machine."""
        if id(jitted) not in self._functions:
            plain = jitted.fn
            others = {name: self._other(name, value) for name, value in plain.__globals__.items()}
            others |= {"range": loop}
            made = FunctionType(plain.__code__, others, plain.__name__, plain.__defaults__)
            self._functions[id(jitted)] = made
        return self._functions[id(jitted)]

    def _other(self, name: str, value: Any) -> Any:
        if isinstance(value, JITFunction):
            return lambda *given, **named: self.function(value)(*given, **named)
        if isinstance(value, gl.constexpr):
            return value.value
        return self._names().get(name, value)

    def _names(self) -> dict[str, Any]:
        language = _language(self)
        barrier = SimpleNamespace(
            MBarrierLayout=lambda: None, init=self.init, wait=self.wait, arrive=self.arrive,
            expect=self.expect,
        )  # fmt: skip
        return {
            "gl": language, "tl": language, "mbarrier": barrier,
            "tma": SimpleNamespace(store_wait=self.store_wait),
            "load_tile": self.load, "store_tile": self.store, "add_tile": self.add,
            "fence_async_shared": self.fence, "thread_barrier": lambda: None,
            "warpgroup_mma": self.multiply, "warpgroup_mma_wait": self.multiplied,
        }  # fmt: skip


def loop(*span: int) -> Iterator[Int]:
    """Yield a loop's numbers; refuse names that Triton does not carry through the loop.

    Triton visits a loop's body once with the values from before it, and carries the names whose
    value is another one then. A name that is first set to the very value it had, as by
    `before = stage` where both were the same, stays what it was in all iterations.
    """
    frame = sys._getframe(1)
    start, fixed = dict(frame.f_locals), set[str]()
    for iteration, number in enumerate(range(*span)):
        yield Int(number)
        values = frame.f_locals
        same = {name for name in start if name in values and _same(start[name], values[name])}
        if iteration == 0:
            fixed = same
        if fixed - same:
            raise MachineError(f"Triton does not carry {sorted(fixed - same)} through the loop")


def _same(x: Any, y: Any) -> bool:
    """Say if two values are one value of Triton's."""
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        return all(_same(a, b) for a, b in zip(x, y, strict=True))
    return x is y


def _language(machine: Machine) -> SimpleNamespace:
    return SimpleNamespace(
        program_id=lambda _: Int(machine.program), num_programs=lambda _: Int(machine.programs),
        allocate_shared_memory=machine.allocate, warp_specialize=machine.specialize,
        NVMMASharedLayout=gl.NVMMASharedLayout, NVMMADistributedLayout=lambda *_: None,
        SliceLayout=lambda *_: None, DotOperandLayout=lambda *_: None, constexpr=gl.constexpr,
        convert_layout=lambda x, _: x, static_range=lambda *span: map(Int, range(*span)),
        to_tensor=scalar, cdiv=lambda x, y: Int(-(-x // y)),
        minimum=lambda x, y: Int(min(x, y)), where=chosen, store=store, load=load,
        atomic_add=atomic_add, BlockedLayout=lambda *_: None,
        SwizzledSharedLayout=lambda *_: None,
        maximum=lambda x, y: tile(np.maximum(x, y)) if np.ndim(x) else Int(max(x, y)),
        arange=lambda low, high, **_: tile(np.arange(low, high)),
        zeros=lambda shape, dtype, _: tile(np.zeros(shape, DTYPES[str(dtype)])),
        full=lambda shape, value, *_: tile(np.full(shape, value, np.float32)),
        max=lambda x, axis: tile(np.max(x, axis)), sum=lambda x, axis: tile(np.sum(x, axis)),
        exp2=lambda x: tile(np.exp2(x)), log2=lambda x: tile(np.log2(x)),
        abs=lambda x: tile(np.abs(x)),
        int64=gl.int64, float16=gl.float16, float32=gl.float32,
    )  # fmt: skip
