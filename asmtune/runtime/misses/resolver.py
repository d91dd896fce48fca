"""Resolves a request (a launch whose key is not in memory) to a config.

store -> shipped -> small? -> as `on_miss` says
store -> shipped -> the model's pick, where configs are chosen deterministically

Looking a key up loads neither the funnel nor a scorer, nor SQLAlchemy for a store in a file.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import (
    AsmtuneError,
    CompileError,
    MemoryShortError,
    MissError,
    UntimedError,
)
from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.runtime.determinism import is_deterministic
from asmtune.runtime.events import LAUNCHING_MODULES, Notices, key_text, miss_message
from asmtune.runtime.misses.early_start import start_workers
from asmtune.runtime.misses.lookups import Choice, How, MissLookup
from asmtune.runtime.options import DecoratorOptions
from asmtune.store.codec import key_digest

if TYPE_CHECKING:
    from asmtune.runtime.rank_agreement import RankGroup
    from asmtune.tuning.request import TuningRequest
    from asmtune.tuning.tuner import Tuner


class MissWarning(UserWarning):
    """Launches of a key continue with another config than the one requested."""


class TunersByDevice:
    """Tuners by device, each opened when it is first needed: that loads all that tunes."""

    def __init__(self, choices: Mapping[str, Any]) -> None:
        self._choices: Any = choices
        self._tuners: dict[tuple[str, bool], Tuner] = {}
        self._lock = threading.Lock()

    def of(self, device: str, *, later: bool = False) -> Tuner:
        """Return the tuner of a device; in one for `later`, a child times until the program ends.

        Raises:
            InputError: a choice has an invalid value.
        """
        with self._lock:
            if (device, later) not in self._tuners:
                self._tuners[device, later] = self._open(device, later)
            return self._tuners[device, later]

    def _open(self, device: str, later: bool) -> Tuner:
        start_workers(device)
        from asmtune.tuning.options import TuneOptions
        from asmtune.tuning.tuner import Tuner

        options = TuneOptions.of(self._choices)
        if not later:
            return Tuner.open(device, options)
        from asmtune.runtime.misses.background import queue_of

        shutdown = queue_of(device).shutdown
        return Tuner.open(device, replace(options, isolate=True)).with_listener(shutdown)


HOST_LAUNCH_US: Final = 6.8
"""Host time of a launch by `@triton.jit` on an H200 machine (`triton.autotune` takes 20.8 us). A
shorter kernel waits for the host, whatever its config, unless a CUDA graph launches it."""


class Resolver:
    """Resolves requests to configs, by the options of one decorator.

    `on_tuned` is called for each key that was queued for the background, with its final choice,
    in that thread and with copies of the arguments.
    """

    def __init__(
        self,
        options: DecoratorOptions,
        on_tuned: Callable[[TuningRequest, Choice], None] = lambda _request, _choice: None,
    ) -> None:
        self.options = options
        self._on_tuned = on_tuned
        self._tuners = TunersByDevice(options.choices)
        self._in_progress: dict[str, Choice] = {}
        self._notices = Notices()
        self._lock = threading.Lock()

    def resolve(self, request: TuningRequest, *, capturing: bool = False) -> Choice:
        """Resolve a request to a config.

        While `capturing`, nothing is tuned, and only a deterministic choice may compile.

        Raises:
            MissError: no store knows the key, and `on_miss` is "raise".
            CompileError: no config can run.
            MeasureError: no config that compiled can be launched.
            InputError: space, problem and kernel do not fit.
        """
        if is_deterministic():
            lookup = MissLookup(request, Settings.from_environment())
            known, raises = lookup.tuned(), self.options.on_miss == "raise"
            if known is None and raises and not capturing:
                raise MissError(miss_message(request))
            # A rank of a job asks as if it captured: a pick that is final would never raise.
            return known or replace(self._deterministic(lookup), final=not raises)
        # Each launch meanwhile: before what takes milliseconds.
        waiting = bool(self._in_progress) and not capturing
        if waiting and (choice := self._in_progress.get(key_digest(request.key))):
            return choice
        lookup = MissLookup(request, Settings.from_environment())
        known = lookup.tuned() if capturing or not self.options.choices.get("force") else None
        if known is not None:
            return known if capturing else self._beside_all(lookup, known)
        stored = self._stored_pick(lookup)
        if stored is not None:
            return stored
        if capturing:
            return self._provisional(lookup)
        return self._small(request) or self._on_miss(lookup)

    def _default(self, request: TuningRequest) -> Choice:
        return Choice(request.space.first(**request.problem.shape), True, "heuristic")

    def _deterministic(self, lookup: MissLookup) -> Choice:
        """Return the pick that is the same on every machine."""
        request = lookup.request
        if self.options.checked_only:
            return self._default(request)
        from asmtune.tuning.deterministic import deterministic_pick

        pick = deterministic_pick(request, lookup.settings)
        if isinstance(pick, Config):
            return Choice(pick, True, "predicted")
        default = self._default(request)
        text = f"{key_text(request.key)}: nothing can be predicted, {pick}"
        warnings.warn(f"{text}; goes on with {default.config}", MissWarning, stacklevel=2)
        return default

    def _on_miss(self, lookup: MissLookup) -> Choice:
        on_miss = self.options.on_miss
        if on_miss == "raise":
            raise MissError(miss_message(lookup.request))
        if on_miss == "predict":
            return self._predicted(lookup)
        if on_miss == "tune":
            return self._tuned(lookup)
        return self._in_background(lookup, self._provisional(lookup))

    def _stored_pick(self, lookup: MissLookup) -> Choice | None:
        """Return an earlier process's prediction if the options accept one."""
        predicts = self.options.on_miss == "predict"
        if self.options.checked_only or (not predicts and self.options.small is None):
            return None
        stored = lookup.predicted
        if stored is None:
            return None
        predicted_us = stored.predicted_us if self.options.small == "auto" else None
        if not predicts and not (
            self.options.is_small(lookup.request.problem.arguments)
            or (predicted_us is not None and predicted_us < HOST_LAUNCH_US)
        ):
            return None
        if not predicts and self.options.heuristic is not None:
            return self._heuristic(lookup.request)
        return Choice(stored.config, True, "predicted")

    def _small(self, request: TuningRequest) -> Choice | None:
        """Return the config of a small problem, which is not worth timing; else None."""
        by_user = self.options.is_small(request.problem.arguments)
        if self.options.checked_only:
            return self._default(request) if by_user else None
        if by_user and self.options.heuristic is not None:
            return self._heuristic(request)
        # "predict" predicts in any case; the background thread predicts by itself.
        predicts = self.options.small == "auto" and self.options.on_miss in ("tune", "raise")
        if not by_user and not predicts:
            return None
        return self._small_pick(request, None if by_user else HOST_LAUNCH_US)

    def _small_pick(
        self, request: TuningRequest, limit_us: float | None, *, later: bool = False
    ) -> Choice | None:
        try:
            tuner = self._tuners.of(request.key.device, later=later)
            prediction = tuner.predict_small(request, limit_us)
        except CompileError:
            return None  # a sample does not compile; tuning finds out whether any config does
        if prediction is None:
            return None
        if self.options.heuristic is not None:
            return self._heuristic(request)
        return Choice(prediction.config, True, "predicted")

    def _predicted(self, lookup: MissLookup) -> Choice:
        """Return the nearest neighbour's config if that is allowed, else the model's first pick."""
        request = lookup.request
        if self.options.checked_only:
            return self._default(request)
        tuner = self._tuners.of
        fits = lambda config: tuner(request.key.device).runs(request, config)  # noqa: E731
        near = lookup.nearest(fits) if self.options.nearest else None
        if near is not None:
            return replace(near, final=True)
        try:
            prediction = self._tuners.of(request.key.device).predict(request)
        except CompileError as error:
            choice = self._heuristic(request)
            text = f"{key_text(request.key)}: nothing can be predicted, {error}"
            warnings.warn(f"{text}; goes on with {choice.config}", MissWarning, stacklevel=2)
            return choice
        return Choice(prediction.config, True, "predicted")

    def _provisional(self, lookup: MissLookup) -> Choice:
        """Return the best config known at once, which is not final."""
        if self.options.checked_only:
            return replace(self._default(lookup.request), final=False)
        near = lookup.nearest() if self.options.nearest else None
        if near is not None:
            return near
        stored = lookup.predicted
        if stored is not None:
            return Choice(stored.config, False, "predicted")
        return replace(self._heuristic(lookup.request), final=False)

    def _heuristic(self, request: TuningRequest) -> Choice:
        config = self.options.heuristic_config(request.space, request.problem.arguments)
        return Choice(config, True, "heuristic")

    def _tuned(self, lookup: MissLookup, *, later: bool = False) -> Choice:
        try:
            return self._resolved(lookup, later=later)
        except UntimedError as error:
            return self._untimed(lookup, error)

    def _resolved(self, lookup: MissLookup, *, later: bool = False) -> Choice:
        request = lookup.request
        tuner = self._tuners.of(request.key.device, later=later)
        result = tuner.resolve(request, looked_up=True)
        if result.record is None:  # another process tunes it
            return replace(self._provisional(lookup), how="busy")
        how: How = "tuned" if result.outcome == "tuned" else "known"
        winner, spent = result.record.winner, (result.compiled, result.timed)
        # The tuner has checked what it took from a store.
        own = request.space.matching(winner, **request.problem.shape) or winner
        own = request.with_alternative_of(winner, own)
        return Choice(own, True, how, result.record, *spent)

    def _untimed(self, lookup: MissLookup, error: UntimedError) -> Choice:
        """Return a config that nothing was timed for; warn of it, once for a kernel's writes."""
        try:
            choice = self._predicted(lookup)
        except MemoryShortError:  # not even for copies of what hooks may write
            choice = self._heuristic(lookup.request)
        key, is_short = lookup.request.key, isinstance(error, MemoryShortError)
        if is_short or self._notices.first("writes", key.kernel):
            why = f"memory is short: {error}" if is_short else f"{error}"
            message = f"{key_text(key)}: not tuned, {why}; goes on with {choice.config}"
            warnings.warn(message, MissWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))
        return choice

    def _beside_all(self, lookup: MissLookup, known: Choice) -> Choice:
        """Time a stored config beside the alternatives that its record lacks, if keys are tuned."""
        if self.options.on_miss != "tune" or not lookup.lacks_alternatives:
            return known
        try:
            found = self._resolved(lookup)
        except AsmtuneError as error:
            text = f"{key_text(lookup.request.key)}: alternatives are not timed, {error}"
            warnings.warn(f"{text}; goes on with {known.config}", MissWarning, stacklevel=2)
            return known
        return found if found.how in ("tuned", "known") else known

    def _in_background(self, lookup: MissLookup, pick: Choice) -> Choice:
        from asmtune.runtime.misses.background import tune_later

        digest = key_digest(lookup.request.key)
        with self._lock:
            if digest in self._in_progress:
                return self._in_progress[digest]
            self._in_progress[digest] = pick
            # Capturing `lookup` would keep the caller's tensors alive until then.
            settings = lookup.settings

            def settle(copy: TuningRequest) -> None:
                self._settle(MissLookup(copy, settings), pick)

            if not tune_later(lookup.request, settle):
                self._in_progress[digest] = replace(pick, final=True)
            return self._in_progress[digest]

    def _settle(self, lookup: MissLookup, pick: Choice) -> None:
        """Find the final choice of a key in the background; failures become warnings."""
        outcome = self._attempt(lookup)
        if isinstance(outcome, str):
            text = f"{key_text(lookup.request.key)}: not tuned in the background, {outcome}"
            warnings.warn(f"{text}; goes on with {pick.config}", MissWarning, stacklevel=2)
            outcome = replace(pick, final=True)
        with self._lock:
            if not outcome.final:  # another process still tunes it: the next launch asks again
                del self._in_progress[key_digest(lookup.request.key)]
                return
            self._in_progress[key_digest(lookup.request.key)] = outcome
        self._on_tuned(lookup.request, outcome)

    def _attempt(self, lookup: MissLookup) -> Choice | str:
        def work() -> Choice:
            auto = self.options.small == "auto" and not self.options.checked_only
            small = self._small_pick(lookup.request, HOST_LAUNCH_US, later=True) if auto else None
            return small or self._tuned(lookup, later=True)

        try:
            outcome = guarded("tune", work)
        except AsmtuneError as error:
            return str(error)
        return str(outcome) if isinstance(outcome, Failure) else outcome


