"""Rules of buckets learned from stored timings: which arguments made keys that were not needed.

Keys of a bucket share the config of whichever of them is tuned first. So a rule's loss is that
of every key of a bucket with the winner of every other, where that winner was timed there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.core.config import Config
from asmtune.core.keys.buckets import Bucket, between, multiple, pow2
from asmtune.core.keys.rules import BucketRule
from asmtune.core.records.tuned import TuneKey, TuneRecord

_MULTIPLES: Final = tuple(1 << power for power in range(14, 2, -1))
_MOST_VALUES: Final = 100  # of an argument, for ranges that are fitted to the winners
_KNOWN_SHARE: Final = 0.5
"""Share of a rule's pairs of keys whose loss must be known for the rule to be suggested."""


@dataclass(frozen=True)
class SharedLoss:
    """The loss of speed if keys shared configs.

    Attributes:
        keys: number of keys left.
        mean, worst: loss as a share of the best speed, over pairs of keys that would share.
        known, pairs: number of pairs whose loss is known from timings, and of all.
    """

    keys: int
    mean: float
    worst: float
    known: int
    pairs: int

    def within(self, limit: float) -> bool:
        """Return whether enough is known, and no pair loses more than a limit."""
        return self.known >= _KNOWN_SHARE * self.pairs and self.worst <= limit


@dataclass(frozen=True)
class ArgumentReport:
    """An argument of a kernel's keys, with the rule that is suggested for it.

    Attributes:
        kernel: the kernel's full name.
        argument: its name in the key.
        keys: number of the kernel's keys, with the rules of the arguments before this one.
        values: number of its values.
        winners: the most winners of keys that differ in this argument alone.
        all_values: loss if all its values shared a config.
        rule, loss: the suggested rule, and its loss together with the rules before; None if each
            rule loses too much.
    """

    kernel: str
    argument: str
    keys: int
    values: int
    winners: int
    all_values: SharedLoss
    rule: BucketRule | None = None
    loss: SharedLoss | None = None


def suggested_rules(records: Iterable[TuneRecord], limit: float) -> list[ArgumentReport]:
    """Report the arguments of all kernels with more than one key, those that made most first.

    Args:
        records: stored records of any keys.
        limit: the most that a rule may lose, as a share of the speed, in any pair of keys.
    """
    kernels: dict[str, list[TuneRecord]] = {}
    for record in records:
        kernels.setdefault(record.key.kernel, []).append(record)
    return [
        report
        for kernel in sorted(kernels)
        for report in _reports(kernel, [_Timed.of(one) for one in kernels[kernel]], limit)
    ]


@dataclass(frozen=True)
class _Timed:
    """A record's key, winner and times by config."""

    key: TuneKey
    setting: tuple[Any, ...]
    winner: Config
    us: Mapping[Config, float]

    @classmethod
    def of(cls, record: TuneRecord) -> _Timed:
        key, made = record.key, record.provenance
        dtypes = tuple(sorted(key.dtypes.items()))
        setting = (key.device, dtypes, tuple(key.shape), made.source, made.triton)
        times = {one.config: one.median_us for one in record.config_timings}
        return cls(key, setting, record.winner.plain, times)


def _reports(kernel: str, records: Sequence[_Timed], limit: float) -> Iterator[ArgumentReport]:
    values = _values(records)
    accepted: dict[str, Bucket] = {}
    for argument in sorted(values, key=lambda name: (-len(values[name]), name)):
        # Where it has one value there is nothing to share.
        if len(values[argument]) < 2:
            continue
        groups = list(_groups(records, accepted, argument))
        everything = _loss(groups)
        winners = max(len({one.winner for one in group}) for group in groups)
        report = ArgumentReport(
            kernel=kernel,
            argument=argument,
            keys=_loss(_groups(records, accepted)).keys,
            values=len(values[argument]),
            winners=winners,
            all_values=everything,
        )
        best: tuple[SharedLoss, Bucket] | None = None
        edges = _edges(records, accepted, argument, limit)
        for bucket in _candidates(argument, values[argument], edges):
            loss = _loss(_groups(records, {**accepted, argument: bucket}))
            if loss.within(limit) and loss.keys < (best[0].keys if best else report.keys):
                best = loss, bucket
        if best is None:
            yield report
            continue
        accepted[argument] = best[1]
        rule = BucketRule(best[1], kernel)
        yield ArgumentReport(**{**vars(report), "rule": rule, "loss": best[0]})


def _values(records: Sequence[_Timed]) -> dict[str, set[Any]]:
    """Return the values of each argument; a part of a key that is a function is none."""
    values: dict[str, set[Any]] = {}
    for record in records:
        for name, value in record.key.shape.items():
            if name.isidentifier():
                values.setdefault(name, set()).add(value)
    return values


def _edges(
    records: Sequence[_Timed], accepted: Mapping[str, Bucket], argument: str, limit: float
) -> list[int]:
    """Return the last numbers of the widest ranges of an argument within a limit of loss."""
    shapes = [record.key.shape.get(argument) for record in records]
    numbers = sorted({value for value in shapes if type(value) is int})
    if len(numbers) > _MOST_VALUES:
        return numbers[-1:]
    edges: list[int] = []
    inside: list[int] = []
    for number in numbers:
        inside.append(number)
        among = [r for r, value in zip(records, shapes, strict=True) if value in inside]
        if len(inside) > 1 and not _loss(_groups(among, accepted, argument)).within(limit):
            edges.append(inside[-2])
            inside = [number]
    return edges + numbers[-1:]


def _candidates(argument: str, values: Iterable[Any], edges: Sequence[int]) -> Iterator[Bucket]:
    """Yield buckets of an argument, the most usual first; none if it has no whole numbers."""
    numbers = sorted(value for value in values if type(value) is int)
    if len(numbers) < 2:
        return
    yield pow2(argument)
    yield from (multiple(number, argument) for number in _MULTIPLES if number <= numbers[-1])
    # Sizes that were never met keep keys of their own on both sides.
    yield between(numbers[0] - 1, *edges, argument=argument)


def _groups(
    records: Iterable[_Timed], buckets: Mapping[str, Bucket], without: str | None = None
) -> Iterator[list[_Timed]]:
    """Yield the records that share a key under buckets, and `without` an argument."""
    groups: dict[tuple[Any, ...], list[_Timed]] = {}
    for record in records:
        key = tuple(
            (type(value), buckets[name].function(value))
            if name in buckets and type(value) is int
            else (type(value), value)
            for name, value in record.key.shape.items()
            if name != without
        )
        groups.setdefault((record.setting, key), []).append(record)
    yield from groups.values()


def _loss(groups: Iterable[Sequence[_Timed]]) -> SharedLoss:
    keys = pairs = known = 0
    total = worst = 0.0
    for group in groups:
        keys += 1
        pairs += len(group) * (len(group) - 1)
        donors = Counter(one.winner for one in group)
        for member in group:
            for winner, count in donors.items():
                others = count - (winner == member.winner)
                loss = _lost(member, winner)
                if others and loss is not None:
                    known += others
                    total += others * loss
                    worst = max(worst, loss)
    return SharedLoss(keys, total / known if known else 0.0, worst, known, pairs)


def _lost(member: _Timed, winner: Config) -> float | None:
    """Return the loss of a key with the winner of another; None if it was not timed there."""
    if winner == member.winner:
        return 0.0
    best, shared = member.us.get(member.winner), member.us.get(winner)
    return max(0.0, 1 - best / shared) if best and shared else None
