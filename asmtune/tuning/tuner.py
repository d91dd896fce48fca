"""`Tuner`: from a request to its record or its predicted config, on one device.

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
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.measure.checks.tensors import preserved
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProgressListener
from asmtune.predict.prune.picking import first_pick, small_pick
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.lookup import StoredPrediction
from asmtune.store.safe_store import SafeStore, open_user_store
from asmtune.store.shipped import find_tuned
from asmtune.tuning.initial_state import experience
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult, with_files
from asmtune.tuning.session import Opener, Session


@dataclass
class Tuner:
    """Tunes requests one after another; requests of equal specialisation share their compiles.

    Attributes:
        funnel: for this device.
        options: how to tune.
        store: the user's store; its errors are warnings.
        listener: called as each request proceeds.
        opener: see `Session`.
        done: records of this call, which the requests after them learn from.
    """

    funnel: Funnel
    options: TuneOptions
    store: SafeStore
    listener: ProgressListener = field(default_factory=ProgressListener)
    opener: Opener | None = None
    done: list[TuneRecord] = field(default_factory=list)

    @classmethod
    def open(cls, device: str, options: TuneOptions, settings: Settings | None = None) -> Self:
        """Make a tuner for a device, by its driver's name for it.

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

    def request(
        self, problem: Problem, key: TuneKey, space: Space, reference: str | None = None
    ) -> TuningRequest:
        """Make a request that is tuned as this tuner's options say.

        Args:
            problem: the launch.
            key: what its config is stored under.
            space: the configs; files that they name are copied.
            reference: see `TuningRequest`.
        """
        options = self.options
        choices = {
            "tiles": options.tiles,
            "objective": options.objective,
            "do_bench": options.do_bench,
        }
        pinned = pinned_space(space, self.funnel.settings.overrides_dir)
        return TuningRequest(problem, key, pinned, choices, reference)

    def resolve(self, request: TuningRequest, *, looked_up: bool = False) -> TuningResult:
        """Look a request's record up, or tune it now and store the record.

        Args:
            request: a request for this device, with this tuner's options.
            looked_up: True if the caller has looked in the stores and found no record.

        Raises:
            AsmtuneError: it cannot be tuned; says why.
        """
        start = time.perf_counter()
        result = self._stored(request) if not (looked_up or self.options.force) else None
        if result is None:
            result = self._leased(request)
        if result.record is not None:
            record = with_files(result.record, request.space)
            self.done.append(record)
            result = replace(result, record=record)
            if result.outcome == "tuned":
                self.options.hooks.reset(launch_values(request.problem, record.winner))
        return replace(result, seconds=time.perf_counter() - start)

    def results(self, requests: Sequence[TuningRequest]) -> Iterator[TuningResult]:
        """Yield each request's result when it is done; one that fails does not stop the others."""
        for request in requests:
            start = time.perf_counter()
            try:
                yield self.resolve(request)
            except AsmtuneError as error:
                seconds = time.perf_counter() - start
                yield TuningResult(request, "failed", seconds=seconds, error=str(error))

    def predict(self, request: TuningRequest) -> StoredPrediction:
        """Predict the best config without timing anything, and store the prediction.

        What is sketched and compiled for it serves a later tuning by the same tuner.

        Raises:
            InputError: space, problem and kernel do not fit.
            CompileError: none of the best-ranked configs compiles.
            StoreError: the artifacts' folder cannot be written.
        """
        with _preserved_from_hooks(request):
            pick = first_pick(self.funnel, request.problem, request.space)
        return self._store_prediction(request, pick)

    def predict_small(
        self, request: TuningRequest, limit_us: float | None
    ) -> StoredPrediction | None:
        """Predict as `predict` does; None if the predicted time is not below a limit.

        Args:
            request: a request for this device.
            limit_us: microseconds; None for a problem that is small whatever is predicted.

        Raises:
            InputError: as `predict`.
            CompileError: as `predict`.
            StoreError: as `predict`.
        """
        with _preserved_from_hooks(request):
            pick = small_pick(self.funnel, request.problem, request.space, limit_us)
        return None if pick is None else self._store_prediction(request, pick)

    def _store_prediction(self, request: TuningRequest, pick: Verdict) -> StoredPrediction:
        prediction = StoredPrediction(request.key, pick.config, pick.predicted_us, request.expected)
        self.store.save_prediction(prediction)
        return prediction

    def _stored(self, request: TuningRequest) -> TuningResult | None:
        lookup = find_tuned(request.key, request.expected, self.store)
        return TuningResult(request, "known", lookup.record) if lookup.outcome == "hit" else None

    def _leased(self, request: TuningRequest) -> TuningResult:
        """Tune under a lease of the key, or take the record of the process that holds it."""
        options = self.options
        lease = self.store.lease(
            request.key,
            request.expected,
            wait=options.on_busy == "wait",
            force=options.force,
            on_wait=self.listener.waiting,
        )
        with lease:
            if lease.record is not None:
                return TuningResult(request, "known", lease.record)
            if not lease.mine:
                return TuningResult(request, "busy", error=f"{lease.holder} tunes it")
            result = self._session(request).run(request)
            # Two processes that tuned one key use the same record: the one that was stored first.
            record = None if result.record is None else lease.finish(result.record)
            return replace(result, record=record)

    def _session(self, request: TuningRequest) -> Session:
        known = [*self.done, *self.store.records(request.key.kernel, request.key.device)]
        return Session(
            funnel=self.funnel,
            options=self.options,
            store=self.store,
            experience=experience(known, request.key),
            listener=self.listener,
            opener=self.opener,
        )


def _preserved_from_hooks(request: TuningRequest) -> AbstractContextManager[None]:
    """Restore the arguments at exit if configs have hooks, which the front end may run."""
    hooked = any(config.pre_hook for config in request.configs())
    return preserved(request.problem.arguments.values() if hooked else ())
