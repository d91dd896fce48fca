"""What the stores hold of a kernel that the command line names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.kernel_module import KernelModule
from asmtune.core.problem import Problem, jit_function
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.core.space.space import Space
from asmtune.store.lookup import StoreLookup
from asmtune.store.safe_store import open_user_store
from asmtune.store.shipped import find_tuned, shipped_of, store_exists

if TYPE_CHECKING:
    from asmtune.runtime.autotuner import AsmAutotuner
    from asmtune.store.safe_store import SafeStore


@dataclass(frozen=True)
class StoredLaunch:
    """A launch whose config a store may hold.

    Attributes:
        problem: the launch.
        space: its configs.
        tuner: what launches it, where its module decorates the kernel.
    """

    problem: Problem
    space: Space
    tuner: AsmAutotuner | None

    def identity(self, device: str) -> tuple[TuneKey, Provenance]:
        """The key under which its launches look, else its shape; and what a record must hold."""
        if self.tuner is not None:
            return self.tuner.identity(self.problem.arguments, device)
        from asmtune.tuning.request import expected_of, key_of

        return key_of(self.problem, device), expected_of(self.problem, self.space, {})

    def found_on(self, target: Target, shelf: SafeStore | None) -> StoreLookup:
        """The first hit for a target's device, else the first answer that says why there is none.

        A target is the model of a device; records are kept by the name that the driver gives it.
        """
        answers = (find_tuned(*self.identity(d), shelf) for d in self._devices(target, shelf))
        best = StoreLookup("miss")
        for found in answers:
            if found.outcome == "hit":
                return found
            best = found if best.outcome == "miss" else best
        return best

    def _devices(self, target: Target, shelf: SafeStore | None) -> list[str]:
        """Names of the target's device under which there are records of the kernel."""
        function = jit_function(self.problem.kernel)
        name = f"{function.__module__}.{function.__qualname__}"
        own = shelf.records(name) if shelf is not None else []
        names = dict.fromkeys(record.key.device for record in (*own, *shipped_of(name)))
        models = {device: match_device(device) for device in names}
        return [device for device, model in models.items() if model and model.name == target.name]


def tuner_of(module: KernelModule) -> AsmAutotuner | None:
    """What launches a module's kernel, where the module decorates it."""
    from asmtune.runtime.decorator import autotuners

    tuners = autotuners(module.python) if module.python is not None else []
    own = jit_function(module.kernel)
    return next((tuner for tuner in tuners if jit_function(tuner.fn) is own), None)


def existing_store(settings: Settings) -> SafeStore | None:
    """The user's store where there is one: looking makes no file.

    Raises:
        StoreError: its folder cannot be looked into.
    """
    from asmtune.store import location

    home = location.parse(settings.store_where)
    if isinstance(home, Path) and not store_exists(home):
        return None
    return open_user_store(settings)
