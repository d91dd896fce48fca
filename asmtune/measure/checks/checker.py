"""Running configs on the user's arguments: contents kept, outputs checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from asmtune.base.errors import MeasureError
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.checks.compare import fill_poison, tolerance_of
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.expected import ExpectedOutputs
from asmtune.measure.checks.roles import CheckOptions, Roles, ask, check_names
from asmtune.measure.checks.tensors import Copy, Slot, regions_of, settle, slots_of

__all__ = ["CheckOptions", "OutputChecker"]


def _nothing() -> None:
    """What comes after a launch where nothing does."""


class OutputChecker:
    """Holds the arguments' contents while configs run on them.

    Only memory that a config may write is copied: once for what it holds, once for what the
    default config leaves there. A copy for which the GPU has no room lies in the host's memory.
    Views of the same memory share a copy, which includes the gaps between their elements: a
    config that writes there is wrong as well.

    Args:
        arguments: the launch's, by parameter name.
        effects: what any of the configs may do to them.
        options: what the user says of them.

    Raises:
        InputError: the options name no tensor argument.
    """

    def __init__(
        self, arguments: Mapping[str, Any], effects: Effects, options: CheckOptions
    ) -> None:
        check_names(options, arguments)
        slots, strange = slots_of(arguments)
        self._arguments = arguments
        self._effects = effects
        self._options = options
        self._roles = roles = Roles.of(slots, effects, options)
        self._saved = [Copy(region) for region in regions_of(roles.written)]
        self._kept = [copy for copy in self._saved if set(copy.region.slots) & set(roles.kept)]
        self._kept_or_spoilt = [
            copy for copy in self._saved if copy in self._kept or copy.region.has_gaps
        ]
        self._on_host = any(slot.device.type == "cpu" for slot in roles.written)
        self._expectation: ExpectedOutputs | None = None
        self._notes = list(_out_of_reach(effects, strange))
        self._note_copies(self._saved)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of what is checked and what is not."""
        return tuple(dict.fromkeys(self._notes))

    def prepare(self) -> None:
        """Makes the arguments what a run has to find; before every run, timed or not.

        On a GPU this is in order with launches on the current stream, and waits for nothing.
        """
        self._restore(self._kept)
        self._zero()

    def set_reference(
        self, run: Callable[[], None], finish: Callable[[], None] = _nothing
    ) -> Failure | None:
        """Runs the default config twice: for its output, and for what differs between runs.

        Args:
            run: launches it once, its `pre_hook` included.
            finish: called after each launch, when its output was looked at.

        Returns:
            Why it cannot be launched, or how it differs from the user's reference.

        Raises:
            InputError: the user's reference raises, or gives what does not fit.
        """
        if not self._options.check or not self._roles.written:
            return self._perform(run) or _finished(finish)
        self._expectation = None
        expected = self._ask_user()
        failure = self._perform(run)
        if failure is not None:
            return failure
        learned = guarded("check", self._learn)
        finished = _finished(finish)
        if isinstance(learned, Failure):
            return learned
        failure = finished or self._perform(run)
        if failure is not None:
            return failure
        self._notes += learned.leave_scratch() + learned.allow_for_chance()
        if expected:
            self._notes += learned.expect(expected)
        self._notes += learned.weaknesses
        self._note_copies(learned.copies)
        self._expectation = learned
        failure, finished = self._compared() if expected else None, _finished(finish)
        return failure or finished

    def check(
        self, run: Callable[[], None], finish: Callable[[], None] = _nothing
    ) -> Failure | None:
        """Runs a config once and compares what it leaves with what is expected.

        Args:
            run: launches it once, its `pre_hook` included.
            finish: called after the launch, when its output was looked at.

        Returns:
            Why it cannot be launched, or a failure at "check": "wrong_output", "unwritten" (an
            element that the default config writes), "stray_write" (between the elements of a
            view), or "memory" (there was none to compare with).
        """
        failure = self._perform(run)
        if failure is not None:
            return failure
        failure, finished = self._compared(), _finished(finish)
        return failure or finished

    def close(self) -> None:
        """Gives every argument what it held at the start; harmless when called again.

        Raises:
            MeasureError: the GPU takes no more work, after a fault of a config.
        """
        saved, self._saved = self._saved, []
        self._kept, self._kept_or_spoilt, self._expectation = [], [], None
        failure = guarded("restore", partial(self._give_back, saved))
        if failure is not None:
            raise MeasureError(
                f"the arguments could not be given their contents back ({failure}): "
                "make them anew, in a new process if the GPU faulted"
            )

    def __enter__(self) -> OutputChecker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_back(self, saved: list[Copy]) -> None:
        self._restore(saved)
        settle(self._roles.written)

    def _perform(self, run: Callable[[], None]) -> Failure | None:
        """Runs once on the arguments' first contents, poison where they do not count."""

        def once() -> None:
            self._restore(self._kept_or_spoilt)
            for slot in self._roles.poisoned:
                fill_poison(slot)
            self._zero()
            run()
            settle(self._roles.written)

        return guarded("launch", once)

    def _restore(self, copies: list[Copy]) -> None:
        if self._on_host:
            settle(self._roles.written)
        for copy in copies:
            copy.restore()

    def _zero(self) -> None:
        for slot in self._roles.zeroed:
            slot.view().zero_()

    def _learn(self) -> ExpectedOutputs:
        roles = self._roles
        return ExpectedOutputs(self._saved, roles, self._tolerance)

    def _compared(self) -> Failure | None:
        """How the arguments differ from what is expected of them."""
        if self._expectation is None:
            return None
        failure = guarded("check", self._expectation.failure)
        if failure is not None:
            # What lies between an output's elements may be an input of the next run. If the
            # GPU is at fault, `failure` says so.
            guarded("restore", partial(self._restore, self._kept_or_spoilt))
        return failure

    def _tolerance(self, slot: Slot) -> float:
        if self._options.tolerance is not None:
            return self._options.tolerance
        return tolerance_of(slot, self._roles.inputs, self._effects.products)

    def _ask_user(self) -> dict[Slot, Any]:
        """What the user's reference expects, on contents that a run would find."""
        reference = self._options.reference
        if reference is None:
            return {}
        self._restore(self._saved)
        self._zero()
        return ask(reference, self._arguments, self._roles.meant)

    def _note_copies(self, copies: list[Copy]) -> None:
        for copy in copies:
            if copy.on_host:
                names = ", ".join(slot.name for slot in copy.region.slots)
                self._notes.append(
                    f"the GPU has no room for a copy of {names}: kept in the host's memory, "
                    "which makes every check slow"
                )


def _finished(finish: Callable[[], None]) -> Failure | None:
    """What comes after a launch, done; or why it failed."""
    return guarded("launch", finish)


def _out_of_reach(effects: Effects, strange: Sequence[str]) -> Iterator[str]:
    """What can be neither saved nor checked, in words."""
    if effects.foreign:
        yield (
            "the kernel may write memory behind an address that is no tensor argument: that is "
            "neither saved nor checked"
        )
    yield from (f"{name} is no PyTorch tensor: neither saved nor checked" for name in strange)
    if effects.unknown:
        names = ", ".join(sorted(effects.unknown))
        yield f"the IR does not tell what becomes of {names}: taken as read and written"
