"""A stored config on another device: what no longer fits or pays there, and what to use instead.

The target's ranking is predicted, without a GPU. Where the target runs the same machine code as
the device of the record, the record's timings correct it: a config's expected time is its measured
one, times the predicted change from the one device to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import known_device
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord, quantile
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProgressListener
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.lookup import differences, reusable
from asmtune.studies.api import prune_report
from asmtune.studies.stored import LoadedKernel, StoredLaunch, kernel_module, load_kernel, tuner_of

PAYS: Final = 0.05
"""Expected gain over the stored config from which another timed one is used. Between an H100 and
an H200 smaller ones are mostly errors (`python -m benchmarks.devices`)."""

UNTIMED_PAYS: Final = 0.2
"""The same of a config that was never timed: its prediction alone keeps 0.92 of the best speed."""

UNTIMED: Final = 0.8
"""Quantile of measured over predicted times that an untimed config is given. With the median 8
timings on the other device kept at worst 0.94 of the best speed, so 0.96."""

MOST_TIMED: Final = 24
"""Fastest configs of a record that are judged on the target, besides those that rank there."""

Fate = Literal["pays", "no longer pays", "no longer fits"]

_Key = TypeVar("_Key", bound=Hashable)


def expected_us(
    here: Mapping[_Key, float], there: Mapping[_Key, float], measured: Mapping[_Key, float]
) -> dict[_Key, float]:
    """Return expected microseconds on a device, by config.

    Args:
        here: predicted on the device.
        there: predicted on the device of the timings, of the timed configs at least.
        measured: the timings; a config without one is given the ratio to its prediction that
            `UNTIMED` of the timed ones stay below.
    """
    ratios = {key: us / there[key] for key, us in measured.items() if key in there}
    usual = quantile(sorted(ratios.values()), UNTIMED) if ratios else 1.0
    return {key: us * ratios.get(key, usual) for key, us in here.items()}


def best_of(expected: Mapping[_Key, float], stored: _Key, timed: Collection[_Key]) -> _Key:
    """Return the config to use: the stored one, unless another is expected to pay.

    Args:
        expected: microseconds of what runs on the device.
        stored: the record's config.
        timed: configs whose timings correct what is expected; without any, all count alike.
    """
    first = min(expected, key=lambda key: expected[key])
    tried = [key for key in timed if key in expected]
    best = min(tried, key=lambda key: expected[key]) if tried else first
    if stored in expected and expected[stored] <= (1 + PAYS) * expected[best]:
        best = stored
    return first if expected[best] > (1 + UNTIMED_PAYS) * expected[first] else best


@dataclass(frozen=True)
class RetargetedConfig:
    """A config on the target.

    Attributes:
        verdict: the funnel's; its rank is by expected time.
        measured_us: on the device of the record; None if it was not timed.
        expected_us: on the target; None if it does not run there.
        corrected: whether its own timing corrects its expected time.
    """

    verdict: Verdict
    measured_us: float | None = None
    expected_us: float | None = None
    corrected: bool = False

    @property
    def reason(self) -> str:
        """Say why it does not run on the target; "" if it does."""
        if self.expected_us is not None:
            return ""
        first = self.verdict.reasons[0] if self.verdict.reasons else self.verdict.failure
        return str(first)


@dataclass(frozen=True)
class Retargeted:
    """The outcome for one record and one target.

    Attributes:
        record: the record.
        recorded_on: the target of its device; None if nothing is known of it.
        target: the device to use its kernel on.
        stored: the record's winner there.
        ranking: what runs there, the least expected time first; compiled configs alone.
        evidence: how the record's timings were used, in words.
        notes: sentences that a reader must know.
    """

    record: TuneRecord
    recorded_on: Target | None
    target: Target
    stored: RetargetedConfig
    ranking: tuple[RetargetedConfig, ...]
    evidence: str
    notes: tuple[str, ...]

    @property
    def best(self) -> RetargetedConfig:
        """Return the config to use on the target."""
        by_config = {row.verdict.config: row for row in self.ranking}
        expected = {config: row.expected_us or 0.0 for config, row in by_config.items()}
        timed = [config for config, row in by_config.items() if row.corrected]
        return by_config[best_of(expected, self.stored.verdict.config, timed)]

    @property
    def fate(self) -> Fate:
        """Say what becomes of the stored config."""
        if self.stored.expected_us is None:
            return "no longer fits"
        return "pays" if self.best == self.stored else "no longer pays"

    @property
    def gain(self) -> float | None:
        """Return the expected speedup of the first rank over the stored config, if that can run."""
        least = self.ranking[0].expected_us
        if self.stored.expected_us is None or not least:
            return None
        return self.stored.expected_us / least - 1.0


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch of a record's kernel that has the record's key, and how it would be tuned now."""

    record: TuneRecord
    loaded: LoadedKernel
    expected: Provenance

    @classmethod
    def of(
        cls,
        record: TuneRecord,
        kernel: str | None = None,
        shape: Shape | None = None,
        dtype: str | None = None,
    ) -> RecordedLaunch:
        """Load a record's kernel and find the shape and dtype that give its key.

        Args:
            record: the record.
            kernel: name or file of its kernel module; by default the module that it names.
            shape: sizes; by default those of the key, and else of the module's own shapes.
            dtype: one of the module's; by default each is tried.

        Raises:
            InputError: the kernel cannot be loaded, or no launch of it has the key; says what to
                give.
        """
        name = record.key.kernel
        try:
            module = kernel_module(kernel or name.rpartition(".")[0])
        except InputError as error:
            raise InputError(f"record of {name}: {error}; name its module by --kernel") from error
        shapes = [shape] if shape is not None else list(_shapes(module, record.key))
        dtypes = [dtype] if dtype is not None else list(module.dtypes)
        problem = ""
        for sizes in shapes:
            for one in dtypes:
                try:
                    launch, identity, expected = _identified(module, record, sizes, one)
                except InputError as error:
                    problem = problem or f": {error}"
                    continue
                if _same_launch(identity, record.key):
                    return cls(record, launch, expected)
        key = ", ".join(f"{name}={value}" for name, value in record.key.shape.items())
        given = f"the shape {dict(shape)}" if shape is not None else "no shape"
        raise InputError(
            f"record of {name}: {given} of kernel {module.name} has its key ({key} "
            f"{' '.join(dict.fromkeys(record.key.dtypes.values()))}){problem}; give --shape and "
            "--dtype of a launch that has"
        )

    @property
    def winner(self) -> Config:
        """Return the stored config, as the space has it if it does.

        Raises:
            InputError: it is hand-edited code of one architecture.
        """
        winner = self.record.winner.plain
        if winner.ir_override is not None:
            raise InputError(
                f"record of {self.record.key.kernel}: its config is hand-edited code "
                f"({winner.to_dict()['ir_override']}) of its own device; tune without it"
            )
        return self._own(winner) or winner

    def timings(self) -> dict[Config, float]:
        """Return microseconds of the fastest timed configs in the space, and the winner's."""
        timed = sorted(self.record.config_timings, key=lambda one: one.median_us)
        owned = [(self._own(one.config), one.median_us) for one in timed]
        found = {c: us for c, us in owned if c is not None and c.ir_override is None}
        fastest = dict(list(found.items())[:MOST_TIMED])
        stored = self.record.winner.plain
        winner_us = next((one.median_us for one in timed if one.config == stored), None)
        return fastest if winner_us is None else {**fastest, self.winner: winner_us}

    def notes(self) -> Iterator[str]:
        """Say where the record is stale, and where its config is not in the space."""
        for difference in differences(self.record.provenance, self.expected):
            yield f"the record is stale: {difference}"
        sizes = self.loaded.problem.shape
        lacks = self.loaded.space.lacks(self.record.winner.with_cap(None), **sizes)
        if self._own(self.record.winner) is None:
            yield f"the stored config is not in the kernel's space: {lacks or 'none equals it'}"

    def _own(self, config: Config) -> Config | None:
        return self.loaded.space.matching(config, **self.loaded.problem.shape)


