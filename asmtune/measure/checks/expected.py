"""What a run should leave in the arguments: the default config's output, or the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from asmtune.core.records.artifacts import Failure
from asmtune.measure.checks.compare import Output, bits, pieces, poison
from asmtune.measure.checks.roles import Roles
from asmtune.measure.checks.tensors import Copy, Slot

# Two runs show little of what a third may do: so many times what they differ by is allowed.
_RUNS_APART: Final = 4.0
_STRETCH: Final = 1 << 26  # bytes compared together between the elements of views


class ExpectedOutputs:
    """What the written arguments hold right after the default config ran.

    Args:
        saved: what their memory held before.
        roles: of the arguments.
        tolerance: an argument's, by its dtype or the user's word.

    Attributes:
        copies: what it rests on.
    """

    def __init__(
        self,
        saved: Sequence[Copy],
        roles: Roles,
        tolerance: Callable[[Slot], float],
    ) -> None:
        self._saved = saved
        self._poisoned, self._strays = roles.poisoned, roles.stray
        self._scratch = roles.scratch
        self._tolerance = tolerance
        self._chance: dict[Slot, float] = {}
        self.copies = [Copy(copy.region) for copy in saved]
        self._outputs = {slot: self._output(slot) for slot in roles.written}

    @property
    def weaknesses(self) -> list[str]:
        """What makes these outputs a weak witness, in words."""
        found = [
            f"{slot.name} is 0, NaN or infinite everywhere: the check tells little of it"
            for slot, output in self._outputs.items()
            if output.magnitude.mean == 0.0 and slot not in self._strays
        ]
        return found + [
            f"the default config leaves {slot.name} as it was: a config that writes nothing passes"
            for slot in self._outputs
            if slot not in self._poisoned and slot not in self._strays and self._is_unchanged(slot)
        ]

    def leave_scratch(self) -> list[str]:
        """Compares no more what the default config never touches: scratch of other configs.

        Returns:
            What that is, in words.
        """
        untouched = [slot for slot in self._outputs if self._is_untouched(slot)]
        if len(untouched) == sum(slot not in self._strays for slot in self._outputs):
            return []  # a default that writes nothing at all shows nothing
        for slot in untouched:
            del self._outputs[slot]
        return [
            f"{slot.name} is not checked: the default config writes nothing there"
            for slot in untouched
        ]

    def allow_for_chance(self) -> list[str]:
        """Widens tolerances by what the arguments differ by after another run of the default.

        Returns:
            What was widened, or is compared no more because it holds anything, in words.
        """
        notes = []
        for slot, apart in zip(list(self._outputs), self._deviations(), strict=True):
            allowed = _RUNS_APART * apart
            if 0.0 < allowed < 1.0:
                self._chance[slot] = allowed
                output = self._outputs[slot]
                output.tolerance = max(output.tolerance, allowed)
                notes.append(
                    f"{slot.name} differs between runs of the default config by up to {apart:.2g} "
                    f"of its magnitude: {output.tolerance:.2g} is allowed"
                )
            elif allowed >= 1.0:
                # What may be off by as much as it is says nothing.
                del self._outputs[slot]
                notes.append(
                    f"{slot.name} is not checked: two runs of the default config leave different "
                    "contents there; give reference= if that is not as it should be"
                )
        return notes

    def expect(self, told: Mapping[Slot, Any]) -> list[str]:
        """Puts the user's own words in the default config's place.

        Elements that the default config does not write, and that should hold what they held, are
        expected to stay unwritten.

        Args:
            told: tensors of the arguments' shapes; other arguments are compared no more.

        Returns:
            What that is, in words.
        """
        strays = {slot: out for slot, out in self._outputs.items() if slot in self._strays}
        silent = [slot for slot in self._outputs if slot not in told and slot not in strays]
        self._outputs = {slot: self._told(slot, values) for slot, values in told.items()} | strays
        return [f"{slot.name} is not checked: reference= does not name it" for slot in silent]

    def failure(self) -> Failure | None:
        """Compares what the arguments hold now; waits for the GPU once where all is well."""
        for output, apart in zip(list(self._outputs.values()), self._deviations(), strict=True):
            if apart > output.tolerance:
                return Failure("check", *output.describe())
        return self._stray()

    def _stray(self) -> Failure | None:
        """Whether memory between elements was written; overwrites the elements."""
        for copy in self.copies:
            region = copy.region
            checked = all(slot in self._outputs for slot in region.slots)
            if not region.has_gaps or not checked:
                continue
            for slot in region.slots:
                self._outputs[slot].give_expected()
            if not _equal(region.contents(), copy.bytes):
                names = " and ".join(slot.name for slot in region.slots)
                return Failure(
                    "check",
                    "stray_write",
                    f"memory between the elements of {names} changed, which the default config "
                    "leaves: is a mask or a stride of this config wrong?",
                )
        return None

    def _deviations(self) -> list[float]:
        """How far each output is from what is expected, all fetched together."""
        import torch

        found = [output.deviation() for output in self._outputs.values()]
        if not found:
            return []
        values: list[float] = torch.stack([each.to(found[0].device) for each in found]).tolist()
        return values

    def _told(self, slot: Slot, values: Any) -> Output:
        """An output whose contents the user tells."""
        left = self._view(self.copies, slot)
        due = slot.elements_of(values).to(left.device, copy=True)
        if slot in self._poisoned:
            before = self._view(self._saved, slot).to(left.device)
            unwritten = (bits(left) == poison(slot)) & (bits(due) == bits(before))
            bits(due).masked_fill_(unwritten, poison(slot))
        left.copy_(due)
        output = self._output(slot)
        output.whose = "reference="
        return output

    def _output(self, slot: Slot) -> Output:
        output = Output(slot, self._view(self.copies, slot), poisoned=slot in self._poisoned)
        output.tolerance = max(self._tolerance(slot), self._chance.get(slot, 0.0))
        return output

    def _is_unchanged(self, slot: Slot) -> bool:
        before, after = (self._view(copies, slot) for copies in (self._saved, self.copies))
        return _equal(bits(before), bits(after))

    def _is_untouched(self, slot: Slot) -> bool:
        if slot in self._scratch:
            return True
        if slot not in self._poisoned:
            return False
        left = bits(self._view(self.copies, slot))
        return all(bool((left[piece] == poison(slot)).all()) for piece in pieces(left.shape))

    def _view(self, copies: Sequence[Copy], slot: Slot) -> Any:
        return next(copy.view(slot) for copy in copies if slot in copy.region.slots)


def _equal(found: Any, due: Any) -> bool:
    """Whether integers are the same, on whatever devices."""
    return all(
        bool((found[piece] == due[piece].to(found.device)).all())
        for piece in pieces(found.shape, _STRETCH)
    )