def current_job() -> RankGroup | None:
    """Return the job that this process is a rank of; None without one, or if it has one rank.

    It imports no PyTorch: a process that has not loaded `torch.distributed` is no rank.
    """
    group: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() < 2:
        return None
    from asmtune.runtime.rank_agreement import RankGroup

    store = group._get_default_store()
    return None if store is None else RankGroup(store, group.get_rank())


def resolve(resolver: Resolver, request: TuningRequest, *, capturing: bool = False) -> Choice:
    """Resolve as `Resolver.resolve` does, to a config that all ranks of this process's job use.

    While a CUDA graph is captured (`capturing`), all ranks use the config of the first capture.
    A config that ranks agreed on is final.
    """
    job = current_job()
    if job is None:
        return resolver.resolve(request, capturing=capturing)
    from asmtune.runtime.rank_agreement import AgreementKey, RankPace, Resolvers

    choices: list[Choice] = []

    def chosen(choice: Choice) -> Config:
        choices.append(choice)
        return choice.config

    def known() -> Config | None:
        choice = resolver.resolve(request, capturing=True)
        return chosen(choice) if choice.final else None

    def pick() -> Config:
        return chosen(resolver.resolve(request, capturing=True))

    def configs() -> Iterator[Config]:
        """Yield the configs that a rank may announce: the user's own."""
        yield from request.configs()
        if resolver.options.heuristic is not None:
            yield resolver.options.heuristic_config(request.space, request.problem.arguments)

    agreement = AgreementKey(request.key, request.expected, configs)
    if capturing:
        config = job.publish(agreement, pick())
    else:
        resolvers = Resolvers(
            known=known, resolve=lambda: chosen(resolver.resolve(request)), fallback=pick
        )
        config = job.agree(
            agreement, resolvers, RankPace(wait_s=Settings.from_environment().wait_s)
        )
    own = next((choice for choice in choices if choice.config is config), None)
    if own is None:
        return Choice(config, True, "known")
    return replace(own, final=own.final or not capturing)