def retarget(
    launch: RecordedLaunch,
    target: Target,
    settings: Settings,
    *,
    compile: str | None = None,  # noqa: A002 - the option's name
    progress: ProgressListener | None = None,
) -> Retargeted:
    """Judge a record's config on a target, and rank the kernel's space for it.

    Raises:
        InputError: `compile` is malformed, or the stored config cannot be judged.
        CompileError: no config can run on the target.
        StoreError: the artifacts' folder cannot be written.
    """
    progress = progress or ProgressListener()
    loaded, winner = launch.loaded, launch.winner
    report = prune_report(
        loaded.problem,
        loaded.space,
        target=target,
        compile=compile,
        progress=progress,
        settings=settings,
    )
    verdicts = {verdict.config: verdict for verdict in report.verdicts if verdict.rank is not None}
    timings = launch.timings()
    left = [config for config in dict.fromkeys((winner, *timings)) if config not in verdicts]
    verdicts |= _judged(launch, target, settings, left)
    recorded_on, why = _comparable(launch, target)
    there: dict[Config, float] = {}
    if recorded_on is not None and not why:
        there = _predicted(_judged(launch, recorded_on, settings, list(timings)))
    expected = expected_us(_predicted(verdicts), there, timings)
    corrected = timings.keys() & there.keys() & expected.keys()
    rows = [
        replace(row, corrected=row.verdict.config in corrected)
        for row in _rows(verdicts, expected, timings)
    ]
    evidence = (
        why or f"{len(corrected)} timings of {launch.record.key.device} correct the prediction"
    )
    return Retargeted(
        record=launch.record,
        recorded_on=recorded_on,
        target=target,
        stored=next(row for row in rows if row.verdict.config == winner),
        ranking=tuple(row for row in rows if row.expected_us is not None),
        evidence=evidence,
        notes=(*launch.notes(), *report.notes),
    )


