"""Runs configs on the user's arguments: restores their contents and checks outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from asmtune.base.errors import MeasureError
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.checks.compare import (
    Output,
    bits,
    equal,
    fill_poison,
    pieces,
    poison,
    tolerance_of,
)
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions, Roles, call_reference, check_names
from asmtune.measure.checks.tensors import (
    RegionCopy,
    TensorArgument,
    regions_of,
    synchronize,
    tensor_arguments,
)

# Two runs say little about a third, so this many times their difference is allowed.
_RUNS_APART: Final = 4.0


class ExpectedOutputs:
    """Holds the written arguments as they are right after the default config ran.

    Args:
        saved, roles: copies of their memory before the run; the arguments' roles.
        tolerance: gives an argument's tolerance, by its dtype or the user's option; None where
            every bit must be equal.

    Attributes:
        copies: copies of their memory after the run.
    """

    def __init__(
        self,
        saved: Sequence[RegionCopy],
        roles: Roles,
        tolerance: Callable[[TensorArgument], float] | None,
    ) -> None:
        self._saved = saved
        self._poisoned, self._strays, self._scratch = roles.poisoned, roles.stray, roles.scratch
        self._tolerance = tolerance
        self._run_to_run: dict[TensorArgument, float] = {}
        self._unsteady = ""
        self.copies = [RegionCopy(copy.region) for copy in saved]
        self._outputs = {tensor: self._output(tensor) for tensor in roles.written}

    @property
    def caveats(self) -> list[str]:
        """Return remarks on outputs for which the check shows little."""
        constant = [
            f"{tensor.name} is 0, NaN or infinite everywhere: the check tells little of it"
            for tensor, output in self._outputs.items()
            if output.magnitude.mean == 0.0 and tensor not in self._strays
        ]
        return constant + [
            f"the default config leaves {tensor.name} as it was: "
            "a config that writes nothing passes"
            for tensor in self._outputs
            if tensor not in self._poisoned
            and tensor not in self._strays
            and self._is_unchanged(tensor)
        ]

    def drop_untouched(self) -> list[str]:
        """Stop comparing arguments that the default config never writes; return remarks."""
        untouched = [tensor for tensor in self._outputs if self._is_untouched(tensor)]
        if len(untouched) == sum(tensor not in self._strays for tensor in self._outputs):
            return []  # the default config writes nothing at all
        for tensor in untouched:
            del self._outputs[tensor]
        return [
            f"{tensor.name} is not checked: the default config writes nothing there"
            for tensor in untouched
        ]

    def widen_for_nondeterminism(self) -> list[str]:
        """Widen tolerances by the differences after another run of the default config.

        Returns remarks on arguments with a wider tolerance, or that are no longer compared.
        """
        notes = []
        for tensor, deviation in zip(list(self._outputs), self._deviations(), strict=True):
            if self._tolerance is None:
                if deviation > 0.0:
                    self._unsteady = (
                        f"{tensor.name} differs in its bits between two runs of the default "
                        "config, so that no config can equal it; leave bits='equal' out"
                    )
                continue
            allowed = _RUNS_APART * deviation
            if 0.0 < allowed < 1.0:
                self._run_to_run[tensor] = allowed
                output = self._outputs[tensor]
                output.tolerance = max(output.tolerance, allowed)
                notes.append(
                    f"{tensor.name} differs between runs of the default config by up to "
                    f"{deviation:.2g} of its magnitude: {output.tolerance:.2g} is allowed"
                )
            elif allowed >= 1.0:
                # A comparison that allows 100% says nothing.
                del self._outputs[tensor]
                notes.append(
                    f"{tensor.name} is not checked: two runs of the default config leave different "
                    "contents there; give reference= if that is not as it should be"
                )
        return [*notes, self._unsteady] if self._unsteady else notes

    def apply_reference(self, given: Mapping[TensorArgument, Any]) -> list[str]:
        """Replace the default config's output by the values of the user's reference.

        Elements that the default config does not write, and whose expected value is the original
        one, are expected to stay unwritten. Arguments that are not in `given` are no longer
        compared; returns remarks on these.
        """
        strays = {tensor: out for tensor, out in self._outputs.items() if tensor in self._strays}
        silent = [
            tensor for tensor in self._outputs if tensor not in given and tensor not in strays
        ]
        self._outputs = {
            tensor: self._from_reference(tensor, values) for tensor, values in given.items()
        } | strays
        return [f"{tensor.name} is not checked: reference= does not name it" for tensor in silent]

    def failure(self) -> Failure | None:
        """Compare what the arguments hold now; waits for the GPU once if all is well."""
        if self._unsteady:
            return Failure("check", "wrong_output", self._unsteady)
        for output, deviation in zip(list(self._outputs.values()), self._deviations(), strict=True):
            if deviation > output.tolerance:
                return Failure("check", *output.describe())
        return self._stray()

    def _stray(self) -> Failure | None:
        """Check that memory between elements was not written; overwrite the elements."""
        for copy in self.copies:
            region = copy.region
            checked = all(tensor in self._outputs for tensor in region.tensors)
            if not region.has_gaps or not checked:
                continue
            for tensor in region.tensors:
                self._outputs[tensor].give_expected()
            if not equal(region.contents(), copy.bytes):
                names = " and ".join(tensor.name for tensor in region.tensors)
                return Failure(
                    "check",
                    "stray_write",
                    f"memory between the elements of {names} changed, which the default config "
                    "leaves: is a mask or a stride of this config wrong?",
                )
        return None

    def _deviations(self) -> list[float]:
        """Return each output's deviation from the expected one, all fetched together."""
        import torch

        deviations = [output.deviation() for output in self._outputs.values()]
        if not deviations:
            return []
        values: list[float] = torch.stack(
            [each.to(deviations[0].device) for each in deviations]
        ).tolist()
        return values

    def _from_reference(self, tensor: TensorArgument, values: Any) -> Output:
        """Make an output of the values that the user's reference gave."""
        left = self._view(self.copies, tensor)
        due = tensor.elements_of(values).to(left.device, copy=True)
        if tensor in self._poisoned:
            before = self._view(self._saved, tensor).to(left.device)
            unwritten = (bits(left) == poison(tensor)) & (bits(due) == bits(before))
            bits(due).masked_fill_(unwritten, poison(tensor))
        left.copy_(due)
        output = self._output(tensor)
        output.whose = "reference="
        return output

    def _output(self, tensor: TensorArgument) -> Output:
        output = Output(tensor, self._view(self.copies, tensor), poisoned=tensor in self._poisoned)
        if self._tolerance is None:
            output.exact = True
        else:
            output.tolerance = max(self._tolerance(tensor), self._run_to_run.get(tensor, 0.0))
        return output

    def _is_unchanged(self, tensor: TensorArgument) -> bool:
        before, after = (self._view(copies, tensor) for copies in (self._saved, self.copies))
        return equal(bits(before), bits(after))

    def _is_untouched(self, tensor: TensorArgument) -> bool:
        if tensor in self._scratch:
            return True
        if tensor not in self._poisoned:
            return False
        left = bits(self._view(self.copies, tensor))
        return all(bool((left[piece] == poison(tensor)).all()) for piece in pieces(left.shape))

    def _view(self, copies: Sequence[RegionCopy], tensor: TensorArgument) -> Any:
        return next(copy.view(tensor) for copy in copies if tensor in copy.region.tensors)


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
        self._saved = [RegionCopy(region) for region in regions_of(roles.written)]
        self._kept = [copy for copy in self._saved if set(copy.region.tensors) & set(roles.kept)]
        self._restored_before_check = [
            copy for copy in self._saved if copy in self._kept or copy.region.has_gaps
        ]
        self._on_host = any(tensor.device.type == "cpu" for tensor in roles.written)
        self._expected_outputs: ExpectedOutputs | None = None
        self._notes = effects.unchecked_notes(foreign_names)
        self._note_copies(self._saved)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on what is checked and what is not."""
        return tuple(dict.fromkeys(self._notes))

    def prepare(self) -> None:
        """Restore what the arguments must hold before a run, timed or not.

        On a GPU this is queued in order with launches on the current stream, and does not wait.
        """
        self._restore(self._kept)
        self._zero()

    def set_reference(
        self, run: Callable[[], None], finish: Callable[[], None] = lambda: None
    ) -> Failure | None:
        """Run the default config twice: for its output, and for differences between runs.

        Args:
            run: launches it once, including its `pre_hook`.
            finish: called after each launch, when its output was checked.

        Returns:
            Why it cannot be launched, or how it differs from the user's reference.

        Raises:
            InputError: the user's reference raises, or returns something that does not fit.
        """
        if not self._options.check or not self._roles.written:
            return self._run_once(run) or guarded("launch", finish)
        self._expected_outputs = None
        expected = self._values_of_reference()
        failure = self._run_once(run)
        if failure is not None:
            return failure
        tolerance = None if self._options.bits_equal else self._tolerance
        outputs = guarded("check", lambda: ExpectedOutputs(self._saved, self._roles, tolerance))
        finished = guarded("launch", finish)
        if isinstance(outputs, Failure):
            return outputs
        failure = finished or self._run_once(run)
        if failure is not None:
            return failure
        self._notes += outputs.drop_untouched() + outputs.widen_for_nondeterminism()
        if expected:
            self._notes += outputs.apply_reference(expected)
        self._notes += outputs.caveats
        self._note_copies(outputs.copies)
        self._expected_outputs = outputs
        failure, finished = self._compare() if expected else None, guarded("launch", finish)
        return failure or finished

    def check(
        self, run: Callable[[], None], finish: Callable[[], None] = lambda: None
    ) -> Failure | None:
        """Run a config once and compare its output with the expected one.

        `run` and `finish` are as in `set_reference`.

        Returns:
            Why it cannot be launched, or a failure at "check": "wrong_output", "unwritten" (an
            element that the default config writes), "stray_write" (between the elements of a
            view), or "memory" (there was none to compare with).
        """
        failure = self._run_once(run)
        if failure is not None:
            return failure
        failure, finished = self._compare(), guarded("launch", finish)
        return failure or finished

    def close(self) -> None:
        """Restore the contents that every argument had at the start; may be called again.

        Raises:
            MeasureError: the GPU takes no more work, after a fault of a config.
        """
        saved, self._saved = self._saved, []
        self._kept, self._restored_before_check, self._expected_outputs = [], [], None

        def give_back() -> None:
            self._restore(saved)
            synchronize(self._roles.written)

        failure = guarded("restore", give_back)
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
            run()
            synchronize(self._roles.written)

        return guarded("launch", once)

    def _restore(self, copies: list[RegionCopy]) -> None:
        if self._on_host:
            synchronize(self._roles.written)
        for copy in copies:
            copy.restore()

    def _zero(self) -> None:
        for tensor in self._roles.zeroed:
            tensor.view().zero_()

    def _compare(self) -> Failure | None:
        if self._expected_outputs is None:
            return None
        failure = guarded("check", self._expected_outputs.failure)
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
        return call_reference(reference, self._arguments, self._roles.meant)

    def _note_copies(self, copies: list[RegionCopy]) -> None:
        for copy in copies:
            if copy.on_host:
                names = ", ".join(tensor.name for tensor in copy.region.tensors)
                self._notes.append(
                    f"the GPU has no room for a copy of {names}: kept in the host's memory, "
                    "which makes every check slow"
                )
