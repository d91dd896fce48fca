"""Checks that raise on bad use before anything is launched: what, its value, what was expected.

`check_configs` and `check_decorated` check the arguments of the decorator, `check_space` a
space as soon as it is made, `positional_arguments` and `check_launch` the first launch of a
key; `core.keys.reading` checks the values of the key. For programs written for
`triton.autotune` (`strict` is False) what Triton allows passes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean
from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.dtypes import dtype_of
from asmtune.core.failures import of_one_config
from asmtune.core.keys.parts import KeyPart
from asmtune.core.problem import Problem, is_count, no_launch, unknown_parameter
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.constraints import Constraint
from asmtune.core.space.space import Space
from asmtune.runtime.options import DecoratorOptions, numbers
from asmtune.triton_api.jit_functions import (
    heuristic_rules,
    is_jit_function,
    is_kernel,
    jit_function,
    plain_name,
)


def check_devices(kernel: str, arguments: Mapping[str, Any], *, strict: bool) -> None:
    """Check that the GPU can reach every tensor; if strict, that all are on the current one.

    Raises:
        InputError: a tensor of one element or more is in memory of the CPU that is not pinned,
            or where strict on another GPU than the one that Triton launches on.
    """
    device = _current_device()
    if device is None:
        return
    first: tuple[str, Any] | None = None
    for name, value in _tensors(arguments.items()):
        place = value.device
        if place.type == "cpu" and value.numel() and not value.is_pinned():
            raise InputError(
                f"kernel {kernel}: argument {name} is {shown(value)}: expected one on "
                f"cuda:{device}; move it there, {name}.to('cuda'), or pin its memory"
            )
        if place.type != "cuda" or not strict:
            continue
        first = first or (name, place)
        if place != first[1]:
            raise InputError(
                f"kernel {kernel}: argument {name} is {shown(value)}, and {first[0]} is on "
                f"{first[1]}: expected all on one device; move it, {name}.to('{first[1]}')"
            )
    if first is not None and first[1].index != device:
        raise InputError(
            f"kernel {kernel}: argument {first[0]} is on {first[1]}, and the current device "
            f"is cuda:{device}: expected the same; launch under torch.cuda.device({first[1].index})"
        )


def _tensors(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield PyTorch's tensors among arguments, in tuples, descriptors and wrappers as well.

    Other objects with a `data_ptr` have no device, and are not checked.
    """
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None:
        return
    for name, value in items:
        tensor = value if isinstance(value, kind) else getattr(value, "base", None)
        if isinstance(tensor, kind):
            yield name, tensor
        elif isinstance(value, tuple):
            yield from _tensors((f"{name}[{place}]", item) for place, item in enumerate(value))


