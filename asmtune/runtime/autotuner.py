"""`AsmAutotuner`: the object that `@asm_autotune` makes of a Triton function."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import triton

from asmtune.base.errors import InputError
from asmtune.core.alternatives import call_of
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.runtime.calls import KernelCall, as_triton, named_refusal, needs_gpu, timings_ms
from asmtune.runtime.checks import check_decorated, check_kernel, named_arguments, remade
from asmtune.runtime.choosing import Chooser
from asmtune.runtime.events import emit_plan
from asmtune.runtime.launch import plain
from asmtune.runtime.launch.planning import (
    Backend,
    Launcher,
    ParameterLayout,
    TritonLaunch,
    backend,
    kinds,
    layout_of,
    plan_of,
    plan_of_alternative,
)
from asmtune.runtime.options import DecoratorOptions
from asmtune.triton_api.autotuners import Autotuner, plain_rules
from asmtune.triton_api.compiled_graphs import correct_dynamo
from asmtune.triton_api.jit_functions import heuristic_rules, innermost, is_jit_function, parameters
from asmtune.triton_api.launching import current_stream, hook_lists
from asmtune.triton_api.user_state import has_function_modes, inside, outside, within

if TYPE_CHECKING:
    from asmtune.runtime.misses.lookups import Choice
    from asmtune.runtime.torch_compile import PruneHook
    from asmtune.tuning.request import TuningRequest

# Triton's interpreter changes `triton.language` while a kernel runs: one thread at a time.
_INTERPRETER: Final = threading.RLock()


def _proposed(kernel: Any) -> Space:
    from asmtune.core.space.proposal import proposed_space

    return proposed_space(kernel)


class AsmAutotuner(Autotuner):  # type: ignore[misc] # Triton's has no types
    """A kernel that finds its configs; launched as `kernel[grid](*args, **kwargs)`.

    It is one of Triton's autotuners, so that PyTorch's compiler and `@triton.heuristics`
    know it, and has its attributes, with this difference: `configs` are read-only.

    Attributes:
        fn: the Triton function underneath, with the heuristics around it.
        arg_names: its parameters.
        cache: configs by key, of the keys that this process has launched.
        configs_timings: `[median, p20, p80]` in milliseconds by config, of the last tuning.
        bench_time: seconds of the last tuning.
        options: the decorator's options.
    """

    _forgets = 0
    __iter__ = None  # else a loop over a kernel takes `[]` for that of a list, and never ends

    def __init__(self, kernel: Any, options: DecoratorOptions) -> None:
        check_kernel(kernel, strict=options.strict)
        if isinstance(options.space, str):  # it is AUTO
            options = replace(options, space=functools.partial(_proposed, kernel))
        self.options = options
        given = options.choices.get
        resets = [named_arguments(options, name) for name in ("reset_to_zero", "restore_value")]
        hooks = {name: given(name) for name in ("pre_hook", "post_hook", "do_bench")}
        super().__init__(kernel, list(kernel.arg_names), [], [], *resets, **hooks)
        self._chooser = Chooser(kernel, self._function, options, self._forget)
        self.cache = self._chooser.memory
        self.keys = [part.name for part in self._chooser.parts]
        self._best: Config | None = None
        check_decorated(self._function, options)

    def __repr__(self) -> str:
        """Show the kernel, its key, the number of keys met, and that of the space's configs."""
        if "_chooser" not in vars(self):
            return object.__repr__(self)
        source = self.options.space
        space = vars(self._chooser).get("space") or (None if callable(source) else Space.of(source))
        configs = "configs made at the first launch"
        if space is not None:
            configs = f"{'up to ' * bool(space.constraints)}{space.size} configs"
        key = ", ".join(part.name for part in self._chooser.parts)
        met = f"{len(self.cache)} keys met"
        return f"<asm_autotune {self._chooser.name}: key [{key}], {met}, {configs}>"

    @property
    def __name__(self) -> str:
        return str(self._function.__name__)

    @functools.cached_property
    def _function(self) -> Any:
        """Return the `JITFunction`, or the interpreter's function under TRITON_INTERPRET=1."""
        return innermost(self.fn)

    @property
    def space(self) -> Space:
        """Return the space of configs, made when first needed."""
        return self._chooser.space

    @property
    def configs(self) -> list[triton.Config]:
        """Return the listed configs; for a space of axes, its default alone."""
        correct_dynamo()  # Dynamo reads them first of all
        # A new list each time: Dynamo 2.11 fails where it meets one list twice in a graph.
        return list(self._listed)

    @configs.setter
    def configs(self, _: Any) -> None:
        """Ignore what Triton's constructor sets; refuse what a program sets."""
        if "_chooser" in vars(self):
            raise InputError(
                f"{self.__name__}.configs cannot be set: decorate the kernel anew, "
                "or put a config into its cache"
            )

    @functools.cached_property
    def _listed(self) -> tuple[triton.Config, ...]:
        """Return `configs`, made once: Dynamo's guards read them at each compiled call."""
        space = self.space
        # Before all constraints, which may need the arguments of a launch.
        first = {name: values[0] for name, values in space.axes.items()}
        listed = space.listed or (space.default or Config.from_dict(first),)
        return tuple(as_triton(config) for config in listed)

    @property
    def early_config_prune(self) -> PruneHook:
        """Return the function that PyTorch's compiler calls for a traced launch's config."""
        return self._prune_hook

    @early_config_prune.setter
    def early_config_prune(self, value: Any) -> None:
        """Ignore what Triton's constructor sets."""

    @functools.cached_property
    def _prune_hook(self) -> PruneHook:
        from asmtune.runtime.torch_compile import TracedLaunches, prune_hook

        # A program of `triton.autotune`'s expects Inductor to time its list; PyTorch drops what
        # would put arguments right between two timings.
        safe = not self.options.strict and not self.restore_value and not self.reset_to_zero
        return prune_hook(
            TracedLaunches(
                choose=self._chooser.look_up,
                listed=self._chooser.listed if safe else None,
                rules=tuple(heuristic_rules(self.fn)),
                notices=self._chooser.notices,
            )
        )

    @property
    def best_config(self) -> Config | None:
        """Return the config of the last launch; None before the first."""
        plan = self._launcher.last
        return self._best if plan is None else plan.config

    @best_config.setter
    def best_config(self, config: Any) -> None:
        self._best = config

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self._launcher[grid]  # type: ignore[no-any-return]

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the key's config; `kernel[grid](...)` does the same.

        Return the compiled kernel. A grid of which an axis is 0 launches nothing: None is returned
        where the key has no config yet, since none is chosen or compiled for it.
        """
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self._launcher[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> list[Any]:
        """Compile without a launch: the key's config if it is known, else all candidates."""
        call = KernelCall(grid, args, kwargs, self.arg_names)
        configs = self._chooser.candidates(call)
        with needs_gpu():
            return [
                self.fn.warmup(*args, grid=grid, **kwargs, **config.all_kwargs())
                for config in configs
            ]

    @functools.cached_property
    def _part(self) -> Backend:
        """Return the launcher's module; the Python one where every launch takes the slow path."""
        return backend() if self._layout().names else cast(Backend, plain)

    @functools.cached_property
    def _launcher(self) -> Launcher:
        """Return the launcher, made at the first launch, since its C part may have to be built."""
        layout = self._layout()
        quiet = hook_lists(self._function) if layout.names else ()
        return self._part.Launcher(
            *(layout.names, layout.modes, layout.functions, layout.rules),
            *(kinds(), current_stream(), quiet, self._launch),
        )

    @functools.cached_property
    def _rules(self) -> tuple[tuple[str, Callable[..., Any]], ...] | None:
        """Return the rules of `@triton.heuristics` underneath, in the order of their calls.

        None where another program's decorator is underneath, and under the interpreter.
        """
        return plain_rules(self.fn)

    def _layout(self) -> ParameterLayout:
        """Return the launcher's view of the parameters; empty to send every launch the slow path.

        That is under the interpreter, for kernels of too many parameters, and where something else
        than `@triton.heuristics` stands underneath.
        """
        if self._rules is None:
            return ParameterLayout((), b"")
        plain = [part.name for part in self._chooser.parts if part.function is None]
        functions = [(p.function, p.needs) for p in self._chooser.parts if p.function is not None]
        layout = layout_of(parameters(self._function), plain, functions, self._rules)
        return layout if layout.fits else ParameterLayout((), b"")

    def _launch(
        self, grid: Any, args: Any, kwargs: Any, key: Any, held: Any, hook: Any, *ruled: Any
    ) -> Any:
        """Choose a config, let Triton launch, and plan the key's next launch: the slow path.

        What the launcher has called for this launch is not called again: a config's `hook`, and the
        rules, of which `ruled` holds what of a config they saw, and their results. A launch whose
        tensors got other memory on the way is not planned: its key is another's; nor is one whose
        config was forgotten on the way.
        """
        # A known key needs no more: to leave the user's state takes three times as long as all else
        # of its launch. A search leaves it. Reads of tensors would come to modes of functions.
        with outside() if has_function_modes() else nullcontext():
            call = KernelCall(grid, args, kwargs, self.arg_names)
            return self._slow_launch(call, key, held, hook, ruled)

    def _slow_launch(
        self, call: KernelCall, key: Any, held: Any, hook: Any, ruled: tuple[Any, ...]
    ) -> Any:
        before = None if key is None else call.tensor_classes()
        grid, chooser = call.grid, self._chooser
        forgets = self._forgets  # read first: the background may be done before the plan is kept
        choice = chooser.choose(call)
        if choice is None:
            return self._launch_nothing(call)
        config, alternative = self._served(call, choice)
        self._best = config

        def may_keep() -> bool:
            is_current = (choice.final or choice.until_tuned) and forgets == self._forgets
            return key is not None and is_current and before == call.tensor_classes()

        self._launcher.last = None
        self._note_timings(choice)
        if alternative is not None:
            # A grid may read what the rules compute.
            if may_keep() and not self._rules:
                given = (alternative, call.arguments, config, self if choice.until_tuned else None)
                plan = plan_of_alternative(self._part, self._function, *given)
                self._keep(call, key, plan, held)
            return None
        chosen = config.all_kwargs()
        if config.pre_hook is not None and config.pre_hook != hook:
            self._call_hook(config, call)
            ruled = ()  # rules come after the hook
        checked = self._chooser.checked_grid(grid, config)
        compiled, results = self._run(call, checked, chosen, ruled)
        if may_keep():
            names = [name for name, _ in self._rules or ()]
            arguments = call.arguments | dict(zip(names, results, strict=True))
            launched = TritonLaunch(self._function, compiled, arguments, chosen, config)
            plan = plan_of(self._part, launched, kinds())
            if plan is not None:
                self._keep(call, key, plan, held, results)
        return compiled

    def _keep(self, call: KernelCall, key: Any, plan: Any, held: Any, results: Any = ()) -> None:
        """Keep the plan of further launches like this one, and emit it."""
        self._launcher.keep(key, plan, held, *([results] if results else ()))
        emit_plan(self._chooser.name, lambda: self._chooser.key_of(call), plan)

    def _note_timings(self, choice: Choice) -> None:
        """Set the attributes that describe the last tuning."""
        if choice.how == "tuned":
            self.bench_time = choice.seconds
        if choice.record is not None:
            self.configs_timings = timings_ms(choice.record)

    @staticmethod
    def _call_hook(config: Config, call: KernelCall) -> None:
        """Call a config's hook as Triton does before a launch."""
        if config.pre_hook is not None:
            launch = {"grid": call.grid, "warmup": False}
            chosen = config.all_kwargs()
            within(config.pre_hook)({**call.positional, **launch, **call.kwargs, **chosen})

    def _launch_nothing(self, call: KernelCall) -> None:
        """Do what is left of a launch of no programs whose key is not known: the default's hook.

        A hook may zero an output, which the caller reads. Nothing is compiled.
        """
        self._launcher.last = None
        space = self.space
        self._call_hook(remade(space, space.default).first(), call)

    def _run(
        self, call: KernelCall, grid: Any, chosen: dict[str, Any], ruled: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """Let Triton launch; return the compiled kernel, and what the rules computed."""
        where = needs_gpu() if is_jit_function(self._function) else _INTERPRETER
        with inside(), where, named_refusal(self._function, call.arguments | chosen):
            if not self._rules:
                named = {"grid": grid, "warmup": False}
                return self.fn.run(*call.args, **named, **call.kwargs, **chosen), ()
            # As `Heuristics.run` does, which does not return the results.
            named = dict(grid=call.grid, warmup=False, **call.kwargs, **chosen)
            called = ruled[1] if ruled and ruled[0] == chosen else ()
            results = list(called)
            named.update(zip((name for name, _ in self._rules), called, strict=False))
            for name, rule in self._rules[len(called) :]:
                named[name] = rule({**call.positional, **named})
                results.append(named[name])
            named["grid"] = grid
            return self._function.run(*call.args, **named), tuple(results)

    def _served(self, call: KernelCall, choice: Choice) -> tuple[Config, Callable[..., Any] | None]:
        """Call a choice's alternative, if it has one; return the config and what was called."""
        chooser, config = self._chooser, choice.config
        prepare = functools.partial(self._prepared, call=call, config=config)
        if choice.until_tuned:
            config = chooser.first_that_serves(call, config, prepare)
            return config, chooser.alternative(config)
        alternative = chooser.alternative(config)
        if alternative is not None:
            prepare(alternative)()
        return config, alternative

    def _prepared(
        self, alternative: Callable[..., Any], call: KernelCall, config: Config
    ) -> Callable[[], Any]:
        """Return the call of an alternative in a config's place.

        As in a planned launch, the grid is evaluated and checked; one of no programs calls nothing.
        """
        grid = self._chooser.checked_grid(call.grid, config)
        problem = Problem(self.fn, call.arguments, grid, name=self.__name__)
        sizes = problem.grid_at(config, problem.bind(config.plain)) if callable(grid) else grid
        if 0 in (sizes if isinstance(sizes, tuple | list) else (sizes,)):
            return lambda: None
        return within(call_of(alternative, self.arg_names, call.arguments))

    def request(
        self, positional: Mapping[str, Any], named: Mapping[str, Any], grid: Any, device: str
    ) -> TuningRequest:
        """Return the request of a launch that is not made; by position count `positional`.

        Its `key` is the launch's, and `expected` what it would be tuned with now. Meta tensors
        serve. `device` is the GPU's name, as its driver gives it.

        Raises:
            InputError: an argument that the key names is missing.
        """
        return self._chooser.request(positional, named, grid, device)

    def reconfigure(self, options: DecoratorOptions) -> None:
        """Change the options from the next launch on; forget the configs found so far.

        Args:
            options: with the same key, and the same of what Triton's constructor was given.
        """
        self.options = options
        self._chooser = Chooser(self.fn, self._function, options, self._forget)
        self.cache = self._chooser.memory
        self.__dict__.pop("_prune_hook", None)
        self._forget()

    def _forget(self) -> None:
        """Forget all plans: a config of a planned launch may have changed."""
        self._forgets += 1
        if "_launcher" in vars(self):
            self._launcher.forget()
