"""The model's first pick for a key, kept so that the next process need not predict again."""

from __future__ import annotations

from contextlib import AbstractContextManager

from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.measure.checks.tensors import preserved
from asmtune.predict.prune.picking import first_pick, small_pick
from asmtune.store.lookup import StoredPrediction
from asmtune.tuning.options import TuneJob
from asmtune.tuning.tuner import Tuner


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
    workshop.shelf.save_prediction(made)
    return made
