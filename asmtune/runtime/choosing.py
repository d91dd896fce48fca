"""`Chooser`: from the arguments of a launch to its config."""

from __future__ import annotations

import functools
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.core.alternatives import Alternatives, raised_by
from asmtune.core.config import Config
from asmtune.core.ir_overrides import pinned_space
from asmtune.core.keys.parts import key_parts, values
from asmtune.core.problem import Problem, UnknownGrid
from asmtune.core.records.tuned import TuneKey
from asmtune.core.space.space import Space
from asmtune.runtime.calls import (
    ConfigCache,
    KernelCall,
    as_triton,
    current_job,
    is_capturing,
    is_usual_grid,
    memory_key,
)
from asmtune.runtime.checks import (
    check_devices,
    check_launch,
    check_space,
    has_programs,
    is_empty_launch,
    launch_options,
    positional_arguments,
)
from asmtune.runtime.events import (
    LAUNCHING_MODULES,
    KeyResolved,
    Notices,
    emit,
    emit_launch,
    print_tuned,
)
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.misses.resolver import MissWarning, Resolver
from asmtune.runtime.options import (
    Arguments,
    DecoratorOptions,
    is_deterministic,
    numbers,
    on_switch,
)
from asmtune.runtime.rank_agreement import resolve
from asmtune.triton_api.jit_functions import is_jit_function, python_function
from asmtune.triton_api.user_state import inside, outside, searching

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest


