"""`on_miss="interpolate"`: configs for new shapes, from the timings of a kernel's other shapes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import AsmtuneError
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.problem import UnknownGrid
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.runtime.events import LAUNCHING_MODULES, key_text
from asmtune.runtime.misses.lookups import Choice, MissLookup, serves
from asmtune.store.codec import key_digest
from asmtune.store.shipped import shipped_of

if TYPE_CHECKING:
    from asmtune.predict.score.shape_model import ShapeModel
    from asmtune.tuning.request import TuningRequest


class MissWarning(UserWarning):
    """Launches of a key continue with another config than the one requested."""


def group_of(key: TuneKey) -> tuple[Any, ...]:
    """Return what records must have in common to be interpolated between: all but the sizes."""
    from asmtune.predict.score.shape_features import sizes_of

    sizes = sizes_of(key.shape)
    fixed = tuple((name, repr(v)) for name, v in key.shape.items() if name not in sizes)
    dtypes = tuple(sorted(key.dtypes.items()))
    return key.kernel, key.device, dtypes, tuple(key.shape), fixed


def fitted(
    records: Iterable[TuneRecord],
    key: TuneKey,
    shape: Mapping[str, Any],
    programs: Callable[[Config], int],
) -> ShapeModel | str:
    """Fit a model to the records of a key's group; else say why there is none.

    Args:
        records: valid records of the kernel; those of other groups are left out.
        key: any key of the group.
        shape: a shape at which `programs` holds.
        programs: number of programs that a config is launched with there.
    """
    from asmtune.core.hardware.shipped import match_device
    from asmtune.predict.score.shape_model import FEWEST_SHAPES, ShapeModel, TimedShape

    target, group = match_device(key.device), group_of(key)
    if target is None:
        return f"nothing is known of {key.device}"
    shapes: dict[str, TimedShape] = {}
    for record in records:
        timed = [m for m in record.config_timings if m.config.ir_override is None]
        us = {m.config: m.median_us for m in timed if m.median_us > 0}
        if group_of(record.key) == group and len(us) > 1:
            shapes.setdefault(key_digest(record.key), TimedShape(record.key.shape, us))
    model = ShapeModel.of(list(shapes.values()), target.sms, shape, programs)
    if model is None:
        count = len(shapes)
        return f"{count} shape{'' if count == 1 else 's'} tuned, and {FEWEST_SHAPES} are needed"
    return model


@dataclass
class Interpolator:
    """Models by kernel and whatever else of a key is no size, each fitted on first use.

    A model stays as it is until `forget`: this process has tuned another shape.
    """

    _models: dict[tuple[Any, ...], ShapeModel] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def forget(self) -> None:
        """Fit anew at the next miss; a fit that has begun keeps its model in the old mapping."""
        self._models = {}

    def choice(self, lookup: MissLookup, fallback: Callable[[], Choice]) -> Choice:
        """Return the config for a request's shape; it is final if its spread is narrow.

        Otherwise a warning says why, once for each key. Without a model the config is that of
        `fallback`.
        """
        request = lookup.request
        model = self._model(lookup)
        pick = None
        if not isinstance(model, str):
            shape = request.problem.shape
            pick = model.pick(
                request.key.shape, lambda c: request.space.matching(c, **shape) is not None
            )
            own = None if pick is None else request.space.matching(pick.config, **shape)
            if pick is not None and own is not None:
                origin = f"{len(model.left_out)} tuned shapes"
                choice = Choice(own, not pick.is_wide, "interpolated", origin=origin)
                if pick.is_wide:
                    self._warn(request, choice, f"it may lose {pick.loss:.0%} of the speed")
                return choice
            model = "no config timed at other shapes is in the space"
        choice = fallback()
        self._warn(request, choice, f"nothing to interpolate from: {model}")
        return choice

    def _model(self, lookup: MissLookup) -> ShapeModel | str:
        request, models = lookup.request, self._models
        group = group_of(request.key)
        if (known := models.get(group)) is not None:
            return known
        if isinstance(request.problem.grid, UnknownGrid):
            return "the grid is not known while PyTorch's compiler traces"
        records = [
            record
            for record in (*lookup.records(), *shipped_of(request.key.kernel))
            if serves(record, request)
        ]

        def programs(config: Config) -> int:
            return math.prod(request.problem.programs(config))

        try:
            model = fitted(records, request.key, request.key.shape, programs)
        except AsmtuneError as error:  # the grid raises at a config
            return str(error)
        if not isinstance(model, str):
            models[group] = model
        return model

    def _warn(self, request: TuningRequest, choice: Choice, why: str) -> None:
        digest = key_digest(request.key)
        if digest in self._warned:
            return
        self._warned.add(digest)
        text = f"{key_text(request.key)}: {why}; goes on with {choice.how} {choice.config}"
        warnings.warn(
            f"{text} until it is tuned in the background",
            MissWarning,
            stacklevel=user_stacklevel(*LAUNCHING_MODULES),
        )
