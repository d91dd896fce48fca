"""Runs configs on the user's arguments: restores their contents and checks outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asmtune.base.errors import MeasureError
from asmtune.core.failures import guarded, required
from asmtune.core.records.artifacts import Failure
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.checks.compare import fill_poison, tolerance_of
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.expected import ExpectedOutputs
from asmtune.measure.checks.roles import CheckOptions, Roles, call_reference, check_names
from asmtune.measure.checks.tensors import (
    RegionCopy,
    TensorArgument,
    completed,
    regions_of,
    synchronize,
    tensor_arguments,
)
from asmtune.measure.checks.workspaces import workspaces_of
from asmtune.triton_api.user_state import within


class OutputChecker:
    """Saves and restores the arguments while configs run on them, and checks outputs.

    Only memory that a config may write is copied: its original contents, and what the default
    config leaves there. A copy for which the GPU has no room is in the host's memory. Views of the
    same memory share a copy, which includes the gaps between their elements: a config that writes
    there is wrong as well.

    Args:
        arguments: the launch's arguments, by parameter name.
        effects, options: what any of the configs may do to them, and what the user says of them.

    Raises:
        InputError: the options name no tensor argument.
    """

    def __init__(
        self, arguments: Mapping[str, Any], effects: Effects, options: CheckOptions
    ) -> None:
        check_names(options, arguments)
        tensors, foreign_names = tensor_arguments(arguments)
        self._arguments = arguments
        self._effects = effects
        self._options = options
        self._roles = roles = Roles.of(tensors, effects, options)
        self._saved = self._copies()
        self._kept = [copy for copy in self._saved if set(copy.region.tensors) & set(roles.kept)]
        self._restored_before_check = [
            copy for copy in self._saved if copy in self._kept or copy.region.has_gaps
        ]
        self._on_host = any(tensor.device.type == "cpu" for tensor in roles.written)
        self._expected_outputs: ExpectedOutputs | None = None
        self._slots = ConfigSlots()
        self._notes = effects.unchecked_notes(foreign_names)
        self._note_copies(self._saved)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on what is checked and what is not."""
        expected = self._expected_outputs
        workspaces = expected.workspaces.values() if expected is not None else ()
        return tuple(dict.fromkeys([*self._notes, *workspaces]))

    @property
    def error(self) -> float | None:
        """Return p99 of the relative error that the last check measured; None without a bound."""
        return None if self._expected_outputs is None else self._expected_outputs.error

    @property
    def has_reference(self) -> bool:
        """Return whether outputs are compared with those of the user's reference."""
        return self._options.reference is not None

    def prepare(self) -> None:
        """Restore what the arguments must hold before a run, timed or not.

        On a GPU this is queued in order with launches on the current stream, and does not wait.
        """
        self._synchronize()
        for copy in self._kept:
            copy.put_back()
        self._zero()
        self._call_restore()

    def set_reference(
        self,
        run: Callable[[], None],
        finish: Callable[[], None] = lambda: None,
        slots: ConfigSlots = ConfigSlots(),  # noqa: B008 - frozen
    ) -> Failure | None:
        """Run the default config twice: for its output, and for differences between runs.

        Args:
            run: launches it once, including its `pre_hook`.
            finish: called after each launch, when its output was checked.
            slots: where its programs write, by its IR.

        Returns:
            Why it cannot be launched, or how it differs from the user's reference.

        Raises:
            InputError: the user's reference raises, or returns something that does not fit.
        """
        if not self._options.check or not self._roles.written:
            return self._run_once(run) or self._learnt() or guarded("launch", finish)
        self._expected_outputs = None
        expected = self._values_of_reference()
        failure = self._run_once(run)
        if failure is not None:
            return failure
        tolerance = None if self._options.bits_equal else self._tolerance
        bound = self._options.accuracy
        outputs = guarded(
            "check",
            lambda: ExpectedOutputs(
                self._saved, self._roles, tolerance, bound, given=self.has_reference
            ),
        )
        finished = guarded("launch", finish)
        if isinstance(outputs, Failure):
            return outputs
        failure = finished or self._learnt() or self._run_once(run) or self._learnt()
        if failure is not None:
            return failure
        remarks = guarded(
            "check", lambda: outputs.drop_untouched() + outputs.widen_for_nondeterminism()
        )
        if isinstance(remarks, Failure):
            return remarks
        self._notes += remarks
        if expected:
            self._notes += outputs.apply_reference(expected)
        self._notes += outputs.caveats
        self._note_copies(outputs.copies)
        self._expected_outputs, self._slots = outputs, slots
        failure, finished = self._compare(slots) if expected else None, guarded("launch", finish)
        return failure or finished

    def check(
        self,
        run: Callable[[], None],
        finish: Callable[[], None] = lambda: None,
        slots: ConfigSlots = ConfigSlots(),  # noqa: B008 - frozen
    ) -> Failure | None:
        """Run a config once and compare its output with the expected one.

        `run`, `finish` and `slots` are as in `set_reference`.

        Returns:
            Why it cannot be launched, or a failure at "check": "wrong_output", "inaccurate" (it
            breaks the bound), "unwritten" (an element that the default config writes),
            "stray_write" (between the elements of a view), or "memory" (too little was left to
            compare).
        """
        failure = self._run_once(run)
        if failure is not None:
            return failure
        failure, finished = self._compare(slots) or self._learnt(), guarded("launch", finish)
        return failure or finished

    def close(self) -> None:
        """Restore the contents that every argument had at the start; may be called again.

        Raises:
            MeasureError: the GPU takes no more work, after a fault of a config.
        """
        self._kept, self._restored_before_check, self._expected_outputs = [], [], None

        def give_back() -> None:
            self._restore(self._saved)
            self._call_restore()
            synchronize(self._roles.written)

        def give_back_and_forget() -> Failure | None:
            failure = guarded("restore", give_back)
            self._saved = []  # not before: Ctrl-C may come in the middle
            return failure

        failure = completed(give_back_and_forget)
        if failure is not None:
            raise MeasureError(
                f"the arguments could not be given their contents back ({failure}): "
                "make them anew, in a new process if the GPU faulted"
            )

    def __enter__(self) -> OutputChecker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_once(self, run: Callable[[], None]) -> Failure | None:
        """Run once on the original contents, with poison where they do not count."""

        def once() -> None:
            self._restore(self._restored_before_check)
            for tensor in self._roles.poisoned:
                fill_poison(tensor)
            self._zero()
            self._call_restore()
            run()
            synchronize(self._roles.written)
            for copy in self._kept:
                copy.look()

        return guarded("launch", once)

    def _learnt(self) -> Failure | None:
        """Let the pages that a right config changed be restored before each timed run."""

        def learn() -> None:
            for copy in self._kept:
                copy.learn()

        return guarded("check", learn)

    def _copies(self) -> list[RegionCopy]:
        """Copy all that may be written; what is needed at the end alone leaves room on the GPU."""
        regions, kept = regions_of(self._roles.written), set(self._roles.kept)
        regions.sort(key=lambda region: kept.isdisjoint(region.tensors))
        outputs = sum(region.stop - region.start for region in regions)
        return [
            RegionCopy(region, outputs if kept.isdisjoint(region.tensors) else 0)
            for region in regions
        ]

    def _restore(self, copies: list[RegionCopy]) -> None:
        self._synchronize()
        for copy in copies:
            copy.restore()

    def _synchronize(self) -> None:
        if self._on_host:
            synchronize(self._roles.written)

    def _zero(self) -> None:
        for tensor in self._roles.zeroed:
            tensor.view().zero_()

    def _call_restore(self) -> None:
        restore = self._options.restore
        if restore is not None:
            required("restore_value=", lambda: within(restore)(self._arguments))

    def _compare(self, slots: ConfigSlots) -> Failure | None:
        expected = self._expected_outputs
        if expected is None:
            return None
        workspaces = workspaces_of(slots, self._slots)
        failure = guarded("check", lambda: expected.failure(workspaces))
        if failure is not None:
            # Memory between an output's elements may be an input of the next run. If the GPU is at
            # fault, `failure` says so.
            guarded("restore", lambda: self._restore(self._restored_before_check))
        return failure

    def _tolerance(self, tensor: TensorArgument) -> float:
        if self._options.tolerance is not None:
            return self._options.tolerance
        return tolerance_of(tensor, self._roles.inputs, self._effects.products)

    def _values_of_reference(self) -> dict[TensorArgument, Any]:
        """Call the user's reference on the contents that a run would find."""
        reference = self._options.reference
        if reference is None:
            return {}
        self._restore(self._saved)
        self._zero()
        self._call_restore()
        return call_reference(reference, self._arguments, self._roles.meant)

    def _note_copies(self, copies: list[RegionCopy]) -> None:
        for copy in copies:
            if copy.on_host:
                names = ", ".join(tensor.name for tensor in copy.region.tensors)
                self._notes.append(
                    f"the GPU has no room for a copy of {names}: kept in the host's memory, "
                    "which makes every check slow"
                )
