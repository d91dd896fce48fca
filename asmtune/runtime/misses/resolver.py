"""Resolves a launch whose key is not in memory to a config, by an ordered list of providers.

A provider takes a `MissLookup` and returns a `Choice`, or None to leave it to the next. The options
of a decorator put the lists together once, one for each moment in which a launch may ask:

launch          in progress, stored, predicted before, small, then as `on_miss` says: a record of
                another Triton has its fastest timed by "tune", and its winner launched by others
capture         stored, predicted before, else the best that is known at once, provisionally
deterministic   stored, else the model's pick that is the same on every machine

Looking a key up loads neither the funnel nor a scorer, nor SQLAlchemy for a store in a file.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

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
from asmtune.runtime.calls import current_job
from asmtune.runtime.events import LAUNCHING_MODULES, Notices, key_text, miss_message
from asmtune.runtime.misses.in_progress import KeysInProgress
from asmtune.runtime.misses.lookups import Choice, How, MissLookup
from asmtune.runtime.options import DecoratorOptions, is_deterministic
from asmtune.store.lookup import SMALL, StoredPrediction

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest
    from asmtune.tuning.tuner import Tuner

Provider = Callable[[MissLookup], Choice | None]

_READERS: Final = ("asmtune.predict.features.reader", "asmtune.predict.features.sketch.reader")
"""Modules that the workers import before those that tune are loaded here."""


class MissWarning(UserWarning):
    """Launches of a key continue with another config than the one requested."""


def _start_workers(device: str) -> None:
    """Start the workers in the background, while all that tunes is loaded: 0.6 s.

    Earlier it would cost programs that never tune. On 2 cores two workers with their compilers
    take 0.7 s and 150 MiB.
    """
    from asmtune.compile.pool import warm
    from asmtune.core.hardware.shipped import match_device

    target = match_device(device)
    if target is not None and target.backend == "cuda":
        warm(target.machine, _READERS, Settings.from_environment())


class Resolver:
    """Resolves requests to configs, by the options of one decorator.

    `on_tuned` gets the choice of each key that was queued for the background; see `KeysInProgress`.
    """

    def __init__(
        self,
        options: DecoratorOptions,
        on_tuned: Callable[[TuningRequest, Choice], None] = lambda _request, _choice: None,
    ) -> None:
        self.options = options
        self._tuners: dict[tuple[str, bool], Tuner] = {}
        self._opening = threading.Lock()
        self._in_progress = KeysInProgress(self._tuned_later, _warn, on_tuned)
        self._notices = Notices()
        # Where outputs must be the default's, no other config may run unchecked.
        self._untimed = self._fallback if options.checked_only else self._predicted
        has_limit = options.skip_tuning_below_us is not None and not options.checked_only
        self._before_timing: list[Provider] = [self._small] if has_limit else []
        self._launch, self._capture, self._deterministic = self._lists()

    def _lists(self) -> tuple[list[Provider], list[Provider], list[Provider]]:
        """Put together the providers of a launch, of a capture, and of a deterministic choice."""
        options, stored = self.options, self._stored
        earlier: list[Provider] = [self._small_before] if self._before_timing else []
        actions: dict[str, list[Provider]] = {
            "tune": [*self._before_timing, self._tuned],
            "raise": [*self._before_timing, self._raised],
            "predict": [self._of_other_triton, self._untimed],
            "background": [self._in_background],
        }
        action = options.miss_action
        if action == "predict" and not options.checked_only:
            earlier = [self._predicted_before]
        known = [self._beside_all if action in ("tune", "background") else stored]
        if options.choices.get("force"):
            known = []
        launch = [self._in_progress.find, *known, *earlier, *actions[action]]
        pick = self._fallback if options.checked_only else self._same_everywhere
        return launch, [stored, *earlier, self._provisional], [stored, pick]

    def resolve(self, request: TuningRequest, *, capturing: bool = False) -> Choice:
        """Resolve a request to a config.

        While `capturing`, nothing is tuned, and only a deterministic choice may compile.

        Raises:
            MissError: no store knows the key, and `on_miss` is "raise".
            CompileError: no config can run.
            MeasureError: no config that compiled can be launched.
            InputError: space, problem and kernel do not fit.
        """
        lookup, raises = MissLookup(request, Settings.from_environment()), False
        providers = self._capture if capturing else self._launch
        if is_deterministic():
            providers, raises = self._deterministic, self.options.miss_action == "raise"
            if raises and not capturing:
                providers = [self._stored, self._raised]
        choice = _first(providers, lookup)
        # A pick that is captured must not keep later launches from raising.
        return replace(choice, final=False) if raises and choice.how != "known" else choice

    def tuner(self, device: str, *, later: bool = False) -> Tuner:
        """Return the tuner of a device, opened when it is first needed: that loads all that tunes.

        In one for `later`, a child times until the program ends.
        """
        with self._opening:
            if (device, later) not in self._tuners:
                self._tuners[device, later] = self._open(device, later)
            return self._tuners[device, later]

    def _open(self, device: str, later: bool) -> Tuner:
        _start_workers(device)
        from asmtune.tuning.options import Choices, TuneOptions
        from asmtune.tuning.tuner import Tuner

        options = TuneOptions.of(Choices(**self.options.choices))  # type: ignore[typeddict-item]
        if not later:
            return Tuner.open(device, options)
        from asmtune.runtime.misses.background import queue_of

        shutdown = queue_of(device).shutdown
        return Tuner.open(device, replace(options, isolate=True)).with_listener(shutdown)

    def _stored(self, lookup: MissLookup) -> Choice | None:
        return lookup.tuned()

    def _beside_all(self, lookup: MissLookup) -> Choice | None:
        """Return a stored config; now or later it is raced with what its record lacks."""
        known = lookup.tuned()
        if known is None or not lookup.lacks_alternatives:
            return known
        if self.options.miss_action == "background" and not self._waits:
            later = replace(known, final=False, until_tuned=True)
            return self._in_progress.begin(lookup, later)
        try:
            found = self._resolved(lookup)
        except AsmtuneError as error:
            _warn(lookup, f"alternatives are not timed, {error}", known)
            return known
        return found if found.how in ("tuned", "known") else known

    def _predicted_before(self, lookup: MissLookup) -> Choice | None:
        """Return an earlier process's prediction."""
        stored = lookup.predicted
        if stored is None or stored.how == "small":
            return None
        return Choice(stored.config, True, "predicted")

    def _of_other_triton(self, lookup: MissLookup, *, later: bool = False) -> Choice | None:
        """Return the winner of another Triton's record, untimed by this one, if it compiles.

        Where it is to be timed `later`, no notice is needed.
        """
        request, record = lookup.request, lookup.of_other_triton
        if record is None or self.options.checked_only:
            return None
        try:
            found = self.tuner(request.key.device, later=later).provisional(request, record)
        except CompileError:
            return None
        if found is None:
            return None
        choice = Choice(found.config, True, "provisional")
        if not later and self._notices.first("provisional", request.key.kernel):
            there, here = record.provenance.triton, request.expected.triton
            what = f"provisional, the winner of triton {there}, untimed by {here}"
            level = user_stacklevel(*LAUNCHING_MODULES)
            _warn(lookup, f"{what}: `asmtune tune` times the fastest again", choice, level)
        return choice

    def _small_before(self, lookup: MissLookup) -> Choice | None:
        """Return the config of a problem that an earlier process found small."""
        stored, limit = lookup.predicted, self.options.skip_tuning_below_us
        if stored is None or stored.how != "small" or stored.predicted_us is None or limit is None:
            return None
        from asmtune.predict.small import limit_us

        is_small = stored.predicted_us < limit_us(lookup.request.problem, limit)
        return self._small_choice(lookup, stored.config) if is_small else None

    def _small(self, lookup: MissLookup, *, later: bool = False) -> Choice | None:
        """Return the config of a small problem, which is not worth timing; else None.

        It is stored; a prediction of the model stays, and its config is taken, as is the winner
        of another Triton.
        """
        from asmtune.core.hardware.shipped import match_device
        from asmtune.core.size_rules import untuned_config
        from asmtune.predict.small import small_us
        from asmtune.store.safe_store import open_user_store

        request, limit = lookup.request, self.options.skip_tuning_below_us
        device, problem = request.key.device, request.problem
        target = match_device(device)
        if limit is None or target is None or target.backend != "cuda":
            return None  # the host's time was measured beside CUDA
        us = small_us(problem, target, limit, lambda: self.tuner(device, later=later).work(request))
        if us is None:
            return None
        before = self._predicted_before(lookup) or self._of_other_triton(lookup, later=later)
        if before is not None:
            return self._small_choice(lookup, before.config)
        config = untuned_config(problem, request.space, target)
        unsearched = replace(request.expected, space=SMALL)
        made = StoredPrediction(request.key, config, us, unsearched)
        open_user_store(lookup.settings).save_prediction(made)
        return self._small_choice(lookup, config)

    def _small_choice(self, lookup: MissLookup, config: Config) -> Choice:
        if self.options.fallback is not None:
            return self._fallback(lookup)
        return Choice(config, True, "small")

    def _predicted(self, lookup: MissLookup) -> Choice:
        """Return the model's first pick; if nothing can be predicted, warn and fall back."""
        request = lookup.request
        try:
            prediction = self.tuner(request.key.device).predict(request)
        except CompileError as error:
            choice = self._fallback(lookup)
            _warn(lookup, f"nothing can be predicted, {error}", choice)
            return choice
        return Choice(prediction.config, True, "predicted")

    def _same_everywhere(self, lookup: MissLookup) -> Choice:
        """Return the model's pick that is the same on every machine; else the default."""
        from asmtune.tuning.deterministic import deterministic_pick

        request = lookup.request
        pick = deterministic_pick(request, lookup.settings)
        if isinstance(pick, Config):
            return Choice(pick, True, "predicted")
        default = Choice(request.space.first(**request.problem.shape), True, "fallback")
        _warn(lookup, f"nothing can be predicted, {pick}", default)
        return default

    def _fallback(self, lookup: MissLookup) -> Choice:
        """Return the user's own config; where only checked ones may run, the space's default."""
        request = lookup.request
        if self.options.checked_only:
            config = request.space.first(**request.problem.shape)
        else:
            config = self.options.fallback_config(request.space, request.problem.arguments)
        return Choice(config, True, "fallback")

    def _provisional(self, lookup: MissLookup) -> Choice:
        """Return the best config known at once, which is not final."""
        before = None if self.options.checked_only else self._predicted_before(lookup)
        return replace(before or self._fallback(lookup), final=False)

    def _meanwhile(self, lookup: MissLookup) -> Choice:
        """Return what is launched while a key is tuned: an alternative before an untried config."""
        before = None if self.options.checked_only else self._predicted_before(lookup)
        before = before or self._of_other_triton(lookup, later=True)
        pick = replace(before or self._fallback(lookup), final=False)
        names = lookup.request.alternatives
        has_own = self.options.fallback is not None or self.options.checked_only
        if pick.how != "fallback" or has_own or not names:
            return pick
        config = pick.config.with_alternative(next(iter(names)))
        return replace(pick, config=config, until_tuned=True)

    def _raised(self, lookup: MissLookup) -> Choice:
        raise MissError(miss_message(lookup.request, lookup.of_other_triton))

    def _tuned(self, lookup: MissLookup, *, later: bool = False) -> Choice:
        """Tune a key; where its kernel cannot be timed, return a config that nothing timed."""
        try:
            return self._resolved(lookup, later=later)
        except UntimedError as error:
            is_short = isinstance(error, MemoryShortError)
            try:
                choice = self._untimed(lookup)
            except MemoryShortError:  # not even for copies of what hooks may write
                choice = self._fallback(lookup)
            # One warning about what a kernel writes is enough.
            if is_short or self._notices.first("writes", lookup.request.key.kernel):
                why = f"memory is short: {error}" if is_short else f"{error}"
                level = user_stacklevel(*LAUNCHING_MODULES)
                _warn(lookup, f"not tuned, {why}", choice, stacklevel=level)
            return choice

    def _resolved(self, lookup: MissLookup, *, later: bool = False) -> Choice:
        request = lookup.request
        tuner = self.tuner(request.key.device, later=later)
        result = tuner.resolve(request, looked_up=True)
        if result.record is None:  # another process tunes it
            return replace(self._provisional(lookup), how="busy")
        how: How = "tuned" if result.outcome == "tuned" else "known"
        winner, spent = result.record.winner, (result.compiled, result.timed)
        # The tuner has checked what it took from a store.
        own = request.space.matching(winner, **request.problem.shape) or winner
        own = request.with_alternative_of(winner, own)
        return Choice(own, True, how, result.record, *spent)

    @property
    def _waits(self) -> bool:
        """Return whether launches wait for the tuning, though it might go on in the background.

        Nobody has asked for that, and a function cannot get there, or ranks are to agree on what is
        tuned: they do not switch at one launch.
        """
        if self.options.on_miss is not None:
            return False
        return current_job() is not None or not self._are_sendable

    @cached_property
    def _are_sendable(self) -> bool:
        """Return whether the alternatives can be sent to the process that times."""
        import cloudpickle  # type: ignore[import-untyped]

        functions = [*(self.options.choices.get("alternatives") or {}).values()]
        return not isinstance(guarded("input", lambda: cloudpickle.dumps(functions)), Failure)

    def _in_background(self, lookup: MissLookup) -> Choice:
        if self._waits:
            return self._tuned(lookup)
        return self._in_progress.begin(lookup, self._meanwhile(lookup))

    def _tuned_later(self, lookup: MissLookup) -> Choice:
        """Tune a key in the background; a small one as well, if it has alternatives.

        No launch waits, and they may take half the time of an untuned config.
        """
        skips = self._before_timing and not lookup.request.alternatives
        small = self._small(lookup, later=True) if skips else None
        return small or self._tuned(lookup, later=True)


def _first(providers: Sequence[Provider], lookup: MissLookup) -> Choice:
    """Return the choice of the first provider that has one; the last of a list always has."""
    return next(choice for provider in providers if (choice := provider(lookup)) is not None)


def _warn(lookup: MissLookup, what: str, choice: Choice, stacklevel: int = 2) -> None:
    text = f"{key_text(lookup.request.key)}: {what}; goes on with {choice.config}"
    warnings.warn(text, MissWarning, stacklevel=stacklevel + 1)
