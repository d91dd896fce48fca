"""A launch on the slow path, its key in memory, `kernel.cache`, and configs as Triton has them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asmtune.base.errors import ArgumentTypeError, NoGpuError
from asmtune.core.config import Config
from asmtune.core.dtypes import element_type
from asmtune.core.problem import GRID_LIMITS
from asmtune.core.records.tuned import TuneRecord
from asmtune.measure.timing.nvml import NO_GPU
from asmtune.runtime.launch.planning import kinds
from asmtune.triton_api.jit_functions import is_jit_function

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_SCALARS: Final = frozenset({bool, int, float, str, type(None)})


class KernelCall:
    """The arguments of a launch.

    `positional` holds by name those given by position, `arguments` those for parameters.
    """

    __slots__ = ("args", "arguments", "grid", "kwargs", "positional")

    def __init__(
        self,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        arg_names: Sequence[str],
    ) -> None:
        self.grid, self.args, self.kwargs = grid, args, kwargs
        self.positional = dict(zip(arg_names, args, strict=False))
        named = {name: value for name, value in kwargs.items() if name in arg_names}
        self.arguments = {**self.positional, **named}

    def tensor_classes(self) -> list[Any]:
        """List what a compiled kernel depends on of each tensor and descriptor's tensor.

        These are dtype, alignment and device.

        A grid function or a hook may give a tensor other memory, in place.
        """
        known, given = kinds(), self.arguments.values()
        tensors = (one.base if type(one) in known.descriptors else one for one in given)
        return [
            (one.dtype, one.data_ptr() % 16 == 0, one.device)
            for one in tensors
            if type(one) in known.tensors
        ]


def memory_key(call: KernelCall, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Make the key of `kernel.cache`: the parts' values, dtypes by name, and the device."""
    dtypes = [
        (name, str(dtype))
        for name, value in call.arguments.items()
        if type(value) not in _SCALARS and (dtype := element_type(value)) is not None
    ]
    dtypes.sort()  # in whatever order they were given
    return (*values.values(), *dtypes, device_index())


def is_usual_grid(grid: Any) -> bool:
    """Return whether a grid is one that any GPU launches, in under a microsecond."""
    return (
        type(grid) is tuple
        and 1 <= len(grid) <= 3
        and all(type(size) is int and 0 < size <= GRID_LIMITS[1] for size in grid)
    )


def device_index() -> int:
    """Return the index of the current CUDA device; -1 without one."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else -1


def is_capturing() -> bool:
    """Return whether the current stream is being captured into a CUDA graph."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class RankJob(NamedTuple):
    """The ranks of a job, seen from one of them."""

    store: Store
    rank: int


def current_job() -> RankJob | None:
    """Return the job that this process is a rank of; None without one, or if it has one rank.

    It imports no PyTorch: a process that has not loaded `torch.distributed` is no rank.
    """
    group: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() < 2:
        return None
    store = group._get_default_store()
    return None if store is None else RankJob(store, group.get_rank())


def _announced(method: Callable[..., Any]) -> Any:
    """Make a method of `ConfigCache` that changes the dict as `method` does, and tells it."""

    @functools.wraps(method)
    def change(self: ConfigCache, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        self.on_change()
        return result

    return change


class ConfigCache(dict[tuple[Any, ...], Any]):
    """`kernel.cache`: configs by key.

    Programs clear `triton.autotune`'s to tune anew, or put a config of theirs into it; both
    must reach the launches that are planned already.

    Attributes:
        on_change: called after each change that a program makes.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self.on_change = on_change

    def learn(self, key: tuple[Any, ...], config: Any) -> None:
        """Add a key that had no config; no planned launch has another, so no plan is dropped.

        What the background has found meanwhile stays.
        """
        super().setdefault(key, config)

    __setitem__, __delitem__ = _announced(dict.__setitem__), _announced(dict.__delitem__)
    clear, update = _announced(dict.clear), _announced(dict.update)
    pop, popitem = _announced(dict.pop), _announced(dict.popitem)


def as_triton(config: Config) -> Any:
    """Make a `triton.Config` of the same values."""
    import triton

    options = (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg)
    return triton.Config(config.kwargs, *options, config.pre_hook, config.ir_override)


def as_listed(config: Config, listed: Sequence[Any]) -> Any:
    """Return the equal one of a program's own configs, else a new `triton.Config`.

    Programs compare `best_config` with what they listed, and look it up among it.
    """
    wanted = config.all_kwargs()
    own = (one for one in listed if one is config or one.all_kwargs() == wanted)
    return next(own, None) or as_triton(config)


def timings_ms(record: TuneRecord) -> dict[Any, list[float]]:
    """Return `[median, p20, p80]` in milliseconds by `triton.Config`."""
    return {
        as_triton(timed.config): [timed.median_us / 1e3, timed.p20_us / 1e3, timed.p80_us / 1e3]
        for timed in record.config_timings
    }


@contextmanager
def needs_gpu() -> Iterator[None]:
    """Raise a `NoGpuError` in the place of Triton's error of a machine without a GPU."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("0 active drivers"):
            raise
        raise NoGpuError(f"a launch needs a CUDA GPU; {NO_GPU}") from None


@contextmanager
def named_refusal(function: Any, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Name the argument that Triton does not take, which its own error does not."""
    try:
        yield
    except (TypeError, KeyError) as error:
        from asmtune.compile.lower import refusal
        from asmtune.triton_api.compiler import Toolchain

        told = None
        if is_jit_function(function):  # for whatever machine: types are refused alike
            told = refusal(Toolchain("cuda", 90, 32), function, arguments)
        if told is None:
            raise
        raise ArgumentTypeError(f"kernel {function.__name__}: {told}") from error
