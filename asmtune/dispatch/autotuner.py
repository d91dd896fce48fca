"""A kernel that knows its configs: from a launch's arguments to a config, once per key."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asmtune.config import Config
from asmtune.dtypes import dtype_of, element_type
from asmtune.errors import InputError
from asmtune.problem import Problem
from asmtune.records import TuneKey
from asmtune.space import Space

if TYPE_CHECKING:
    from asmtune.tuning import Workshop

Arguments = Mapping[str, Any]
SpaceSource = Space | Mapping[str, Iterable[Any]] | Sequence[Any] | Callable[[], Any]

_NUMBERS: Final = (int, float, bool)


@dataclass(frozen=True, kw_only=True)
class DecoratorOptions:
    """What the decorator was given.

    Attributes:
        space: where configs come from.
        key: names of arguments whose values a tuned config depends on.
        small: at or below it, `heuristic`'s config runs and nothing is tuned:
            a predicate over the arguments by name, or the number of elements
            of the largest tensor argument.
        heuristic: a config, or a function of the arguments by name that gives
            one; the space's default where it is None.
        choices: of how to tune, by keyword; see `tuning.TuneOptions`.
    """

    space: SpaceSource
    key: tuple[str, ...] = ()
    small: int | Callable[[Arguments], bool] | None = None
    heuristic: Config | Callable[[Arguments], Any] | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)


class AsmAutotuner:
    """A kernel that knows its configs; launched as `kernel[grid](*args, **kwargs)`.

    Attributes:
        fn: the Triton function underneath.
        arg_names: its parameters.
        cache: configs by key, as far as this process has met them.
        best_config: of the last launch; None before the first.
    """

    def __init__(self, kernel: Any, options: DecoratorOptions) -> None:
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
        self._workshops: dict[str, Workshop] = {}
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
            if key in self.cache:
                return self.cache[key]
            config, final = self._resolve(arguments, grid)
            if final:
                self.cache[key] = config
            return config

    def _key(self, arguments: Arguments) -> tuple[Any, ...]:
        values = [arguments.get(name) for name in self.options.key]
        dtypes = [
            (name, dtype)
            for name, value in arguments.items()
            if type(value) not in _NUMBERS and (dtype := element_type(value)) is not None
        ]
        return (_device_index(), *values, *dtypes)

    def _resolve(self, arguments: Arguments, grid: Any) -> tuple[Config, bool]:
        """The config of a key that this process has not met, and whether it is final."""
        if self._is_small(arguments):
            return self._heuristic(arguments), True
        from asmtune.tuning import TuneJob, TuneOptions, Workshop

        name = f"{self._function.__module__}.{self._function.__qualname__}"
        shape = _numbers(arguments)
        problem = Problem(self.fn, arguments, grid, shape, name)
        key = self._tune_key(arguments, name)
        if key.device not in self._workshops:
            options = TuneOptions.of(self.options.choices)  # type: ignore[arg-type]
            self._workshops[key.device] = Workshop.open(key.device, options)
        result = self._workshops[key.device].resolve(TuneJob(problem, key), self.space)
        if result.record is None:
            return self._heuristic(arguments), False  # another process tunes it
        return self._with_hook(result.record.winner, shape), True

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