def shown(value: Any) -> str:
    """Format a value in one short line; of a tensor no element is read."""
    if hasattr(value, "data_ptr"):
        shape, place = tuple(getattr(value, "shape", ())), getattr(value, "device", "no device")
        return f"a tensor of {dtype_of(value)} {shape} on {place}"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _current_device() -> int | None:
    """Return the index that Triton launches on; None if there is no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.current_device())


FORM: Final = '@asm_autotune(space={"BLOCK": [128, 256]}, key=["n"]) above @triton.jit'
"""The form of the decorator, for messages."""


def check_configs(configs: Any) -> None:
    """Check that `configs=` is a list of configs.

    Raises:
        InputError: it is no list, such as the kernel itself where the decorator stands without
            parentheses, or an item is no config or has values without a hash.
    """
    if is_kernel(configs) or callable(configs):
        what = "kernel" if is_kernel(configs) else type(configs).__name__
        raise ArgumentTypeError(
            f"asm_autotune: configs is the {what} {shown(plain_name(configs))}: the decorator "
            f"takes its options first, in parentheses: {FORM}"
        )
    if isinstance(configs, str | bytes | Mapping) or not isinstance(configs, Collection):
        raise ArgumentTypeError(
            f"asm_autotune: configs={shown(configs)}: expected a list of triton.Config, "
            f"or axes by name as space=: {FORM}"
        )
    for place, item in enumerate(configs):
        try:
            hash(Config.of(item))
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                f"asm_autotune: configs[{place}] is {shown(item)}: {error}; expected "
                "triton.Config or asmtune.Config with numbers, text or dtypes by name, as in "
                "@asm_autotune([triton.Config({'BLOCK': 128})], key=['n'])"
            ) from error


def check_kernel(kernel: Any, *, strict: bool = True) -> None:
    """Check that what is decorated is a kernel; if strict, that nothing tunes it already.

    Raises:
        InputError: it is no Triton kernel, or an autotuner is among its decorators.
    """
    if not is_kernel(kernel):
        name = shown(getattr(kernel, "__name__", kernel))
        raise ArgumentTypeError(
            f"asm_autotune: {name} is not a Triton kernel: put @triton.jit below @asm_autotune: "
            f"{FORM}"
        )
    layer = kernel
    while strict and not is_jit_function(layer) and hasattr(layer, "fn"):
        if hasattr(layer, "configs"):
            by = "asm_autotune" if hasattr(layer, "options") else "triton.autotune"
            raise ArgumentTypeError(
                f"asm_autotune: {plain_name(kernel)!r} has @{by} already: "
                "give a kernel one autotuner; take the other out"
            )
        layer = layer.fn


def check_decorated(function: Any, options: DecoratorOptions) -> None:
    """Check that options which name arguments name parameters of the kernel.

    Raises:
        InputError: `reset_to_zero` or `restore_value` names what is no parameter, or an axis of
            the space is neither a parameter nor an option of a launch.
    """
    arg_names = function.arg_names
    for option in ("reset_to_zero", "restore_value"):
        for name in named_arguments(options, option):
            if name not in arg_names:
                raise InputError(
                    f"asm_autotune: {option} names {name!r}, which is no parameter of "
                    f"{function.__name__}: they are {', '.join(arg_names)}"
                    f"{did_you_mean(str(name), arg_names)}"
                )
    if options.strict and not callable(options.space):
        check_space(function, Space.of(options.space))


def named_arguments(options: DecoratorOptions, option: str) -> list[str]:
    """Return the names that `reset_to_zero` or `restore_value` lists; none for a function."""
    names = options.choices.get(option) or ()
    return [] if callable(names) else list(names)


def check_space(function: Any, space: Space, parts: Sequence[KeyPart] = ()) -> None:
    """Check that a space's axes are parameters or options of a launch, and not in the key.

    Raises:
        InputError: an axis is neither a parameter of the kernel nor an option, or the key
            depends on an axis.
    """
    name, arg_names = function.__name__, function.arg_names
    for axis in _others(function, space.axes):
        if axis not in _option_names():
            raise InputError(
                f"asm_autotune: axis {axis!r} of the space is no parameter of {name} "
                f"({', '.join(arg_names)}) and no option ({', '.join(OPTION_AXES)})"
                f"{did_you_mean(axis, (*arg_names, *OPTION_AXES))}"
            )
    for part in parts:
        for need in part.needs:
            if need in space.axes:
                raise InputError(
                    f"asm_autotune: key {part.name} depends on {need}, which is an axis of the "
                    f"space of {name}: a key is of arguments; take {need} out of one of them"
                )


def launch_options(function: Any, arguments: Mapping[str, Any], space: Space) -> frozenset[str]:
    """Return names of a launch and its configs that are no parameters, for `Problem.options`."""
    return frozenset((*arguments, *space.axes)).difference(function.arg_names)


def positional_arguments(
    kernel: str, arg_names: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return by name the arguments of a launch that were given by position.

    Raises:
        InputError: there are more than parameters, or one is among the keywords as well.
    """
    if len(args) > len(arg_names):
        raise InputError(
            f"kernel {kernel}: {len(args)} arguments, the last is {shown(args[-1])}: expected "
            f"{len(arg_names)} at most: {', '.join(arg_names)}"
        )
    arguments = dict(zip(arg_names, args, strict=False))
    twice = next((name for name in keywords if name in arguments), None)
    if twice is not None:
        raise InputError(
            f"kernel {kernel}: argument {twice} is given by position, {shown(arguments[twice])}, "
            f"and by name, {shown(keywords[twice])}: give it once"
        )
    return arguments


def check_launch(
    kernel: Any, arguments: Mapping[str, Any], grid: Any, space: Space, *, strict: bool = True
) -> Space | None:
    """Check a launch; return its space, led by a config that can be launched; None if empty.

    A launch is empty if each config has a grid of no programs. Where the default cannot be
    launched and another config can, that one leads. Nothing is read from a tensor, so that those
    without memory (meta, fake) pass too.

    Raises:
        InputError: an argument is missing, unknown, set by the configs as well, or where the
            GPU cannot reach it; or no config has a grid that can be launched.
    """
    function = jit_function(kernel)
    options = launch_options(function, arguments, space)
    problem = Problem(kernel, arguments, grid, options=options)
    config = space.first(**numbers(arguments))
    _check_unset(problem.name, arguments, config, space)
    for name in _others(function, arguments):
        if name not in _option_names():
            raise unknown_parameter(problem.name, name, function.arg_names, _option_names())
    check_devices(problem.name, arguments, strict=strict)
    leader = _first_launched(problem, config, space, strict=strict)
    if leader is None:
        return None
    return space if leader == config else remade(space, leader, space.constraints)


