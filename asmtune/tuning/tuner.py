"""What all problems of one call share, and the way from a key to its record.

store -> shipped -> another process that tunes it now -> tune -> store
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Self

from asmtune.base.errors import AsmtuneError, InputError
from asmtune.base.settings import Settings
from asmtune.compile.load import launch_values
from asmtune.core.hardware.shipped import match_device
from asmtune.core.ir_overrides import pinned_space
from asmtune.core.records.tuned import Provenance, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.measure.checks.preserve import preserved
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProgressListener
from asmtune.predict.prune.picking import first_pick, small_pick
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.lookup import StoredPrediction
from asmtune.store.safe_store import SafeStore, open_user_store
from asmtune.store.shipped import find_tuned
from asmtune.tuning.initial_state import experience
from asmtune.tuning.options import TuneJob, TuneOptions, TuneResult
from asmtune.tuning.request import provenance, with_files
from asmtune.tuning.session import Opener, Session


@dataclass
class Tuner:
    """Where jobs are done one after another; one compile serves all of equal specialisation.

    Attributes:
        funnel: for this device.
        options: how to tune.
        shelf: the user's store, which may fail without harm.
        audience: told how far each job is.
        opener: see `Session`.
        done: records of this call, which teach the jobs after them.
    """

    funnel: Funnel
    options: TuneOptions
    shelf: SafeStore
    audience: ProgressListener = field(default_factory=ProgressListener)
    opener: Opener | None = None
    done: list[TuneRecord] = field(default_factory=list)

    @classmethod
    def open(cls, device: str, options: TuneOptions, settings: Settings | None = None) -> Self:
        """A workshop for a device, by its driver's name for it.

        Raises:
            InputError: no target describes the device.
        """
        target = match_device(device)
        if target is None:
            raise InputError(
                f"no target describes the device {device!r}; "
                "add a JSON file for it, or launch with a fixed config"
            )
        settings = settings or Settings.from_environment()
        scorer = make_scorer(options.effort.scorer)
        funnel = Funnel(target, scorer, settings, tiles=options.tiles)
        return cls(funnel, options, open_user_store(settings))

    def resolve(self, job: TuneJob, space: Space) -> TuneResult:
        """The record of a job: known, or tuned now and kept.

        Raises:
            AsmtuneError: it cannot be tuned; says why.
        """
        start = time.perf_counter()
        space = pinned_space(space, self.funnel.settings.overrides_dir)
        result = self._resolved(job, space)
        if result.record is not None:
            record = with_files(result.record, space)
            self.done.append(record)
            result = replace(result, record=record)
            if result.outcome == "tuned":
                self.options.hooks.reset(launch_values(job.problem, record.winner))
        return replace(result, seconds=time.perf_counter() - start)

    def results(self, jobs: Sequence[TuneJob], space: Space) -> Iterator[TuneResult]:
        """Each job's result as it is done; one that fails stops no other."""
        for job in jobs:
            start = time.perf_counter()
            try:
                yield self.resolve(job, space)
            except AsmtuneError as error:
                seconds = time.perf_counter() - start
                yield TuneResult(job, "failed", seconds=seconds, error=str(error))

    def expected(self, job: TuneJob, space: Space) -> Provenance:
        """What a config of a job, tuned here and now, depends on."""
        options = self.options
        return provenance(
            job.problem,
            space,
            tiles=options.tiles,
            objective=options.objective,
            clock=options.clock,
        )

    def _resolved(self, job: TuneJob, space: Space) -> TuneResult:
        options, force = self.options, self.options.force
        expected = self.expected(job, space)
        found = find_tuned(job.key, expected, self.shelf)
        if found.outcome == "hit" and not force:
            return TuneResult(job, "known", found.record)
        wait = options.on_busy == "wait"
        told = self.audience.waiting
        with self.shelf.flight(job.key, expected, wait=wait, force=force, on_wait=told) as flight:
            if flight.record is not None:
                return TuneResult(job, "known", flight.record)
            if not flight.mine:
                return TuneResult(job, "busy", error=f"{flight.holder} tunes it")
            result = self._session(job).run(job, space, expected)
            # Two that tuned one key go on with the same record: the one that was kept first.
            record = None if result.record is None else flight.finish(result.record)
            return replace(result, record=record)

    def _session(self, job: TuneJob) -> Session:
        known = [*self.done, *self.shelf.records(job.key.kernel, job.key.device)]
        return Session(
            funnel=self.funnel,
            options=self.options,
            shelf=self.shelf,
            experience=experience(known, job.key),
            audience=self.audience,
            opener=self.opener,
        )


def predict(workshop: Tuner, job: TuneJob, space: Space) -> StoredPrediction:
    """The config that ranks first for a job, with nothing timed; kept in the store.

    What is sketched and compiled for it serves a later tuning in the same workshop.

    Raises:
        InputError: space, problem and kernel do not fit.
        CompileError: none of the best-ranked configs compiles.
        StoreError: the artifacts' folder cannot be written.
    """
    with _untouched(job, space):
        pick = first_pick(workshop.funnel, job.problem, space)
    return _kept(workshop, job, space, pick)


def predict_small(
    workshop: Tuner, job: TuneJob, space: Space, limit_us: float | None
) -> StoredPrediction | None:
    """As `predict`, of a job that is predicted to run for less time than a limit; else None.

    Args:
        workshop: whose device the job is for.
        job: the launch.
        space: the configs.
        limit_us: microseconds; None for a job that is small whatever is predicted.

    Raises:
        InputError: as `predict`.
        CompileError: as `predict`.
        StoreError: as `predict`.
    """
    with _untouched(job, space):
        pick = small_pick(workshop.funnel, job.problem, space, limit_us)
    return None if pick is None else _kept(workshop, job, space, pick)


def _untouched(job: TuneJob, space: Space) -> AbstractContextManager[None]:
    """Within it the front end may run configs' hooks: afterwards arguments are as before."""
    hooked = any(config.pre_hook for config in space.configs(**job.problem.shape))
    return preserved(job.problem.arguments.values() if hooked else ())


def _kept(workshop: Tuner, job: TuneJob, space: Space, pick: Verdict) -> StoredPrediction:
    made = StoredPrediction(job.key, pick.config, pick.predicted_us, workshop.expected(job, space))
    workshop.shelf.predict(made)
    return made
