"""The expected outputs: what the default config leaves, and how others may differ from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from asmtune.core.records.artifacts import Failure
from asmtune.measure.accuracy import Bound, measure_accuracy
from asmtune.measure.checks.compare import Output, bits, equal, pieces, poison
from asmtune.measure.checks.pages import Numbers
from asmtune.measure.checks.roles import Roles
from asmtune.measure.checks.tensors import RegionCopy, TensorArgument
from asmtune.measure.checks.workspaces import Workspace, WorkspaceComparison

# Two runs say little about a third, so this many times their difference is allowed.
_RUNS_APART: Final = 4.0

Differing = Mapping[RegionCopy, Numbers]
"""Pages that differ from the expected outputs."""


class ExpectedOutputs:
    """Holds the written arguments as they are right after the default config ran.

    Args:
        saved, roles: copies of their memory before the run; the arguments' roles.
        tolerance: gives an argument's tolerance, by its dtype or the user's option; None where
            every bit must be equal.
        bound: limits the errors of floats, in place of a tolerance; None for the tolerance.
        given: whether the user's reference will give the values.

    Attributes:
        error: the largest p99 of an output's relative error in the last comparison; None without
            a bound.
        copies: copies of their memory after the run.
        workspaces: remarks on arguments that were compared slot by slot, by name.
    """

    def __init__(
        self,
        saved: Sequence[RegionCopy],
        roles: Roles,
        tolerance: Callable[[TensorArgument], float] | None,
        bound: Bound | None = None,
        *,
        given: bool = False,
    ) -> None:
        self._saved = saved
        self._poisoned, self._strays, self._scratch = roles.poisoned, roles.stray, roles.scratch
        self._tolerance, self._bound = tolerance, bound
        self.error = None if bound is None else 0.0
        self._run_to_run: dict[TensorArgument, float] = {}
        self._unsteady = ""
        self.workspaces: dict[str, str] = {}
        self.copies = [
            # Where nothing is poisoned, most of a pool is as it was.
            RegionCopy(copy.region)
            if given or not set(roles.poisoned).isdisjoint(copy.region.tensors)
            else copy.output()
            for copy in saved
        ]
        self._outputs = {tensor: self._output(tensor) for tensor in roles.written}

    @property
    def caveats(self) -> list[str]:
        """Return remarks on outputs for which the check shows little."""
        with self._shown():
            constant = [
                f"{tensor.name} is 0, NaN or infinite everywhere: the check tells little of it"
                for tensor, output in self._outputs.items()
                if tensor not in self._strays and output.is_blank
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
        with self._shown() as differing:
            deviations = self._deviations(differing)
        for tensor, deviation in zip(list(self._outputs), deviations, strict=True):
            if self._tolerance is None:
                if deviation > 0.0:
                    self._unsteady = (
                        f"{tensor.name} differs in its bits between two runs of the default "
                        "config, so that no config can equal it; leave check='bits' out"
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

    def failure(self, workspaces: Mapping[str, Workspace]) -> Failure | None:
        """Compare what the arguments hold now; waits for the GPU once if all is well.

        `workspaces` are arguments that are compared slot by slot where they are not equal.
        """
        if self._unsteady:
            return Failure("check", "wrong_output", self._unsteady)
        self.error = None if self._bound is None else 0.0
        with self._shown() as differing:
            deviations = self._deviations(differing)
            for output, deviation in zip(list(self._outputs.values()), deviations, strict=True):
                if self._is_bounded(output.tensor) or deviation > output.tolerance:
                    failure = self._difference(output, workspaces.get(output.tensor.name))
                    if failure is not None:
                        return failure
            return self._stray(differing)

    def _difference(self, output: Output, workspace: Workspace | None) -> Failure | None:
        """Describe a wrong output; None if it is a workspace and right as that, or accurate."""
        tensor = output.tensor
        if workspace is not None and output.compares_slots and WorkspaceComparison.fits(tensor):
            comparison = WorkspaceComparison(
                workspace,
                tensor,
                lambda view: self._view(self.copies, tensor, view),
                poisoned=tensor in self._poisoned,
            )
            if comparison.applies():
                self.workspaces.setdefault(tensor.name, str(workspace))
                wrong = comparison.failure(output.tolerance)
                return Failure("check", *wrong) if wrong else None
        bound = self._bound
        if bound is None or not self._is_bounded(tensor) or output.unwritten():
            return Failure("check", *output.describe())
        stats = measure_accuracy(tensor.view(), output.reference)
        self.error = max(self.error or 0.0, stats.p99)
        broken = ", ".join(bound.broken(stats).values())
        text = f"{tensor.name} breaks the bound against {output.whose}: {broken}"
        return Failure("check", "inaccurate", text) if broken else None

    def _is_bounded(self, tensor: TensorArgument) -> bool:
        """Return whether an argument's errors are limited by the bound."""
        return self._bound is not None and bool(tensor.dtype.is_floating_point)

    def _stray(self, differing: Differing) -> Failure | None:
        """Check that memory between elements was not written; overwrite the elements."""
        for copy in self.copies:
            region = copy.region
            checked = all(tensor in self._outputs for tensor in region.tensors)
            if not region.has_gaps or not checked or not len(differing[copy]):
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

    @contextmanager
    def _shown(self) -> Iterator[Differing]:
        """Let all copies hold the expected outputs; give the pages that differ from them."""
        with ExitStack() as stack:
            yield {copy: stack.enter_context(copy.showing_output()) for copy in self.copies}

    def _deviations(self, differing: Differing) -> list[float]:
        """Return each output's deviation from the expected one, all fetched together."""
        import torch

        deviations = []
        for tensor, output in self._outputs.items():
            copy = self._copy(self.copies, tensor)
            deviations.append(output.deviation(partial(copy.pages.hold, differing[copy])))
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
        if self._is_bounded(tensor):
            # In its own precision; what is not written is NaN in both.
            wide = tensor.elements_of(values, wide=True).to(left.device, copy=True)
            if tensor in self._poisoned:
                wide.masked_fill_(bits(left) == poison(tensor), math.nan)
            output.reference = wide
        return output

    def _output(self, tensor: TensorArgument) -> Output:
        output = Output(tensor, self._view(self.copies, tensor), poisoned=tensor in self._poisoned)
        if self._tolerance is None:
            output.exact = True
        else:
            output.tolerance = max(self._tolerance(tensor), self._run_to_run.get(tensor, 0.0))
        return output

    def _is_unchanged(self, tensor: TensorArgument) -> bool:
        copy = self._copy(self.copies, tensor)
        if copy in self._saved:
            return not copy.changes(tensor)
        before, after = (self._view(copies, tensor) for copies in (self._saved, self.copies))
        return equal(bits(before), bits(after))

    def _is_untouched(self, tensor: TensorArgument) -> bool:
        if tensor in self._scratch:
            return True
        if tensor not in self._poisoned:
            return False
        left = bits(self._view(self.copies, tensor))
        return all(bool((left[piece] == poison(tensor)).all()) for piece in pieces(left.shape))

    def _view(
        self,
        copies: Sequence[RegionCopy],
        tensor: TensorArgument,
        view: TensorArgument | None = None,
    ) -> Any:
        """Return an argument's copied elements, laid out as another `view` of it if given."""
        return self._copy(copies, tensor).view(view or tensor)

    def _copy(self, copies: Sequence[RegionCopy], tensor: TensorArgument) -> RegionCopy:
        return next(copy for copy in copies if tensor in copy.region.tensors)
