"""`TuningRequest`, `TuningResult`, and the key and provenance that a config is stored with."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.fingerprint import canonical, digest, versions
from asmtune.base.json_codec import printable
from asmtune.base.text import function_name, shortened, user_stacklevel
from asmtune.compile.source import source_digest
from asmtune.core.alternatives import Alternatives
from asmtune.core.config import Config
from asmtune.core.ir_overrides import described
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.core.space.table import SpaceTable
from asmtune.measure.timing.nvml import driver_version
from asmtune.store.lookup import StoreWarning

if TYPE_CHECKING:
    from asmtune.tuning.options import Check, Choices


RETIMED: Final = 6
"""Configs of another Triton's record that are timed in the place of a search, its fastest."""

TuningOutcome = Literal["tuned", "known", "busy", "failed"]

_warned: set[str] = set()


@dataclass(frozen=True)
class TuningRequest:
    """A launch whose config is to be looked up or tuned.

    Attributes:
        problem: the launch.
        key: what its config is stored under.
        space: the configs; files that they name are copied, see `pinned_space`.
        choices: how to tune, by keyword, as `TuneOptions.of` takes them; those count that a
            config depends on.
        reference: the kernel module's name or file, for the trace; None without a module.
    """

    problem: Problem
    key: TuneKey
    space: Space
    choices: Mapping[str, Any] = field(default_factory=dict)
    reference: str | None = None

    @property
    def alternatives(self) -> Alternatives:
        """Return the user's functions that are timed beside the configs, by name."""
        return self.choices.get("alternatives") or {}

    @property
    def expected(self) -> Provenance:
        """Return the provenance that a config tuned here and now would have, in milliseconds."""
        # Not `cached_property`: up to Python 3.11 it has a lock, which a child that is forked
        # while another thread works it out would wait for.
        known: Provenance | None = vars(self).get("expected")
        if known is None:
            known = provenance(self.problem, self.space, self.choices)
            vars(self)["expected"] = known
        return known

    @property
    def is_hooked(self) -> bool:
        """Return whether a config has a hook, which may write to the arguments."""
        return any(config.pre_hook for config in self.space.listed)

    def configs(self) -> Iterator[Config]:
        """Iterate over the configs that the constraints allow for this problem."""
        return self.space.configs(**self.problem.shape)

    def own(self, stored: Config) -> Config | None:
        """Return the space's own config that equals a stored one; warn once if no config equals it.

        A store holds what others have written. Only a config of the space is launched, with the
        space's own hook and the user's own file of hand-edited IR, which its name holds a digest
        of. A register cap derived from an artifact may come on top, and the name of an alternative
        that the code still has.
        """
        shape = self.problem.shape
        own = self.space.matching(stored, **shape)
        if own is None:
            reason = self.space.lacks(stored.with_cap(None), **shape) or "no config equals it"
            config = shortened(printable(str(stored)), 200)
            _warn_once(
                f"kernel {self.key.kernel}: the stored config {config} is not in the kernel's "
                f"space ({printable(reason)}): it counts as stale; tune the key again, or clear "
                "the kernel's records with `asmtune cache clear`"
            )
        return None if own is None else self.with_alternative_of(stored, own)

    def with_alternative_of(self, stored: Config, own: Config) -> Config:
        """Return a config of the space with a stored one's alternative, if the code has it."""
        name = stored.alternative
        return own.with_alternative(name) if name in self.alternatives else own.plain

    def complete(self, record: TuneRecord, beside: TuneRecord | None) -> TuneRecord:
        """Note alternatives that were not timed in a new record, so that each is once.

        Args:
            record: what was found now.
            beside: the record whose winner alone was searched; it gives what else was timed.
        """
        timed, failed = {m.config: m for m in record.measurements}, dict(record.failures)
        if beside is not None:
            others = (m for m in beside.config_timings if m.config not in timed)
            timed |= {m.config: m for m in others}
            old = ((c, f) for c, f in beside.failures if c.alternative is None and c not in timed)
            failed = dict(old) | failed
        for name in sorted(self.alternatives.keys() - record.tried):
            untimed = Failure("launch", "untimed", "no alternative was timed")
            failed[record.winner.with_alternative(name)] = untimed
        return replace(record, measurements=(*timed.values(),), failures=(*failed.items(),))

    def with_arguments_of(self, problem: Problem) -> TuningRequest:
        """Make the same request for other tensors of the same shape; keep the provenance."""
        return self._changed(problem=problem)

    def only(self, stored: Config) -> TuningRequest:
        """Make the same request with a stored config alone to search; keep the provenance."""
        own = self.own(stored)
        return self if own is None else self._changed(space=Space.from_configs([own.plain]))

    def among_fastest(self, record: TuneRecord) -> TuningRequest | None:
        """Make the same request with a record's fastest configs alone to search, and the default.

        None where the space has none of them. Keep the provenance.
        """
        shape = self.problem.shape
        fastest = sorted(record.config_timings, key=lambda one: one.median_us)[:RETIMED]
        named = dict.fromkeys([record.winner.plain, *(one.config for one in fastest)])
        own = [config for one in named if (config := self.space.matching(one, **shape)) is not None]
        configs = dict.fromkeys([self.space.first(**shape), *own])
        return self._changed(space=Space.from_configs([*configs])) if own else None

    def _changed(self, **parts: Any) -> TuningRequest:
        other = replace(self, **parts)
        vars(other)["expected"] = self.expected
        return other


