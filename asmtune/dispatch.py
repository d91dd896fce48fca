"""`@asm_autotune`: a decorator over `@triton.jit` that finds a config once per key.

    arguments -> key -> memory -> store -> shipped -> tune
                         every launch    first launch of a key only

What decides on a miss, in this order: capture of a CUDA graph (never tunes),
`small` (never tunes), the store, the configs that ship, then tuning.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.config import Config
from asmtune.dtypes import dtype_of, element_type
from asmtune.errors import InputError, StoreError
from asmtune.problem import Problem
from asmtune.records import Provenance, TuneKey, TuneRecord
from asmtune.settings import Settings
from asmtune.space import Space

Arguments = Mapping[str, Any]
SpaceSource = Space | Mapping[str, Iterable[Any]] | Sequence[Any] | Callable[[], Any]

_NUMBERS: Final = (int, float, bool)


@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """What the decorator was given.

    Attributes:
        space: where configs come from.
        key: names of arguments whose values a tuned config depends on.
        small: at or below it, `heuristic`'s config runs and nothing is tuned:
            a predicate over the arguments by name, or the number of elements
            of the largest tensor argument.
        heuristic: a config, or a function of the arguments by name that gives
            one; the space's default where it is None.
        keep: how many of the ranked configs are timed: "auto", a number, or a
            share such as "5%" of those that can run; all of them where it is
            None, since a launch takes 3 ms and its compile took 200.
        tiles: whether to search the tile axes of a persistent kernel as well, which
            otherwise stay at the values of the space's default.
    """

    space: SpaceSource
    key: tuple[str, ...] = ()
    small: int | Callable[[Arguments], bool] | None = None
    heuristic: Config | Callable[[Arguments], Any] | None = None
    keep: str | int | None = None
    tiles: bool = False


def asm_autotune(
    configs: Sequence[Any] | None = None,
    key: Iterable[str] = (),
    *,
    space: SpaceSource | None = None,
    small: int | Callable[[Arguments], bool] | None = None,
    heuristic: Config | Callable[[Arguments], Any] | None = None,
    keep: str | int | None = None,
    tiles: bool = False,
) -> Callable[[Any], AsmAutotuner]:
    """Tunes a Triton kernel on its first launch with a new key, then remembers.

        @asm_autotune(space=Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}), key=["n"])
        @triton.jit
        def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): ...

        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

    Dtypes of tensor arguments and the device's name are part of every key.

    Args:
        configs: a list of `triton.Config` or `Config`; instead of `space`.
        key: names of arguments; a change of a value looks the config up anew.
        space: a `Space`, axes by name, or a function that makes one.
        small: see `TuningOptions`.
        heuristic: see `TuningOptions`.
        keep: see `TuningOptions`.
        tiles: see `TuningOptions`.

    Raises:
        InputError: not exactly one of `configs` and `space` is given, `keep` is
            none of its forms, the kernel is none of Triton's, or a key names no
            parameter of it.
    """
    if (configs is None) == (space is None):
        raise InputError("asm_autotune: give either configs= or space=, and not both")
    source: SpaceSource = space if space is not None else Space.from_configs(list(configs or ()))
    if keep is not None:
        from asmtune.score.keep import Keep

        Keep.of(keep)
    options = TuningOptions(
        space=source,
        key=tuple(key),
        small=small,
        heuristic=heuristic,
        keep=keep,
        tiles=tiles,
    )
    return lambda kernel: AsmAutotuner(kernel, options)


class AsmAutotuner:
    """A kernel that knows its configs; launched as `kernel[grid](*args, **kwargs)`.

    Attributes:
        fn: the Triton function underneath.
        arg_names: its parameters.
        cache: configs by key, as far as this process has met them.
        best_config: of the last launch; None before the first.
    """

    def __init__(self, kernel: Any, options: TuningOptions) -> None:
        if not hasattr(kernel, "arg_names"):
            raise InputError(
                f"asm_autotune: {getattr(kernel, '__name__', kernel)!r} is not a Triton kernel: "
                "put @triton.jit below @asm_autotune"
            )
        self.fn = kernel
        self.options = options
        self.arg_names: tuple[str, ...] = tuple(kernel.arg_names)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        self._keywords: dict[Config, dict[str, Any]] = {}
        self._lock = threading.RLock()
        unknown = [name for name in options.key if name not in self.arg_names]
        if unknown:
            raise InputError(
                f"asm_autotune: key {unknown[0]!r} is no parameter of {self.__name__}: "
                f"they are {', '.join(self.arg_names)}"
            )

    @property
    def __name__(self) -> str:
        return str(self._function.__name__)

    @functools.cached_property
    def _function(self) -> Any:
        """The `JITFunction`, or under TRITON_INTERPRET=1 what stands for it."""
        layer = self.fn
        while not hasattr(layer, "params") and hasattr(layer, "fn") and hasattr(layer.fn, "run"):
            layer = layer.fn
        return layer

    @functools.cached_property
    def space(self) -> Space:
        """The space of configs, made when first needed."""
        source = self.options.space
        return Space.of(source() if callable(source) else source)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches with the key's config; what `kernel[grid](...)` calls."""
        arguments = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        config = self._config(arguments, grid)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **config.all_kwargs()})
        keywords = self._keywords.get(config)
        if keywords is None:
            keywords = self._keywords[config] = config.all_kwargs()
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **keywords)

    def _config(self, arguments: Arguments, grid: Any) -> Config:
        key = self._key(arguments)
        config = self.cache.get(key)
        if config is not None:
            return config
        if not hasattr(self._function, "params"):
            return self._heuristic(arguments)  # the interpreter has no assembly to tune
        if _capturing():
            config = self._heuristic(arguments)
            warnings.warn(
                f"{self.__name__}: not tuned for this key, and a CUDA graph is being captured; "
                f"captured with {config}; launch it once before capture",
                stacklevel=4,
            )
            return config
        with self._lock:
            if key not in self.cache:
                self.cache[key] = self._resolve(arguments, grid)
            return self.cache[key]

    def _key(self, arguments: Arguments) -> tuple[Any, ...]:
        values = [arguments.get(name) for name in self.options.key]
        dtypes = [
            (name, dtype)
            for name, value in arguments.items()
            if type(value) not in _NUMBERS and (dtype := element_type(value)) is not None
        ]
        return (_device_index(), *values, *dtypes)

    def _resolve(self, arguments: Arguments, grid: Any) -> Config:
        """The config of a key that this process has not met."""
        if self._is_small(arguments):
            return self._heuristic(arguments)
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        shape = _numbers(arguments)
        problem = Problem(self.fn, arguments, grid, shape, name)
        record = _find_or_tune(problem, self.space, self._tune_key(arguments, name), self.options)
        return self._with_hook(record.winner, shape)

    def _with_hook(self, winner: Config, shape: Arguments) -> Config:
        """The space's own config that equals a stored one, with its `pre_hook`.

        One with a derived cap is not of the space: the hook is that of the one without.
        """
        for wanted in (winner.to_dict(), winner.with_cap(None).to_dict()):
            for config in self.space.configs(**shape):
                if config.to_dict() == wanted:
                    return config.with_cap(winner.maxnreg)
        return winner

    def _tune_key(self, arguments: Arguments, name: str) -> TuneKey:
        from asmtune.measure import device_name

        shape = {key: _plain(arguments.get(key)) for key in self.options.key}
        dtypes = {n: d for n, v in arguments.items() if (d := dtype_of(v)) is not None}
        return TuneKey(name, shape, dtypes, device_name())

    def _is_small(self, arguments: Arguments) -> bool:
        small = self.options.small
        if small is None:
            return False
        if callable(small):
            return bool(small(arguments))
        sizes = (value.numel() for value in arguments.values() if hasattr(value, "numel"))
        return max(sizes, default=0) <= small

    def _heuristic(self, arguments: Arguments) -> Config:
        heuristic = self.options.heuristic
        if heuristic is None:
            return self.space.first(**_numbers(arguments))
        return Config.of(heuristic(arguments) if callable(heuristic) else heuristic)