def _comparable(launch: RecordedLaunch, target: Target) -> tuple[Target | None, str]:
    """Return the target of the record's device, and why its timings say nothing here, if so."""
    record = launch.record
    there = known_device(record.key.device)
    unused = "the record's timings do not correct the prediction: "
    if there is None:
        return None, f"{unused}no descriptor describes {record.key.device}"
    if there.arch != target.arch:
        return there, f"{unused}{target.arch} runs other machine code than {there.arch}"
    if not reusable(record.provenance.source, record.provenance.triton, launch.expected):
        return there, f"{unused}they were taken of another source or Triton"
    return there, ""


def _judged(
    launch: RecordedLaunch, target: Target, settings: Settings, configs: Sequence[Config]
) -> dict[Config, Verdict]:
    if not configs:
        return {}
    funnel = Funnel(target, make_scorer("roofline"), settings)
    verdicts = funnel.judge(launch.loaded.problem, configs)
    return {verdict.config: verdict for verdict in verdicts}


def _predicted(verdicts: Mapping[Config, Verdict]) -> dict[Config, float]:
    """Return predicted microseconds of what runs."""
    return {
        config: verdict.predicted_us
        for config, verdict in verdicts.items()
        if verdict.predicted_us is not None and verdict.dropped_at in (None, "score")
    }


def _rows(
    verdicts: Mapping[Config, Verdict],
    expected: Mapping[Config, float],
    timings: Mapping[Config, float],
) -> list[RetargetedConfig]:
    """Sort by expected time, what does not run last, and number the ranks."""
    order = sorted(verdicts, key=lambda config: expected.get(config, float("inf")))
    rows = []
    for rank, config in enumerate(order, 1):
        verdict = replace(verdicts[config], rank=rank if config in expected else None)
        rows.append(RetargetedConfig(verdict, timings.get(config), expected.get(config)))
    return rows


def _identified(
    module: KernelModule, record: TuneRecord, shape: Shape, dtype: str
) -> tuple[LoadedKernel, TuneKey, Provenance]:
    loaded = load_kernel(module, shape=shape, dtype=dtype)
    launch = StoredLaunch(loaded.problem, loaded.space, tuner_of(module))
    return loaded, *launch.identity(record.key.device)


def _same_launch(one: TuneKey, other: TuneKey) -> bool:
    """Compare all but the kernel's module: a file may be imported under another name."""
    return (dict(one.shape), dict(one.dtypes)) == (dict(other.shape), dict(other.dtypes))


def _shapes(module: KernelModule, key: TuneKey) -> Iterator[Shape]:
    """Yield the module's shapes with the sizes of a key in place of theirs, each once."""
    sizes = {_argument(name): value for name, value in key.shape.items()}
    seen: list[Shape] = []
    for own in module.shapes or ({},):
        shape = {name: sizes.get(name, value) for name, value in own.items()} or sizes
        if shape not in seen:
            seen.append(shape)
            yield shape


def _argument(name: str) -> str:
    """Return the argument that a key's part is about: `N` of `pow2(N)`."""
    bucket = bucket_of(name)
    return name if bucket is None or bucket.argument is None else bucket.argument
