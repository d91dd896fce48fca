"""Records that may serve another key: other shapes of the device, and other devices, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target, apart, runs_all_of
from asmtune.core.hardware.shipped import known_device
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.lookup import Layer

Distance = Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]
"""Returns the distance of two shapes; None if they do not compare."""

Place = tuple[int, tuple[float, ...], float]

_SAME_CODE, _HERE, _ELSEWHERE = range(3)


@dataclass(frozen=True)
class Neighbour:
    """A record of a key's kernel and dtypes, of another shape or another device.

    Attributes:
        record: the record.
        place: what neighbours are sorted by.
        layer: "store" or "shipped".
        recorded_on: the target of the record's device; None for this device.
        here: the target of this device; None if it is not known.
    """

    record: TuneRecord
    place: Place
    layer: Layer = "store"
    recorded_on: Target | None = None
    here: Target | None = None

    @property
    def same_code(self) -> bool:
        """Return whether it is of the same key, on another device of the same architecture."""
        return self.place[0] == _SAME_CODE

    @property
    def origin(self) -> str:
        """Say in words where its config comes from: shape, device and layer."""
        key = self.record.key
        shape = " ".join(f"{name}={value}" for name, value in key.shape.items())
        layer = "this store" if self.layer == "store" else "the shipped configs"
        return f"the record of {shape or 'any arguments'} on {key.device} in {layer}"

    def surely_fits(self, config: Config) -> bool:
        """Return whether a config that ran there must run here: no limit is smaller.

        Of another architecture, whose machine code differs, nothing is sure. A cluster needs SMs
        that lie together, which a device with fewer of them may not have.
        """
        if self.recorded_on is None:
            return True
        if self.here is None or not runs_all_of(self.here, self.recorded_on):
            return False
        return config.num_ctas == 1 or self.here.sms >= self.recorded_on.sms


def neighbours(
    layers: Mapping[Layer, Collection[TuneRecord]],
    key: TuneKey,
    here: Target | None,
    distance: Distance,
) -> list[Neighbour]:
    """Sort the records that may serve a key, nearest first.

    First the same key on a device of the same architecture, then other shapes of this device,
    then what other devices have. Devices are sorted by architecture, SMs and bandwidth (`apart`);
    of one device the nearest shape comes first. Between an H100 and an H200 the same key's config
    keeps 0.98 of the best speed, another shape's of one device 0.5 to 0.8.

    Args:
        layers: records of any keys; those of another kernel or dtypes, of the key itself, of a
            shape that does not compare, and of a device that nothing is known of are left out.
        key: the key that they are to serve.
        here: the target of the key's device; without it other devices are left out.
        distance: of two shapes.
    """
    named = {record.key.device for records in layers.values() for record in records}
    targets = {device: known_device(device) for device in named - {key.device} if here is not None}
    listed = [
        neighbour
        for layer, records in layers.items()
        for record in records
        if (neighbour := _neighbour(record, layer, key, here, distance, targets)) is not None
    ]
    return sorted(listed, key=lambda one: one.place)


def _neighbour(
    record: TuneRecord,
    layer: Layer,
    key: TuneKey,
    here: Target | None,
    distance: Distance,
    targets: Mapping[str, Target | None],
) -> Neighbour | None:
    own = record.key
    if (own.kernel, dict(own.dtypes)) != (key.kernel, dict(key.dtypes)) or own == key:
        return None
    shape_away = distance(own.shape, key.shape)
    if shape_away is None:
        return None
    if own.device == key.device:
        return Neighbour(record, (_HERE, (), shape_away), layer, None, here)
    there = targets.get(own.device)
    away = None if here is None or there is None else apart(there, here)
    if away is None or here is None or there is None:
        return None
    same_code = there.arch == here.arch and dict(own.shape) == dict(key.shape)
    rank = _SAME_CODE if same_code else _ELSEWHERE
    return Neighbour(record, (rank, away, shape_away), layer, there, here)