def _find_or_tune(
    problem: Problem, space: Space, key: TuneKey, options: TuningOptions
) -> TuneRecord:
    """The stored record of a key, or a new one, stored."""
    from asmtune.store import Store, find_tuned
    from asmtune.tune import provenance

    expected = provenance(problem, space, tiles=options.tiles)
    settings = Settings.from_environment()
    try:
        store = Store.open(settings.store_path, on_corrupt="set_aside")
    except StoreError as error:
        warnings.warn(f"{error}; going on without the store", stacklevel=6)
        return _tune_without_store(problem, space, key, expected, settings, options)
    with store:
        found = find_tuned(key, expected, store)
        if found.outcome == "hit" and found.record is not None:
            return found.record
        record = _tune(problem, space, key, settings, options)
        try:
            store.save(record)
        except (InputError, StoreError) as error:
            warnings.warn(f"{error}; the tuned config is not kept", stacklevel=6)
        return record


def _tune_without_store(
    problem: Problem,
    space: Space,
    key: TuneKey,
    expected: Provenance,
    settings: Settings,
    options: TuningOptions,
) -> TuneRecord:
    from asmtune.store import find_tuned

    found = find_tuned(key, expected, None)
    if found.outcome == "hit" and found.record is not None:
        return found.record
    return _tune(problem, space, key, settings, options)


def _tune(
    problem: Problem, space: Space, key: TuneKey, settings: Settings, options: TuningOptions
) -> TuneRecord:
    from asmtune.funnel import Funnel
    from asmtune.score import make_scorer
    from asmtune.score.keep import Keep
    from asmtune.target import match_device
    from asmtune.tune import Tuner

    target = match_device(key.device)
    if target is None:
        raise InputError(
            f"no target describes the device {key.device!r}; "
            "add a JSON file for it, or launch with a fixed config"
        )
    kept = None if options.keep is None else Keep.of(options.keep)
    funnel = Funnel(target, make_scorer("roofline"), settings, kept, tiles=options.tiles)
    return Tuner(funnel).tune(problem, space, key)


def _numbers(arguments: Arguments) -> dict[str, Any]:
    """The arguments that a space's constraints may name."""
    return {name: value for name, value in arguments.items() if type(value) in _NUMBERS}


def _plain(value: Any) -> Any:
    """A key's value as JSON can hold it."""
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _device_index() -> int:
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else -1


def _capturing() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
