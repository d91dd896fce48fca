"""Shared memory of the machine of `gluon_machine`: rings, their tiles, and neighbours as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.kernels.gluon_values import tile

if TYPE_CHECKING:
    from tests.kernels.gluon_machine import Machine

Slot = tuple[int, int]
"""An allocation's number and the index of a tile in it."""


class MachineError(AssertionError):
    """A kernel reads or writes memory too early, or waits for ever."""


@dataclass(frozen=True)
class Memory:
    """Shared memory, or a tile of it."""

    machine: Machine
    number: int
    data: Any
    dtype: Any
    place: int | None = None
    ring: Memory | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self.data.shape)

    @property
    def slot(self) -> Slot:
        """The tile's name."""
        assert self.place is not None
        return self.number, self.place

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The names of its tiles."""
        return (self.slot,)

    def index(self, place: int) -> Memory:
        """Return one tile of a ring."""
        assert 0 <= place < len(self.data), "a tile outside its ring"
        return Memory(self.machine, self.number, self.data[place], self.dtype, int(place), self)

    def _reinterpret(self, dtype: Any, shape: Sequence[int], layout: Any) -> Memory | Joined:
        count = int(np.prod(shape)) // self.data.size
        if count == 1:
            return Memory(self.machine, self.number, self.data.reshape(shape), dtype, self.place)
        assert self.ring is not None
        assert self.place is not None
        width = self.shape[-1]
        # Swizzled rows of one width lie one after the other, then those beside them.
        assert width * self.data.itemsize == layout.swizzle_byte_width, "tiles are not adjacent"
        tiles = tuple(self.ring.index(self.place + i) for i in range(count))
        return Joined(tiles, axis=0 if shape[-1] == width else 1)

    reinterpret = _reinterpret

    def permute(self, order: tuple[int, ...]) -> Memory:
        """Return the same tile, transposed."""
        data = self.data.transpose(order)
        return Memory(self.machine, self.number, data, self.dtype, self.place)

    def store(self, values: Any) -> None:
        """Write the tile at once."""
        self.machine.do("write", self.slot)
        self.machine.begun[self.slot] = self.machine.begun.get(self.slot, 0) + 1
        self.data[...] = values

    def load(self, _: Any) -> Any:
        """Read the tile at once."""
        self.machine.do("read", self.slot, self.machine.begun.get(self.slot, 0))
        if np.isnan(self.data).any():
            raise MachineError(f"{self.slot} is read before it is there")
        return tile(self.data.copy())


@dataclass(frozen=True)
class Joined:
    """Neighbouring tiles of a ring as one, below or beside each other."""

    tiles: tuple[Memory, ...]
    axis: int
    order: tuple[int, ...] = (0, 1)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The names of its tiles."""
        return tuple(tile.slot for tile in self.tiles)

    @property
    def data(self) -> Any:
        """What the tiles hold now."""
        parts = [tile.data.reshape(tile.shape[-2:]) for tile in self.tiles]
        return np.concatenate(parts, self.axis).transpose(self.order)

    def permute(self, order: tuple[int, ...]) -> Joined:
        """Return the same tiles, transposed."""
        return Joined(self.tiles, self.axis, order)
