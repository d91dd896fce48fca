"""Host functions: Python that launches kernels, called on tensors without memory.

Each launch that it makes becomes a problem with a space. Nothing is launched: the GPU is assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, NamedTuple

from torch import is_tensor

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError, ProblemError
from asmtune.base.text import shortened
from asmtune.core.assumed_import import left_out, note_asked
from asmtune.core.assumed_tensors import AssumedTensors, UnknownValueError, on_assumed_gpu
from asmtune.core.config import OPTION_AXES
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.index_values import is_index, values_of
from asmtune.core.inputs.plain_functions import constexpr_value, usual_warps, with_grid
from asmtune.core.kernel_module import space_of
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.core.user_modules import called_function
from asmtune.ir.asm.cubin import read_cubin
from asmtune.predict.prune.flow import A_GUESS
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.offline.host_arguments import HostArguments
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.triton_api.assumed_gpu import AssumedGpu, Launch
from asmtune.triton_api.autotuners import autotuner_in, searched_configs
from asmtune.triton_api.jit_functions import (
    constexprs,
    is_gluon,
    is_kernel,
    is_source_of_kernel,
    plain_name,
)

MOST_ON_HOST: Final = 2 << 30
"""Most bytes of tensors that a function is called on where it reads their values."""


def assumed_gpu(target: Target) -> AssumedGpu:
    """Make the GPU that a target describes, as PyTorch's and Triton's functions tell it."""
    capability = divmod(target.capability, 10) if target.backend == "cuda" else (9, 4)
    properties = {
        "multi_processor_count": target.sms,
        "total_memory": target.dram_bytes,
        "L2_cache_size": target.l2_bytes,
        "warp_size": target.warp_size,
        "max_threads_per_multi_processor": target.max_warps_per_sm * target.warp_size,
        "regs_per_multiprocessor": target.registers_per_sm,
        "shared_memory_per_block": 48 * 1024,  # without opting in, on every NVIDIA GPU
        "shared_memory_per_block_optin": target.shared_bytes_per_block,
        "shared_memory_per_multiprocessor": target.shared_bytes_per_sm,
        "clock_rate": int(target.clock_hz / 1e3),
        "gcnArchName": target.arch,
    }
    limits = {
        "max_shared_mem": target.shared_bytes_per_block,
        "max_num_regs": target.registers_per_sm,
        "multiprocessor_count": target.sms,
        "warpSize": target.warp_size,
        "sm_clock_rate": int(target.clock_hz / 1e3),
        # What Triton multiplies to the bandwidth: two transfers a clock.
        "mem_clock_rate": int(target.dram_bytes_per_s / 2 / 1e3),
        "mem_bus_width": 8,
    }
    names = (name for name in target.aliases if name.startswith("NVIDIA"))  # as a driver tells it
    return AssumedGpu(
        next(names, target.name),
        target.machine,
        capability,
        properties,
        limits,
        resources=_resources,
    )


def _resources(binary: bytes) -> tuple[int, int]:
    read = read_cubin(binary)
    return read.regs_per_thread, read.frame_bytes // 4


def is_host_function(value: Any) -> bool:
    """Return whether a value is called to launch kernels: no kernel, nor the source of one."""
    if is_kernel(value) or isinstance(value, type) or not callable(value):
        return False
    return not inspect.isfunction(value) or not is_source_of_kernel(value)


class _Captured(NamedTuple):
    """Launches of a call of a host function, its tensors' mode, and why it failed."""

    launches: list[Launch]
    tensors: AssumedTensors
    failure: Exception | None = None

    @property
    def wants_values(self) -> bool:
        """Return whether the function failed as those do that read values of their tensors."""
        error = self.failure
        cause = None if error is None else error.__cause__ or error
        return isinstance(cause, UnknownValueError | NotImplementedError | RuntimeError)


