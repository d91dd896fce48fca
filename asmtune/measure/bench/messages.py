"""Messages between a bench and its child: records to JSON values, and back.

Only pickle can carry the user's functions. They go through the pipe between the two processes;
nothing is ever unpickled from a disk.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from asmtune.base.errors import InputError
from asmtune.base.json_codec import JsonCodec, scalar_of, text_of
from asmtune.compile.load import Binary, launch_values
from asmtune.core.alternatives import Alternatives
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.problem import Problem, jit_function
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.user_modules import FILE_PREFIX
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.accuracy import Bound
from asmtune.measure.bench.argument_codec import Packing, describe_all, restore
from asmtune.measure.bench.base import BenchSetup, TimingPlan
from asmtune.measure.bench.hooks import TunerHooks
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_SLOTS: Final = JsonCodec(decoders={str: text_of, int: scalar_of, bool: scalar_of})
_ALTERNATIVE: Final = "alternative "
_FUNCTIONS: Final = ("reference=", "restore_value=", "pre_hook=", "post_hook=", "do_bench=")


def pickled(function: Callable[..., Any] | Mapping[str, Any], what: str) -> str:
    """Pickle a user's function, or several by name, as text.

    Functions of a file that was given by its path travel whole: no other process knows its module.

    Raises:
        InputError: it does not pickle; names it.
    """
    for one in function.values() if isinstance(function, Mapping) else (function,):
        module = sys.modules.get(getattr(one, "__module__", None) or "")
        if module is not None and module.__name__.startswith(FILE_PREFIX):
            cloudpickle.register_pickle_by_value(module)
    result = guarded("input", lambda: cloudpickle.dumps(function))
    if isinstance(result, Failure):
        raise InputError(
            f"{what} cannot be sent to the process that times ({_first_line(result.detail)}): "
            "make it a plain function, or tune with isolate=False"
        )
    return base64.b64encode(result).decode()


def unpickled(text: str, what: str) -> Any:
    """Restore a function from the text of `pickled`.

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


def describe_setup(setup: BenchSetup) -> dict[str, Any]:
    """Describe effects, checks, policy, seed, and the user's functions.

    Raises:
        InputError: a function cannot be sent; names it.
    """
    checked, hooks = setup.checks, setup.hooks
    by_role = (checked.reference, checked.restore, hooks.pre, hooks.post, setup.do_bench)
    functions = {r: f for r, f in zip(_FUNCTIONS, by_role, strict=True) if f is not None}
    functions |= {f"{_ALTERNATIVE}{name}=": f for name, f in setup.alternatives.items()}
    accuracy = checked.accuracy
    checks = vars(checked) | {"accuracy": None if accuracy is None else asdict(accuracy)}
    for role, function in functions.items():
        pickled(function, name_of(role, function))  # one by one, to find out which cannot be sent
    return {
        "effects": {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in vars(setup.effects).items()
        },
        "checks": {n: v for n, v in checks.items() if n not in ("reference", "restore")},
        # Together, so that hooks that share a closure still do so in the child.
        "functions": pickled(functions, "the functions") if functions else "",
        "policy": asdict(setup.policy),
        "seed": setup.seed,
    }


@dataclass(frozen=True)
class ChildSetup:
    """Holds the parts of a `BenchSetup` that a child gets."""

    effects: Effects
    checks: CheckOptions
    plan: TimingPlan
    hooks: TunerHooks
    alternatives: Alternatives


def setup_of(message: Mapping[str, Any]) -> ChildSetup:
    """Restore a setup from the message of `describe_setup`.

    Raises:
        InputError: a module that a user's function needs cannot be imported here.
    """
    effects: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value
        for name, value in message["effects"].items()
    }
    checks: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in message["checks"].items()
    }
    if checks["accuracy"] is not None:
        checks["accuracy"] = Bound(**checks["accuracy"])
    names = ", ".join(role.strip("=") for role in (*_FUNCTIONS, "alternatives"))
    sent = unpickled(message["functions"], names) if message["functions"] else {}
    reference, put_back, pre, post, do_bench = (sent.get(role) for role in _FUNCTIONS)
    return ChildSetup(
        Effects(**effects),
        CheckOptions(**checks, reference=reference, restore=put_back),
        TimingPlan(TimingPolicy(**message["policy"]), message["seed"], do_bench),
        TunerHooks(pre, post),
        {
            role.removeprefix(_ALTERNATIVE).removesuffix("="): function
            for role, function in sent.items()
            if role not in _FUNCTIONS
        },
    )


def describe_config(problem: Problem, config: Config) -> dict[str, Any]:
    """Describe a config without its hook, and the values its launch adds to the problem's.

    Raises:
        InputError: a heuristic's value cannot be sent; names it.
    """
    values = launch_values(problem, config)
    extra = {n: v for n, v in values.items() if v is not problem.arguments.get(n, problem)}
    constexprs = frozenset(constexpr_names(problem) | config.kwargs.keys())
    return {
        "kwargs": describe_all(Packing(), config.kwargs, constexprs),
        "options": [getattr(config, name) for name in _OPTIONS],
        "ir_override": config.ir_override,
        "alternative": config.alternative,
        "parameters": [p.name for p in jit_function(problem.kernel).params],
        "values": describe_all(Packing(), extra, constexprs),
    }


def config_of(message: Mapping[str, Any], pre_hook: Callable[..., Any] | None) -> Config:
    """Restore a config from its description."""
    kwargs = {name: restore(value, ()) for name, value in message["kwargs"].items()}
    num_warps, num_stages, num_ctas, maxnreg = message["options"]
    options = (num_warps, num_stages, num_ctas, maxnreg)
    config = Config(kwargs, *options, pre_hook, message["ir_override"])
    return config.with_alternative(message["alternative"])


def extra_values(message: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the values that a config's launch adds to the problem's arguments."""
    return {name: restore(value, ()) for name, value in message["values"].items()}


def describe_binary(binary: Binary) -> dict[str, Any]:
    """Describe a binary; its code as base64."""
    packing = Packing()
    return {
        **vars(binary),
        "cubin": base64.b64encode(binary.cubin).decode(),
        "signature": {n: packing.describe(kind, n) for n, kind in binary.signature.items()},
    }


def binary_of(message: Mapping[str, Any]) -> Binary:
    """Restore a binary from its description."""
    parts = {
        **message,
        "cubin": base64.b64decode(message["cubin"]),
        "machine": tuple(message["machine"]),
        "signature": {name: restore(kind, ()) for name, kind in message["signature"].items()},
        "grid": tuple(message["grid"]),
    }
    return Binary(**parts)


def slots_of(message: Any) -> ConfigSlots:
    """Restore where a config's programs write from JSON values."""
    return _SLOTS.read(ConfigSlots, message, "slots")


def describe_result(result: Measurement | Failure) -> dict[str, Any]:
    """Describe a timing or a failure, without its config."""
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


def constexpr_names(problem: Problem) -> set[str]:
    """Return the kernel's parameters whose values are part of its code."""
    return {p.name for p in jit_function(problem.kernel).params if p.is_constexpr}


def name_of(role: str, function: Callable[..., Any]) -> str:
    """Return a user's function in words: its role and its name."""
    return f"{role} {getattr(function, '__qualname__', function)}"


def _first_line(detail: str) -> str:
    return detail.strip().splitlines()[0]
