"""Messages between a bench and its child.

The setup and the candidates travel as pickles, since only a pickle can carry the user's functions.
They go through the pipe between the two processes; nothing is ever unpickled from a disk. The
child answers with JSON alone.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from asmtune.base.errors import InputError
from asmtune.compile.load import Binary, launch_values
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.user_modules import FILE_PREFIX
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.bench.argument_codec import Packing, describe_all, restore
from asmtune.measure.bench.base import BenchSetup, TimingCandidate, TimingSetup
from asmtune.triton_api.jit_functions import constexprs, parameters


def pickled(value: Any, what: str, functions: Iterable[Callable[..., Any]] = ()) -> str:
    """Pickle a value that holds functions of the user's as text.

    Functions of a file that was given by its path travel whole: no other process knows its module.

    Raises:
        InputError: it does not pickle; names it.
    """
    for one in functions:
        module = sys.modules.get(getattr(one, "__module__", None) or "")
        if module is not None and module.__name__.startswith(FILE_PREFIX):
            cloudpickle.register_pickle_by_value(module)
    result = guarded("input", lambda: cloudpickle.dumps(value))
    if isinstance(result, Failure):
        raise InputError(
            f"{what} cannot be sent to the process that times ({_first_line(result.detail)}): "
            "make it a plain function, or tune with isolate=False"
        )
    return base64.b64encode(result).decode()


def pickled_function(function: Callable[..., Any], role: str) -> str:
    """Pickle one function of the user's as text.

    Raises:
        InputError: it does not pickle; names its role and itself.
    """
    what = f"{role} {getattr(function, '__qualname__', function)}"
    return pickled(function, what, [function])


def unpickled(text: str, what: str) -> Any:
    """Restore what `pickled` made text of.

    Raises:
        InputError: a module it needs cannot be imported here.
    """
    result = guarded("input", lambda: cloudpickle.loads(base64.b64decode(text)))
    if isinstance(result, Failure):
        raise InputError(
            f"{what} cannot be loaded in the process that times ({_first_line(result.detail)}): "
            "define it in a module that can be imported, or tune with isolate=False"
        )
    return result


def functions_of(setup: BenchSetup) -> dict[str, Callable[..., Any]]:
    """Return the user's functions in a setup by their role."""
    checks, hooks = setup.checks, setup.hooks
    by_role = {"reference=": checks.reference, "restore=": checks.restore}
    by_role |= {"pre_hook=": hooks.pre, "post_hook=": hooks.post, "do_bench=": setup.do_bench}
    by_role |= {f"alternative {name}=": given for name, given in setup.alternatives.items()}
    return {role: function for role, function in by_role.items() if function is not None}


def setup_text(setup: BenchSetup) -> str:
    """Pickle the part of a setup that a child needs, so that functions share what they share here.

    Raises:
        InputError: a function cannot be sent; names it.
    """
    functions = functions_of(setup)
    for role, function in functions.items():
        pickled_function(function, role)  # one by one, to find out which cannot be sent
    sent = TimingSetup(**{part.name: getattr(setup, part.name) for part in fields(TimingSetup)})
    return pickled(sent, "the setup", functions.values())


def setup_of(text: str) -> TimingSetup:
    """Restore a setup from the text of `setup_text`.

    Raises:
        InputError: a module that a user's function needs cannot be imported here.
    """
    roles = "reference, restore, pre_hook, post_hook, do_bench or an alternative"
    setup: TimingSetup = unpickled(text, roles)
    return setup


@dataclass(frozen=True)
class SentCandidate:
    """Holds what a child needs to launch a config, without its hook.

    Attributes:
        kwargs: the config's values, described as JSON.
        options: its `num_warps`, `num_stages`, `num_ctas` and `maxnreg`.
        ir_override, alternative: the config's.
        parameters: names of the kernel's parameters.
        values: what a launch adds to the problem's arguments, described as JSON.
        binary: the code.
        slots: where its programs write.
    """

    kwargs: Mapping[str, Any]
    options: tuple[int, int, int, int | None]
    ir_override: str | None
    alternative: str | None
    parameters: tuple[str, ...]
    values: Mapping[str, Any]
    binary: Binary
    slots: ConfigSlots

    @classmethod
    def of(cls, problem: Problem, candidate: TimingCandidate, binary: Binary) -> SentCandidate:
        """Describe a candidate; values that cannot be sent, such as functions, as text.

        Raises:
            InputError: a heuristic's value cannot be sent; names it.
        """
        config = candidate.config
        values = launch_values(problem, config)
        extra = {n: v for n, v in values.items() if v is not problem.arguments.get(n, problem)}
        constexprs = frozenset(constexpr_names(problem) | config.kwargs.keys())
        return cls(
            describe_all(Packing(), config.kwargs, constexprs),
            (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg),
            config.ir_override,
            config.alternative,
            tuple(p.name for p in parameters(problem.kernel)),
            describe_all(Packing(), extra, constexprs),
            binary,
            candidate.slots,
        )

    def config(self, pre_hook: Callable[..., Any] | None) -> Config:
        """Restore the config."""
        kwargs = {name: restore(value, ()) for name, value in self.kwargs.items()}
        config = Config(kwargs, *self.options, pre_hook, self.ir_override)
        return config.with_alternative(self.alternative)

    def launch_values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a launch with these arguments."""
        return {**arguments, **{name: restore(value, ()) for name, value in self.values.items()}}


def describe_result(result: Measurement | Failure) -> dict[str, Any]:
    """Describe a timing or a failure as JSON, without its config."""
    if isinstance(result, Failure):
        return {"failure": asdict(result)}
    times = (result.median_us, result.p20_us, result.p80_us)
    samples = list(result.samples_us)
    return {"times_us": list(times), "samples_us": samples, "error": result.error}


def result_of(message: Mapping[str, Any], config: Config) -> Measurement | Failure:
    """Restore a timing or a failure from its description."""
    if "failure" in message:
        return Failure(**message["failure"])
    median_us, p20_us, p80_us = message["times_us"]
    samples = tuple(message["samples_us"])
    return Measurement(config, median_us, p20_us, p80_us, samples, message["error"])


def constexpr_names(problem: Problem) -> frozenset[str]:
    """Return the kernel's parameters whose values are part of its code."""
    return constexprs(problem.kernel)


def _first_line(detail: str) -> str:
    return detail.strip().splitlines()[0]