def _captured(
    call: Callable[[HostArguments], Any], given: HostArguments, gpu: AssumedGpu, place: str
) -> _Captured:
    """Call a function as on a GPU, on tensors of a place."""
    launches: list[Launch] = []
    failure: Exception | None = None
    own = given if place == "meta" else given.drawn(place)
    before, gpu.launched = gpu.launched, launches.append
    try:
        with on_assumed_gpu(gpu, place) as tensors:
            for tensor, value in given.known:
                tensors.know(tensor, value)
            try:
                call(own)
            except (ProblemError, RuntimeError, *USER_CODE_ERRORS) as error:
                failure = error
            launches = [one._replace(listed=_listed(one, gpu.name)) for one in launches]
    finally:
        gpu.launched = before
    return _Captured(launches, tensors, failure)


def _listed(launch: Launch, device: str) -> list[Any] | None:
    """Return the configs that an autotuner would time at a launch; None for its whole space."""
    tuner, what = autotuner_in(launch.kernel), f"prune_configs_by of {plain_name(launch.kernel)}"
    if not isinstance(tuner, AsmAutotuner):
        return required(what, lambda: searched_configs(launch.kernel, launch.args, launch.kwargs))
    if tuner.options.prune is None:
        return None
    named = dict(zip(tuner.arg_names, launch.args, strict=False))
    request = required(what, lambda: tuner.request(named, launch.kwargs, launch.grid, device))
    return [*request.configs()]


def host_launches(
    function: Callable[..., Any],
    given: HostArguments,
    gpu: AssumedGpu,
    where: str,
    module: ModuleType | None = None,
    place: str = "meta",
) -> list[LoadedKernel]:
    """Call a function as on a GPU; return each launch that it makes, equal ones once.

    Its tensors are of the meta device, or of the `place` where the launches shall run. If it reads
    values of its tensors, it is called once more on tensors of the CPU, of random numbers. Where it
    fails after launches, as a test of their results does, these are returned. What it prints goes
    to stderr if a module of the user's is given, in which it is defined.

    Raises:
        InputError: it launches nothing.
        ProblemError: it raises; names the line, where a module is given.
    """

    def call(arguments: HostArguments) -> None:
        with nullcontext() if module is None else called_function(module, where):
            function(*arguments.args, **arguments.kwargs)

    missed = None if module is None else left_out(module)
    notes = [] if missed is None else [missed]
    made = _captured(call, given, gpu, place)
    if place == "meta" and made.wants_values and given.nbytes <= MOST_ON_HOST:
        drawn = _captured(call, given, gpu, "cpu")
        if len(drawn.launches) > len(made.launches) or drawn.failure is None:
            made = drawn
            notes.append(
                f"{A_GUESS}{where} reads values of tensors, which were drawn at random; integers "
                "are 0: name a function that makes its own index tensors"
            )
    if made.failure is not None:
        if not made.launches:
            raise made.failure if missed is None else ProblemError(f"{made.failure}; {missed}")
        notes.append(f"after its launches: {shortened(str(made.failure), 120)}")
    launches, known = made.launches, made.tensors
    if module is not None:
        note_asked(module, gpu.name)
    if not launches:
        raise InputError(
            f"{where} launched no Triton kernel for {gpu.name}; name the function that launches, "
            "or give arguments for which it does"
        )
    distinct = {_identity(launch): launch for launch in launches}
    return [_loaded(launch, known, tuple(notes)) for launch in distinct.values()]


