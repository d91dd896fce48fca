"""What the stores hold of a kernel that the command line names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from asmtune.cli.arguments import Loaded
from asmtune.kernel_module import KernelModule
from asmtune.problem import Problem, jit_function
from asmtune.records import Provenance, TuneKey
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.store import Lookup, find_tuned, open_user_store, shipped_of, store_exists
from asmtune.target import Target, match_device

if TYPE_CHECKING:
    from asmtune.dispatch import AsmAutotuner
    from asmtune.store import Shelf


def tuned_of(loaded: Loaded, target: Target, settings: Settings) -> Lookup:
    """What the user's store, or else the shipped files, hold of a problem on a target's device.

    A target is the model of a device; records are kept by the name that the driver gives it.

    Raises:
        StoreError: the store's folder cannot be looked into.
        InputError: a shipped file is malformed.
    """
    shelf = _shelf(settings)
    found = Lookup("miss")
    for key, expected in _identities(loaded, target, shelf):
        found = find_tuned(key, expected, shelf)
        if found.outcome == "hit":
            break
    return found


def tuner_of(module: KernelModule) -> AsmAutotuner | None:
    """What launches a module's kernel, where the module decorates it."""
    from asmtune.dispatch import autotuners

    tuners = autotuners(module.python) if module.python is not None else []
    own = jit_function(module.kernel)
    return next((tuner for tuner in tuners if jit_function(tuner.fn) is own), None)


def _shelf(settings: Settings) -> Shelf | None:
    """The user's store where there is one: looking makes no file."""
    from asmtune.store import places

    home = places.home(settings.store_where)
    if isinstance(home, Path) and not store_exists(home):
        return None
    return open_user_store(settings)


def _identities(
    loaded: Loaded, target: Target, shelf: Shelf | None
) -> Iterator[tuple[TuneKey, Provenance]]:
    """Keys of the problem, one for each name of the device that a store has."""
    tuner = None if loaded.module is None else tuner_of(loaded.module)
    for device in _devices(loaded.problem, target, shelf):
        if tuner is not None:
            yield tuner.identity(loaded.problem.arguments, device)
        else:
            yield _identity(loaded.problem, loaded.space, device)


def _identity(problem: Problem, space: Space, device: str) -> tuple[TuneKey, Provenance]:
    from asmtune.tuning.identity import expected_of, key_of

    return key_of(problem, device), expected_of(problem, space, {})


def _devices(problem: Problem, target: Target, shelf: Shelf | None) -> list[str]:
    function = jit_function(problem.kernel)
    name = f"{function.__module__}.{function.__qualname__}"
    own = shelf.records(name) if shelf is not None else []
    names = dict.fromkeys(record.key.device for record in (*own, *shipped_of(name)))
    models = {device: match_device(device) for device in names}
    return [device for device, model in models.items() if model and model.name == target.name]