def remade(space: Space, default: Config | None, constraints: Iterable[Constraint] = ()) -> Space:
    """Make the same space with another default, and with these constraints alone."""
    if not space.is_listed:
        return Space(space.axes, constraints, default)
    made = Space.from_configs(space.listed, default)
    for constraint in constraints:
        made = made.where(constraint.name, constraint.predicate)
    return made


def is_empty_launch(
    kernel: Any, arguments: Mapping[str, Any], grid: Any, space: Space, *, strict: bool = True
) -> bool:
    """Return whether no config of a space has a program to launch, whatever its constraints say.

    They, and functions that prune, may have no answer for a size of 0.
    """
    options = launch_options(jit_function(kernel), arguments, space)
    problem = Problem(kernel, arguments, grid, options=options)
    relaxed = remade(space, space.default) if space.constraints else space
    try:
        return _first_launched(problem, relaxed.first(), relaxed, strict=strict) is None
    except InputError:
        return False


_MOST_ASKED: Final = 1024
"""Configs whose grids are looked at for one that can be launched: 10 ms."""


def _first_launched(
    problem: Problem, default: Config, space: Space, *, strict: bool
) -> Config | None:
    """Return the first config that can be launched, the default first; None if grids are empty.

    Raises:
        ProblemError: none can be launched, though not all grids are empty.
    """
    failures = []
    for config in _asked(problem, default, space):
        asked = partial(_launches, problem, config, strict=strict)
        launches = of_one_config("rules", "grid", asked)
        # A hook, which is called later, may set what the grid depends on.
        if launches is True or (isinstance(launches, Failure) and config.pre_hook is not None):
            return config
        if isinstance(launches, Failure):
            failures.append(launches)
    if failures:
        raise no_launch(failures)
    return None


def _asked(problem: Problem, default: Config, space: Space) -> Iterator[Config]:
    yield default
    if callable(problem.grid) or any(heuristic_rules(problem.kernel)):
        others = islice(space.configs(**numbers(problem.arguments)), _MOST_ASKED)
        yield from (config for config in others if config != default)


def _launches(problem: Problem, config: Config, *, strict: bool) -> bool:
    """Return whether a launch with a config has programs; raise if it cannot be launched."""
    parameters = jit_function(problem.kernel).arg_names
    # As Triton has it: parameters alone, without the options that `bind` gives.
    seen = {name: v for name, v in problem.bind(config).items() if name in parameters}
    return has_programs(problem, config, problem.grid_at(config, seen), strict=strict)


def has_programs(problem: Problem, config: Config, grid: Any, *, strict: bool) -> bool:
    """Return whether a grid launches anything; raise if it cannot be launched.

    As with Triton, a grid of which an axis is 0 launches nothing.
    """
    if not isinstance(grid, tuple | list):
        raise InputError(
            f"kernel {problem.name}: grid {shown(grid)} at {config}: expected a tuple of one to "
            "three whole numbers above 0, such as (triton.cdiv(n, BLOCK),)"
        )
    if not strict and grid and all(isinstance(size, int) for size in grid):
        grid = [int(size) for size in grid[:3]]  # Triton reads no more, and takes True for 1
        if math.prod(grid) <= 0:
            return False
    if 1 <= len(grid) <= 3 and all(map(is_count, grid)) and 0 in grid:
        return False
    problem.grid_sizes(grid, config)
    return True


def _check_unset(kernel: str, arguments: Mapping[str, Any], config: Config, space: Space) -> None:
    chosen = config.all_kwargs()
    for name, value in arguments.items():
        if name in chosen or name in space.axes:
            options = space.axes.get(name, (chosen.get(name),))
            raise InputError(
                f"kernel {kernel}: {name}={shown(value)} is given to the launch, and the configs "
                f"set {name} to {', '.join(map(str, options))}; take it out of the launch"
            )


def _others(function: Any, names: Iterable[str]) -> Iterator[str]:
    """Yield names that are neither parameters nor options that asmtune knows."""
    return (n for n in names if n not in function.arg_names and n not in OPTION_AXES)


def _option_names() -> frozenset[str]:
    """Return Triton's options; needed only for a name that asmtune does not know."""
    from asmtune.triton_api.compiler import option_names

    return option_names()