def only_launch(function: Any, arguments: tuple[Any, ...], target: Target) -> LoadedKernel:
    """Call a function as on a target; return the one launch that it makes.

    Tensors of any device serve, and are not written to.

    Raises:
        ArgumentTypeError: the function is a kernel, or launches nothing or several kernels.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if not is_host_function(function):
        raise ArgumentTypeError(
            f"{name} is a kernel: give the Python function that launches it, with its arguments, "
            "or Problem(kernel, {'n': 4096, ...}, grid) and a space"
        )
    loaded = host_launches(function, HostArguments.of(*arguments), assumed_gpu(target), name)
    if len(loaded) > 1:
        names = ", ".join(one.problem.name for one in loaded)
        raise ArgumentTypeError(
            f"{name} makes {len(loaded)} launches, of {names}: give a function that makes one"
        )
    return loaded[0]


def _identity(launch: Launch) -> tuple[Any, ...]:
    """Return what two launches of one report have alike."""
    forms = [_form(value) for value in (*launch.args, *launch.kwargs.items())]
    grid = launch.grid if isinstance(launch.grid, tuple) else ""
    return (id(launch.kernel), repr(forms), repr(grid))


def _form(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_form, value)]
    base = getattr(value, "base", None)
    tensor = base if is_tensor(base) else value
    if not is_tensor(tensor):
        return repr(value)
    blocks = getattr(value, "block_shape", None)
    return str(tensor.dtype), tuple(tensor.shape), tensor.stride(), blocks


def _loaded(launch: Launch, known: AssumedTensors, notes: tuple[str, ...]) -> LoadedKernel:
    """Make the problem and the space of a launch."""
    kernel, listed = launch.kernel, launch.listed
    values = {**dict(zip(kernel.arg_names, launch.args, strict=False)), **launch.kwargs}
    space = space_of(kernel)
    if space is not None and listed is not None:
        space = Space.from_configs(listed)
    if space is None:
        given: dict[str, tuple[Any, ...]]
        given = {name: (values.pop(name),) for name in OPTION_AXES if name in values}
        if not is_gluon(kernel):  # whose layouts are of one number of warps
            given["num_warps"] = usual_warps(*given.get("num_warps", ()))
        space = Space(given or {"num_warps": usual_warps()[:1]})
    tables = {
        name: replace(table, source=f"the values that {plain_name(kernel)} is given")
        for name, tensor in values.items()
        if is_index(tensor) and tensor.is_meta
        if not isinstance(table := values_of(known.values(tensor), ""), str)
    }
    grid = launch.grid if callable(launch.grid) else _sizes(launch.grid)
    keys = getattr(kernel, "keys", None)
    problem = Problem.of_launch(kernel, values, grid, keys, tables)
    return LoadedKernel(problem, space, notes=notes)


def with_options(loaded: LoadedKernel, axes: Mapping[str, Any], grid: str | None) -> LoadedKernel:
    """Give a launch of a host function other axes, and a grid that follows them.

    Raises:
        InputError: an axis replaces what the function fixes, and the grid does not follow.
    """
    problem, space = loaded.problem, loaded.space
    axes = {name: [constexpr_value(value) for value in many] for name, many in axes.items()}
    fixed = [name for name in axes if name in problem.arguments]
    own = {name: value for name, value in problem.arguments.items() if name not in fixed}
    unknown = [name for name in fixed if name not in constexprs(problem.kernel)]
    if unknown:
        raise InputError(f"--axis {unknown[0]}: it is no tl.constexpr of {problem.name}")
    described = [name for name, value in own.items() if hasattr(value, "block_shape")]
    if fixed and described:
        raise InputError(
            f"--axis {fixed[0]}: the blocks of {', '.join(described)} come from the host function, "
            "and do not follow it; list configs whose pre_hook sets them"
        )
    if fixed and grid is None and not callable(problem.grid):
        raise InputError(
            f"--axis {fixed[0]}: the host function gives {problem.name} the grid {problem.grid}, "
            'which does not follow it; give it as --grid "cdiv(n, BLOCK)"'
        )
    if space.is_listed:
        space = space.replace(**axes) if axes else space
    else:
        space = Space({**space.axes, **axes}, space.constraints)
    sizes = {name: value for name, value in problem.shape.items() if name not in fixed}
    problem = replace(problem, arguments=own, shape=sizes)
    if grid is not None:
        problem = with_grid(problem, grid, space)
    return replace(loaded, problem=problem, space=space)


def _sizes(grid: Any) -> tuple[int, ...]:
    return tuple(grid) if isinstance(grid, tuple | list) else (grid,)