@dataclass(frozen=True)
class TuningResult:
    """The answer to a request.

    Attributes:
        request: the request.
        outcome: "tuned" now, "known" before, "busy" (another process tunes it), or "failed".
        record: the tuned or known record.
        run: id of the trace, where there is one.
        seconds: wall clock.
        default_us: the default config's time, where it was measured.
        compiled, timed: number of configs.
        error: why it failed, in one line.
        remark: that the winner's samples vary too much, in words; "" if they do not.
        earlier: the record of another Triton whose fastest configs were timed in the place of a
            search; None where all were searched.
    """

    request: TuningRequest
    outcome: TuningOutcome
    record: TuneRecord | None = None
    run: str | None = None
    seconds: float = 0.0
    default_us: float | None = None
    compiled: int = 0
    timed: int = 0
    error: str = ""
    remark: str = ""
    earlier: TuneRecord | None = None


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, StoreWarning, stacklevel=user_stacklevel())


def key_of(problem: Problem, device: str) -> TuneKey:
    """Make the key of a problem on a device: its kernel's full name, shape and dtypes."""
    return TuneKey(problem.full_name, dict(problem.shape), problem.dtypes, device)


def provenance(
    problem: Problem, space: Space, choices: Mapping[str, Any] = MappingProxyType({})
) -> Provenance:
    """Make the provenance of a config that is tuned here and now, by a user's choices.

    Loads nothing that tunes.

    Raises:
        InputError: a choice has an invalid value.
    """
    clock = ""
    if choices.get("do_bench") is not None:
        from asmtune.tuning.options import TuneOptions

        clock = TuneOptions.of(cast("Choices", choices)).clock
    check: Check | None = choices.get("check")
    checked_by = ["bits"] if check == "bits" else []
    if choices.get("tolerance") is not None:
        checked_by += [f"tolerance {float(choices['tolerance'])!r}"]
    if not isinstance(check, str | bool | None):
        checked_by += [canonical(check.limits), _source_of(choices.get("reference"))]
    made_with, source = versions(), source_digest(problem.kernel)
    return Provenance(
        # Timings of one source serve all its spaces; those of another clock must not, and what
        # failed by its bits or its errors must not count as failed elsewhere.
        source=digest(source, clock, *checked_by) if clock or checked_by else source,
        space=space_digest(space.points(**problem.shape)),
        triton=made_with["triton"],
        torch=made_with["torch"],
        asmtune=made_with["asmtune"],
        driver=driver_version(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _source_of(function: Any) -> str:
    """Return a user's function by name and source, by its name alone where it has no source."""
    with suppress(OSError, TypeError):
        return f"{function_name(function)}\n{inspect.getsource(function)}"
    return function_name(function)


def with_own_values(record: TuneRecord, request: TuningRequest) -> TuneRecord:
    """Replace what a store holds the text of: a hand-edited file's path, a dtype, a tuple.

    The store holds the file's name alone, which holds a digest of its content.

    Raises:
        InputError: no config of the space has the file.
    """
    winner = record.winner.plain
    if winner.ir_override is None and not any(isinstance(v, str) for v in winner.kwargs.values()):
        return record
    own = request.space.matching(winner, **request.problem.shape)
    if own is None and winner.ir_override is not None:
        raise InputError(
            f"{record.key.kernel}: the stored config names {winner.to_dict()['ir_override']}, and "
            "no config given has such a file; tune again with force=True"
        )
    if own is None or (own.kwargs, own.ir_override) == (winner.kwargs, winner.ir_override):
        return record
    timed = (replace(m, config=own) if m.config == winner else m for m in record.measurements)
    chosen = own.with_alternative(record.winner.alternative)
    return replace(record, winner=chosen, measurements=tuple(timed))


def space_digest(configs: Sequence[Config]) -> str:
    """Digest the configs that are searched, in any order.

    A file that a config names counts by its content.
    """
    return digest(*sorted(_texts(SpaceTable.of(configs))))


def _texts(points: SpaceTable) -> Iterator[str]:
    """Yield the canonical text of each config, put together from those of its values."""
    if points.given:
        yield from (canonical(described(config)) for config in points)
        return
    names = sorted(points.values)
    parts = [[_part(name, value) for value in points.values[name]] for name in names]
    columns = [points.columns[name].tolist() for name in names]
    for row in zip(*columns, strict=True):
        own = (texts[level] for texts, level in zip(parts, row, strict=True))
        yield "{" + ",".join(filter(None, own)) + "}"


def _part(name: str, value: Any) -> str:
    """Return what a value adds to a config's canonical text; "" where the config leaves it out."""
    values = described(Config.from_dict({name: value}))
    return canonical({name: values[name]})[1:-1] if name in values else ""


FORM: Final = 'tune(Problem(kernel, {"x_ptr": x, "n": n}, grid), space={"BLOCK": [128, 256]})'
"""The form of a call of `tune`, for messages."""


def check_types(problem: Any, space: Any) -> None:
    """Check the arguments of `tune`.

    Raises:
        InputError: one is of another type.
    """
    if not isinstance(problem, Problem):
        raise ArgumentTypeError(f"tune: {shortened(repr(problem))} is no Problem: write {FORM}")
    if isinstance(space, str) or not isinstance(space, Iterable):
        raise ArgumentTypeError(
            f"tune: space={shortened(repr(space))}: expected a Space, configs or axes by name: "
            f"{FORM}"
        )
