"""`Tuner`: from a request to its record or its predicted config, on one device.

store -> shipped -> another process that tunes it now -> another Triton's fastest -> tune -> store
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, Unpack

from asmtune.base.errors import (
    AsmtuneError,
    CompileError,
    CompileLimitError,
    ForeignWriteError,
    MeasureError,
    NoGpuError,
    UnreadableError,
    UntimedError,
)
from asmtune.base.settings import Settings
from asmtune.compile.load import launch_values
from asmtune.core.hardware.shipped import match_device
from asmtune.core.ir_overrides import pinned_space
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.ir.ttir.work import Work
from asmtune.measure.checks.tensors import preserved
from asmtune.measure.memory import returning_memory
from asmtune.measure.timing.nvml import NO_GPU, device_name
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.picking import first_pick
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.interchange import find_tuned, shipped_of
from asmtune.store.lookup import StoredPrediction
from asmtune.store.safe_store import SafeStore, open_user_store
from asmtune.triton_api.user_state import outside, searching
from asmtune.tuning.initial_state import seeds_of
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import Choices, TuneOptions
from asmtune.tuning.request import (
    TuningRequest,
    TuningResult,
    check_types,
    key_of,
    with_own_values,
)
from asmtune.tuning.session import Opener, Session
from asmtune.tuning.unranked import UnrankedFunnel, UnrankedSession

_READ: Final = "cuda"
"""The backend whose machine code is read and launched."""


@dataclass
class Tuner:
    """Tunes requests one after another; requests of equal specialisation share their compiles.

    `opener` is a `Session`'s. `unread` says why configs are not ranked, where that turns out; it is
    known beforehand of a device whose machine code nothing `ranks`.
    """

    funnel: Funnel
    options: TuneOptions
    store: SafeStore
    listener: TuningListener = field(default_factory=TuningListener)
    opener: Opener | None = None
    unread: str = "no config's machine code can be read here"
    ranks: bool = True

    @classmethod
    def on_this_gpu(cls, options: TuneOptions) -> tuple[str, Tuner]:
        """Make a tuner for the current GPU; return the GPU's name with it.

        Raises:
            NoGpuError: there is no GPU.
        """
        try:
            name = device_name()
        except NoGpuError:
            raise NoGpuError(f"tune needs a CUDA GPU; {NO_GPU}") from None
        return name, cls.open(name, options)

    @classmethod
    def open(cls, device: str, options: TuneOptions, settings: Settings | None = None) -> Tuner:
        """Make a tuner for a device, by its driver's name for it.

        Where nothing is known of the device, the tuner compiles and times everything.
        """
        settings = settings or Settings.from_environment()
        target = match_device(device)
        if target is None or target.backend != _READ:
            unread = "no descriptor describes it, and its driver does not tell enough"
            if target is not None:
                unread = f"machine code of backend {target.backend} is not read at launches"
            funnel = UnrankedFunnel.of(settings)
            return cls(funnel, options, open_user_store(settings), unread=unread, ranks=False)
        funnel = Funnel(target, make_scorer(options.effort.scorer), settings)
        return cls(funnel, options, open_user_store(settings))

    def request(
        self, problem: Problem, key: TuneKey, space: Space, reference: str | None = None
    ) -> TuningRequest:
        """Make a request that is tuned as this tuner's options say."""
        options = self.options
        names = ("do_bench", "alternatives")
        choices = {name: getattr(options, name) for name in names}
        checks = options.checks
        choices |= {name: getattr(checks, name) for name in ("reference", "tolerance")}
        choices["check"] = checks.accuracy or ("bits" if checks.bits_equal else "close")
        pinned = pinned_space(space, self.funnel.settings.overrides_dir)
        return TuningRequest(problem, key, pinned, choices, reference)

    def resolve(self, request: TuningRequest, *, looked_up: bool = False) -> TuningResult:
        """Look a request's record up, or tune it now and store the record.

        Raises:
            AsmtuneError: it cannot be tuned; says why.
        """
        start = time.perf_counter()
        with outside():
            result = self._resolved(request, looked_up=looked_up)
        return replace(result, seconds=time.perf_counter() - start)

    def _resolved(self, request: TuningRequest, *, looked_up: bool) -> TuningResult:
        known = None
        if not (looked_up or self.options.force):
            lookup = find_tuned(request.key, request.expected, self.store)
            serves = lookup.outcome == "hit" and not lookup.lacks(request.alternatives)
            known = lookup.record if serves else None
        if known is not None and request.own(known.winner) is not None:
            result = TuningResult(request, "known", known)
        else:
            result = self._leased(request, force=self.options.force)
        if result.record is not None:
            record = with_own_values(result.record, request)
            winner = record.winner_among(request.alternatives)
            if winner != record.winner:  # the code has no such function any more, or not here
                record = replace(record, winner=winner)
            result = replace(result, record=record)
            if result.outcome == "tuned":
                self.options.hooks.reset(launch_values(request.problem, record.winner))
        return result

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
            CompileError: none of the best-ranked configs compiles, or nothing is known of the
                device.
            StoreError: the artifacts' folder cannot be written.
        """
        if not self.ranks:
            raise CompileError(f"{request.key.device}: {self.unread}")
        with _preserved_from_hooks(request):
            pick = first_pick(self.funnel, request.problem, request.space)
            self.funnel.front(request.problem).hand_to_triton(pick.config)
        prediction = StoredPrediction(request.key, pick.config, pick.predicted_us, request.expected)
        self.store.save_prediction(prediction)
        return prediction

    def work(self, request: TuningRequest) -> Work | None:
        """Return the work of the default config by its TTIR; None if it cannot be read."""
        default = request.space.first(**request.problem.shape)
        if not self.ranks or default.ir_override is not None:
            return None
        with _preserved_from_hooks(request):
            work = self.funnel.front(request.problem).work(default)
        return work if isinstance(work, Work) else None

    def _leased(
        self, request: TuningRequest, *, force: bool, beside: TuneRecord | None = None
    ) -> TuningResult:
        """Tune under a lease of the key, or take the record of the process that holds it.

        A record whose config is not in the space is replaced, as `force` replaces any. Where one
        lacks alternatives, they are timed `beside` its winner, and join it.
        """
        lease = self.store.lease(
            request.key,
            request.expected,
            force=force,
            on_wait=self.listener.waiting,
        )
        with lease:
            known = lease.record
            if known is not None and request.own(known.winner) is not None:
                if request.alternatives.keys() <= known.tried:
                    return TuningResult(request, "known", known)
                beside = known
            if known is None and not lease.mine:
                return TuningResult(request, "busy", error=f"{lease.holder} tunes it")
            if known is None or force:
                result = None if force else self._retimed(request)
                if result is None:
                    searched = request if beside is None else request.only(beside.winner)
                    result = self._searched(searched)
                if result.record is None:
                    return result
                made = request.complete(result.record, beside)
                # Processes that tuned one key use the same record: the one that was stored first.
                first = lease.finish(made)
                fits = first is made or request.own(first.winner) is not None
                return replace(result, record=first if fits else made)
        return self._leased(request, force=True, beside=beside)

    def with_listener(self, listener: TuningListener) -> Self:
        """Make the same tuner, which reports its progress to a listener."""
        return replace(self, listener=listener, funnel=replace(self.funnel, progress=listener))

    def _searched(self, request: TuningRequest) -> TuningResult:
        """Tune with ranking; without it where asmtune cannot compile, or read what is compiled."""
        if not self.ranks:
            with returning_memory():
                return self._unranked(self.unread).run(request)
        try:
            with returning_memory():
                return self._session(request).run(request)
        except UnreadableError as error:
            reason = str(error) if isinstance(error, CompileLimitError) else self.unread
            try:
                return self._unranked(reason).run(request)
            except ForeignWriteError:
                raise
            except (CompileError, MeasureError):
                raise CompileError(str(error)) from error

    def _retimed(self, request: TuningRequest) -> TuningResult | None:
        """Time the fastest configs of another Triton's record; None where none of them can run."""
        earlier = self._of_other_triton(request)
        narrowed = None if earlier is None else request.among_fastest(earlier)
        if narrowed is None:
            return None
        try:
            result = self._searched(narrowed)
        except UntimedError:
            raise
        except (CompileError, MeasureError):
            return None
        default = narrowed.space.first(**request.problem.shape)
        timed = () if result.record is None else result.record.config_timings
        is_alone = narrowed.space.size > 1 and all(one.config == default for one in timed)
        return None if is_alone else replace(result, request=request, earlier=earlier)

    def _of_other_triton(self, request: TuningRequest) -> TuneRecord | None:
        answer = find_tuned(request.key, request.expected, self.store)
        return answer.record if answer.is_candidate else None

    def provisional(self, request: TuningRequest, earlier: TuneRecord) -> StoredPrediction | None:
        """Return the winner of another Triton's record if it compiles here, and store it untimed.

        None where it does not, or is not in the space.

        Raises:
            InputError: space, problem and kernel do not fit.
            StoreError: the artifacts' folder cannot be written.
        """
        if not self.ranks:
            return None
        config = request.own(earlier.winner_among(request.alternatives))
        if config is None or config.ir_override is not None:
            return None
        with _preserved_from_hooks(request):
            front = self.funnel.front(request.problem)
            (verdict,) = front.verdicts([config.plain], "assembly", self.funnel.known)
            if not verdict.kept:
                return None
            front.hand_to_triton(config.plain)
        made = StoredPrediction(request.key, config, earlier.median_us, request.expected)
        self.store.save_prediction(made)
        return made

    def _unranked(self, reason: str) -> UnrankedSession:
        jobs = self.funnel.settings.jobs
        return UnrankedSession(self.options, jobs, reason, self.funnel.progress)

    def _session(self, request: TuningRequest) -> Session:
        kernel = request.key.kernel
        known = [*self.store.near(request.key), *shipped_of(kernel)]
        # What is tuned anew by force shall not depend on what was found before.
        records = [r for r in known if not (self.options.force and r.key == request.key)]
        return Session(
            funnel=self.funnel,
            options=self.options,
            seeds=seeds_of(records, request.key, self.funnel.target),
            listener=self.listener,
            opener=self.opener,
        )


def _preserved_from_hooks(request: TuningRequest) -> AbstractContextManager[Any]:
    """Restore the arguments at exit if configs have hooks, which the front end may run."""
    return preserved(request.problem.arguments.values() if request.is_hooked else ())


def tune(problem: Problem, space: Any = None, **choices: Unpack[Choices]) -> TuneRecord:
    """Find the fastest config of a space for one launch, and return its record.

    A record that the store has is taken from it; a new one is stored. What an interrupted run has
    compiled serves the next.

    Args:
        problem: the launch.
        space: a `Space`, configs, or axes by name.
        choices: `effort`, `isolate` and the others: see `TuneOptions`.

    Raises:
        InputError: problem, space and kernel do not fit, or a choice has an invalid value.
        CompileError: no config can run.
        MeasureError: there is no GPU, or no config that compiled can be launched.
    """
    check_types(problem, space)
    with searching():
        device, tuner = Tuner.on_this_gpu(TuneOptions.of(choices))
        searched = Space.of(space)
        result = tuner.resolve(tuner.request(problem, key_of(problem, device), searched))
    if result.record is None:
        raise MeasureError(
            f"{problem.name} is being tuned by another process; "
            "try again, or set ASMTUNE_WAIT_S higher"
        )
    return result.record
