"""Numbers for the configs that a child is told of, and their requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asmtune.compile.load import Binary
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench import messages
from asmtune.measure.bench.base import Entrant
from asmtune.measure.bench.shared_arguments import Parcel


class Roster:
    """Who was sent to the children of a bench; a config keeps its number.

    Attributes:
        entrants: by number.

    Args:
        lowering: of the problem.
        parcel: its arguments.
    """

    def __init__(self, lowering: Lowering, parcel: Parcel) -> None:
        self.entrants: list[Entrant] = []
        self._lowering = lowering
        self._parcel = parcel
        self._numbers: dict[Config, int] = {}
        self._hooks: dict[Callable[..., Any], tuple[int, str]] = {}

    def number(self, entrant: Entrant) -> int:
        """The number of an entrant's config."""
        number = self._numbers.setdefault(entrant.config, len(self.entrants))
        if number == len(self.entrants):
            self.entrants.append(entrant)
        return number

    def describe(self, number: int) -> dict[str, Any] | Failure:
        """What a child needs to run an entrant, or why its options are refused.

        Raises:
            InputError: its hook cannot be sent; names it.
        """
        entrant = self.entrants[number]
        # To specialise a launch its hook is run, here, on the user's tensors.
        self._parcel.touched |= entrant.config.pre_hook is not None
        binary = Binary.of(self._lowering, entrant.config, entrant.artifact)
        if isinstance(binary, Failure):
            return binary
        return {
            "number": number,
            "config": messages.describe_config(self._lowering.problem, entrant.config),
            "hook": self._hook(entrant.config.pre_hook),
            "binary": messages.describe_binary(binary),
        }

    def request(self, verb: str, described: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The request to contest described entrants, with the hooks that they have."""
        used = {entrant["hook"] for entrant in described}
        hooks = {str(number): text for number, text in self._hooks.values() if number in used}
        return {"do": verb, "entrants": list(described), "hooks": hooks}

    def _hook(self, hook: Callable[..., Any] | None) -> int | None:
        if hook is None:
            return None
        if hook not in self._hooks:
            self._hooks[hook] = (len(self._hooks), messages.pickled(hook, messages.hook_name(hook)))
        return self._hooks[hook][0]