class Chooser:
    """The configs of one decorated kernel.

    `on_change` is called when the config of a key that was launched may have changed.
    """

    def __init__(
        self,
        kernel: Any,
        function: Any,
        options: DecoratorOptions,
        on_change: Callable[[], None],
    ) -> None:
        self.options = options
        self.parts = key_parts(
            options.key, kernel.arg_names, function.__name__, strict=options.strict
        )
        self.memory = ConfigCache(on_change)
        self._python = python_function(function)
        self.name = f"{self._python.__module__}.{self._python.__qualname__}"
        self._kernel = kernel
        self._function = function
        self._lock = threading.RLock()
        self._untuned: dict[tuple[Any, ...], Config] = {}  # what serves until a key is tuned
        self._resolver = Resolver(options, self._on_background_tuned)
        self.notices = Notices()
        self._mode: bool | None = None
        on_switch(self, lambda chooser: chooser.memory.on_change())

    @functools.cached_property
    def space(self) -> Space:
        """Return the space of configs, made when first needed."""
        source = self.options.space
        with inside():
            source_space = Space.of(source() if callable(source) else source)
        parts = self.parts if self.options.strict else ()
        check_space(self._function, source_space, parts)
        return source_space

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Return the values of parameters that a launch may leave out."""
        params = inspect.signature(self._python).parameters.values()
        return {param.name: param.default for param in params if param.default is not param.empty}

    def choose(self, call: KernelCall) -> Choice | None:
        """Return the config of a launch; None for one of no programs, whose key stays unknown.

        Raises:
            InputError: the launch is impossible; says what to change.
            AsmtuneError: its config cannot be tuned.
        """
        values = self._values(call)
        key = self._memory_key(call, values)
        if (known := self._known(key)) is not None:
            check_devices(self._function.__name__, call.arguments, strict=self.options.strict)
            return known
        with outside(), self._lock:
            if (known := self._known(key)) is not None:
                return known
            resolved = self._resolve_miss(call, values)
            if resolved is None:
                return None
            request, choice = resolved
            if choice.final or choice.until_tuned:
                if choice.until_tuned:
                    self._untuned[key] = choice.config
                self.memory.learn(key, choice.config)
                if choice.how == "busy" and request is not None:
                    from asmtune.runtime.misses.background import queue_of

                    queue_of(request.key.device).ask_later(functools.partial(self._ask_again, key))
        if choice.final and request is not None:
            print_tuned(request, choice, key)
        return choice

    def _ask_again(self, key: tuple[Any, ...]) -> None:
        """Let the next launch of a key that the background had no room for queue it."""
        with self._lock:
            if self._is_untuned(key):
                self.memory.pop(key)

    def _known(self, key: tuple[Any, ...]) -> Choice | None:
        """Return the config of a key in memory; None where it has none."""
        if (known := self.memory.get(key)) is None:
            return None
        return Choice(Config.of(known), True, "known", until_tuned=self._is_untuned(key))

    def _is_untuned(self, key: tuple[Any, ...]) -> bool:
        """Return whether a key has in memory what serves until it is tuned, and no program's."""
        return key in self._untuned and self.memory.get(key) is self._untuned[key]

    def key_of(self, call: KernelCall) -> tuple[Any, ...]:
        """Return the key in memory of a launch that is not chosen deterministically."""
        return memory_key(call, self._values(call))

    def _memory_key(self, call: KernelCall, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key in memory; configs that were chosen deterministically have their own."""
        mode = is_deterministic()
        if self._mode not in (None, mode):  # PyTorch's switch tells nobody
            self.memory.on_change()
        self._mode = mode
        key = memory_key(call, values)
        return (*key, "deterministic") if mode else key

    def alternative(self, config: Config) -> Callable[..., Any] | None:
        """Return the user's function that is called in a config's place; None to launch it."""
        if config.alternative is None:
            return None
        named: Alternatives = self.options.choices.get("alternatives") or {}
        return named.get(config.alternative)

    def first_that_serves(
        self,
        call: KernelCall,
        config: Config,
        prepare: Callable[[Callable[..., Any]], Callable[[], Any]],
    ) -> Config:
        """Call the alternative of a key that is not tuned yet, or another if it raises.

        A vendor's function need not take each launch. `prepare` makes the call of one; what that
        raises is not the function's. Return the config of the one that did, or the config itself,
        to be launched, if none does.
        """
        named: Alternatives = self.options.choices.get("alternatives") or {}
        if config.alternative not in named:  # a config that was timed serves as it is
            return config
        for name in sorted(named, key=lambda name: name != config.alternative):
            failure = raised_by(prepare(named[name]))
            if failure is None:
                return self._serving(call, config, config.with_alternative(name))
            is_mistake = failure.startswith(("TypeError", "NameError", "AttributeError"))
            if is_mistake and self.notices.first("alternative", f"{self.name} {name}"):
                text = (
                    f"kernel {self.name}: alternatives[{name!r}] raised {failure}; another serves"
                )
                warnings.warn(text, MissWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))
        return self._serving(call, config, config.plain)

    def _serving(self, call: KernelCall, before: Config, config: Config) -> Config:
        """Note what serves a key, unless the background has tuned it meanwhile; return it."""
        key = self._memory_key(call, self._values(call))
        with self._lock:
            if config != before and self._is_untuned(key):
                self._untuned[key] = self.memory[key] = config
        return config

    def checked_grid(self, grid: Any, config: Config) -> Any:
        """Wrap the grid of a launch so that bad use raises when Triton evaluates it."""
        if not is_jit_function(self._function):
            return grid

        def check(sizes: Any) -> Any:
            if not is_usual_grid(sizes):
                problem = Problem(self._kernel, {}, grid, name=self._function.__name__)
                has_programs(problem, config, sizes, strict=self.options.strict)
            return sizes

        return (lambda values: check(grid(values))) if callable(grid) else check(grid)

    def searched_space(self, call: KernelCall) -> Space:
        """Prune the space for a launch by the user's functions; copy the files that it names."""
        return pinned_space(self._pruned(call), Settings.from_environment().overrides_dir)

    def _pruned(self, call: KernelCall) -> Space:
        only_one = self.space.is_listed and self.space.size == 1
        if self.options.prune is None or only_one:  # of one, Triton asks no function either
            return self.space
        configs = [as_triton(config) for config in self.space.configs(**numbers(call.arguments))]
        return Space.from_configs(self.options.prune.apply(configs, call.positional, call.kwargs))

    def _values(self, call: KernelCall) -> dict[str, Any]:
        return values(
            self.parts,
            call.arguments,
            self._function.__name__,
            defaults=self.defaults,
            strict=self.options.strict,
        )

    def candidates(self, call: KernelCall) -> list[Config]:
        """Return the configs to compile for a later launch: its own if it is known, else all."""
        known = self.memory.get(self._memory_key(call, self._values(call)))
        return self._searched(call) if known is None else [Config.of(known)]

    def _searched(self, call: KernelCall) -> list[Config]:
        return list(self.searched_space(call).configs(**numbers(call.arguments)))

    def listed(self, positional: Arguments, named: Arguments) -> list[Config]:
        """Return the configs to search for a launch that is only described; see `look_up`."""
        return self._searched(self._described(positional, named))

    def _described(self, positional: Arguments, named: Arguments, grid: Any = None) -> KernelCall:
        grid = UnknownGrid((1,)) if grid is None else grid
        return KernelCall(grid, (*positional.values(),), named, self._kernel.arg_names)

    def look_up(self, positional: Arguments, named: Arguments) -> tuple[TuningRequest, Choice]:
        """Return request and config of a launch of meta tensors; tune and compile nothing.

        `positional` holds by name the arguments that are given by position. A compiler launches the
        config where an alternative has won.
        """
        with outside():
            request, choice = self._look_up(positional, named)
        return request, replace(choice, config=choice.config.plain)

    def _look_up(self, positional: Arguments, named: Arguments) -> tuple[TuningRequest, Choice]:
        call = self._described(positional, named)
        values = self._values(call)
        request = self._request(call, values, self.searched_space(call))
        known = self._known(self._memory_key(call, values))
        # A program may have put it there, or ranks agreed on it.
        if known is not None and not known.until_tuned:
            return request, known
        emit_launch(request, call)
        return request, resolve(self._resolver, request, capturing=True)

    def request(
        self, positional: Arguments, named: Arguments, grid: Any, device: str
    ) -> TuningRequest:
        """Do as `AsmAutotuner.request`."""
        call = self._described(positional, named, grid)
        return self._request(call, self._values(call), self.searched_space(call), device)

    def _resolve_miss(
        self, call: KernelCall, values: Mapping[str, Any]
    ) -> tuple[TuningRequest | None, Choice] | None:
        """Resolve a key that is not in memory; return its request, if any, and its config.

        None for a launch of no programs: there is nothing to time, and no config is chosen.
        """
        if not is_jit_function(self._function):  # the interpreter's: it has no assembly to read
            return None, self._heuristic(self._pruned(call), call, final=False)
        start = time.perf_counter()
        name, arg_names = self._function.__name__, self._kernel.arg_names
        given = {**positional_arguments(name, arg_names, call.args, call.kwargs), **call.kwargs}
        launch, strict = (self._kernel, given, call.grid), self.options.strict
        if is_empty_launch(*launch, self.space, strict=strict):
            return None
        space = check_launch(*launch, self.searched_space(call), strict=strict)
        if space is None:
            return None
        request, capturing = self._request(call, values, space), is_capturing()
        if space.is_listed and space.size == 1 and not request.alternatives:
            return None, self._heuristic(space, call, final=True)
        emit_launch(request, call)
        with searching():
            choice = resolve(self._resolver, request, capturing=capturing)
        if capturing and not choice.final:
            self.notices.untuned(request.key, choice.config, "capture")
        if choice.final:
            choice = replace(choice, seconds=time.perf_counter() - start)
            self._emit_resolved(choice)
        return request, choice

    def _heuristic(self, space: Space, call: KernelCall, *, final: bool) -> Choice:
        return Choice(self.options.fallback_config(space, call.arguments), final, "fallback")

    def _emit_resolved(self, choice: Choice) -> None:
        event = KeyResolved(kernel=self.name, how=choice.how, seconds=choice.seconds)
        emit(replace(event, compiled=choice.compiled, timed=choice.timed))

    def _request(
        self, call: KernelCall, values: Mapping[str, Any], space: Space, device: str | None = None
    ) -> TuningRequest:
        from asmtune.measure.timing.nvml import device_name
        from asmtune.tuning.request import TuningRequest

        shape = numbers(call.arguments)
        given = {**call.positional, **call.kwargs}
        options = launch_options(self._function, given, space)
        problem = Problem(self._kernel, given, call.grid, shape, self.name, options)
        key = TuneKey(self.name, dict(values), problem.dtypes, device or device_name())
        return TuningRequest(problem, key, space, self.options.choices)

    def _on_background_tuned(self, request: TuningRequest, choice: Choice) -> None:
        """Note a key that was tuned in the background; its next launch looks it up again."""
        if current_job() is not None:
            return  # ranks stay with the agreed config: they would not switch at one launch
        key = memory_key(self._described({}, request.problem.arguments), request.key.shape)
        with self._lock:  # not before the launch that has queued the key has noted its pick
            if key in self.memory and not self._is_untuned(key):
                return  # a program has put its own there
            if not choice.final:
                self.memory.pop(key, None)
            elif not choice.until_tuned:  # else it is not tuned, and goes on with what serves
                self.memory[key] = choice.config
        if choice.final:
            self._emit_resolved(choice)
