"""Makes `AsmAutotuner`s of Triton's autotuners, and lets them launch for those.

Programs read and write an autotuner: its `cache` (by Triton's keys), `best_config`, `configs`.
What a program writes there is obeyed at the launch; what it reads there is what Triton would
have written.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from asmtune.core.config import Config
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.space.space import Space
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.calls import as_listed
from asmtune.runtime.decorator import decorator_options
from asmtune.runtime.options import DecoratorOptions
from asmtune.triton_api.autotuners import Autotuner, given_options, launch_key
from asmtune.triton_api.jit_functions import python_function

Pinned = dict[tuple[Any, ...], Any]
"""Configs by Triton's keys."""


def pinned_before(instance: Any) -> Pinned:
    """Return what a program put into an autotuner's `cache` before its first patched launch.

    If Triton has launched it before, a program's entries look like those that Triton tuned, and
    all are tuned anew. A subclass with its own `run` looks there first, and keeps them.
    """
    has_own_run = inspect.getattr_static(type(instance), "run") is not vars(Autotuner)["run"]
    if has_own_run or "best_config" not in vars(instance):
        return dict(instance.cache)
    return {}


class PatchedAutotuner:
    """Launches for one of Triton's autotuners while a patch is active.

    Its `tuner` is None where Triton's own `run` launches. Its `cache` replaces the autotuner's
    until the patch, its `owner`, ends.
    """

    def __init__(
        self, owner: object, instance: Any, tuner: AsmAutotuner | None, pinned: Pinned
    ) -> None:
        self.owner = owner
        self.tuner = tuner
        self.cache = pinned
        self._own_keys: set[tuple[Any, ...]] = set()
        self._known_keys = 0
        # Several of Triton's keys share a bucket, and so one of asmtune's.
        self._has_buckets = tuner is not None and any(map(bucket_of, tuner.keys))
        self._configs = instance.configs
        self._count = len(instance.configs)

    def fits(self, instance: Any) -> bool:
        """Return whether the autotuner still has the configs and cache that this was made from.

        Programs pin a config by `kernel.configs = [config]`, and ask for tuning anew by
        `kernel.cache.clear()`.
        """
        configs = instance.configs
        return (
            configs is self._configs
            and len(configs) == self._count
            and (self.tuner is None or len(instance.cache) >= len(self._own_keys))
        )

    def pinned(self, instance: Any) -> Pinned:
        """Return the entries that the program itself put into `cache`."""
        cache = instance.cache
        return {key: cache[key] for key in cache if key not in self._own_keys}

    def is_pinned(self, instance: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
        """Return whether the program itself put the config of this launch into `cache`."""
        cache = instance.cache
        if len(cache) == len(self._own_keys):
            return False  # nearly every launch: no key need be made
        key = launch_key(instance, args, keywords)
        return key in cache and key not in self._own_keys

    def mirror(self, instance: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Set the autotuner's attributes as Triton's launch would have."""
        tuner: Any = self.tuner
        instance.best_config = tuner.best_config
        instance.nargs = None
        known = len(tuner.cache)
        if known == self._known_keys and not self._has_buckets:
            return
        self._known_keys = known
        key = launch_key(instance, args, keywords)
        if key in instance.cache and instance.cache[key] is instance.best_config:
            return
        self._own_keys.add(key)
        instance.cache[key] = instance.best_config
        for name in ("configs_timings", "bench_time"):
            if hasattr(tuner, name):
                setattr(instance, name, getattr(tuner, name))


class ConvertedAutotuner(AsmAutotuner):
    """An `AsmAutotuner` for a program written for Triton's: its configs are the program's own.

    `best_config` is among them where it is one of them, and they may be replaced, as programs
    do that pin one.
    """

    def __init__(self, kernel: Any, options: DecoratorOptions, listed: Sequence[Any]) -> None:
        self._given: Sequence[Any] | None = None
        super().__init__(kernel, options)
        self._given = listed
        self._shown: tuple[Config | None, Any] = (None, None)

    @property
    def configs(self) -> Any:
        """Return the configs as the program gave them."""
        listed = super().configs  # Dynamo asks here, and is prepared there
        return listed if self._given is None else self._given

    @configs.setter
    def configs(self, value: Any) -> None:
        if self._given is None:
            return  # Triton's constructor sets them; the space says what they are
        kernel, options = self.fn, replace(self.options, space=Space.from_configs(list(value)))
        self.__dict__.clear()  # what was planned and remembered is of the former configs
        self._given = None
        super().__init__(kernel, options)
        self._given, self._shown = value, (None, None)

    @property
    def best_config(self) -> Any:
        """Return the config of the last launch, as a `triton.Config`; None before the first."""
        best = super().best_config
        if best is not self._shown[0]:  # else no hash need be made at each launch
            self._shown = (best, best and as_listed(best, self._given or ()))
        return self._shown[1]

    @best_config.setter
    def best_config(self, config: Any) -> None:
        self._best = config


def convert(instance: Any, options: Mapping[str, Any]) -> ConvertedAutotuner:
    """Make an `AsmAutotuner` with the options of one of Triton's autotuners.

    It is not strict: what Triton lets pass, such as an empty grid, passes.
    """
    given = dict(options)
    rules = given.pop("buckets", None)
    keywords = {**given_options(instance), **given}
    pruning = keywords.pop("prune_configs_by")
    # Triton drops a key that is no parameter without a word, until 3.9 refuses it when decorating.
    keys: list[Any] = [key for key in instance.keys or () if key in instance.arg_names]
    if rules is not None:
        function = python_function(instance.fn)
        full_name = f"{function.__module__}.{function.__qualname__}"
        keys = rules.key(full_name, keys)
    converted = decorator_options(list(instance.configs), keys, pruning, keywords, strict=False)
    return ConvertedAutotuner(instance.fn, converted, instance.configs)
