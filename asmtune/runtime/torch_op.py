"""`asmtune::launch`: the operator by which a compiled program launches as an eager one does.

TorchInductor compiles users' kernels itself. Of a config it hands Triton the values, `num_warps`
and `num_stages`, and it has one config for all sizes of a dynamic dimension. Where that would lose
something, a launch is traced with several configs: those that its keys may have, and last the one
to go on with where the operator cannot be used. PyTorch evaluates the grid for each of them. Then
the operator takes the place of the higher-order operator that PyTorch has made: it names the
tensors that the kernel writes, and at run time launches by the kernel's own launcher, with the
config of the key that it meets and the grid of that config.

Read in PyTorch 2.11 and 2.13: `TritonHOPifier.call_HOP` of
`torch/_higher_order_ops/triton_kernel_wrap.py`, and `torch/_inductor/runtime/triton_heuristics.py`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import triton

from asmtune.base.errors import InputError
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.runtime.events import LAUNCHING_MODULES
from asmtune.runtime.launch.planning import LaunchWarning

if TYPE_CHECKING:
    from asmtune.runtime.calls import KernelCall
    from asmtune.runtime.choosing import Chooser
    from asmtune.runtime.misses.lookups import Choice

_SCHEMA: Final = (
    "(Tensor(a!)[] written, Tensor[] read, SymInt[] numbers, SymInt[] grids, str site) -> ()"
)
_CALL_HOP: Final = ["self", "variable", "grids", "combined_args", "tx"]
_MARK: Final = "corrected_by_asmtune"
_ABSENT: Final = object()


@dataclass(frozen=True)
class LaunchOrigin:
    """A launch as it stands in the program.

    Attributes:
        kernel: the `AsmAutotuner`.
        positional: names of the arguments that are given by position.
        computed: values of a config that `@triton.heuristics` compute.
    """

    kernel: Any
    positional: tuple[str, ...]
    computed: tuple[str, ...]


class TracedConfig(triton.Config):  # type: ignore[misc] # Triton's has no types
    """A `triton.Config` that knows its launch, also after the copies that PyTorch makes."""

    def __init__(self, config: Config, origin: LaunchOrigin) -> None:
        options = (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg)
        super().__init__(dict(config.kwargs), *options)
        self.origin = origin

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedConfig:
        copied = TracedConfig(Config.of(self), self.origin)
        for name, value in vars(self).items():  # PyTorch sets options in its copies
            setattr(copied, name, dict(value) if name == "kwargs" else value)
        return copied


@dataclass(frozen=True)
class LaunchSite:
    """A launch of a graph.

    Attributes:
        origin: the launch in the program.
        values: how the operator's arguments become the kernel's: by name the operator's list
            and the place in it, or -1 and a constant.
        configs: in the order of the grids; the first is for keys that have none of them.
    """

    origin: LaunchOrigin
    values: tuple[tuple[str, int, Any], ...]
    configs: tuple[Config, ...]

    def launch(self, lists: Sequence[Sequence[Any]], sizes: Sequence[int]) -> None:
        """Launch with the operator's lists and the sizes of all grids, three a config."""
        grid = SiteGrid(self, sizes)
        if not any(grid.has_programs(index) for index in range(len(self.configs))):
            return
        values = {name: lists[at][value] if at >= 0 else value for name, at, value in self.values}
        args = [values.pop(name) for name in self.origin.positional if name in values]
        kernel = self.origin.kernel
        try:
            kernel[grid](*args, **values)
        except _OtherConfigError:  # tuned after the graph was made
            chosen = self.configs[0].all_kwargs()
            kernel.fn.run(*args, grid=grid.at(0), warmup=False, **values, **chosen)


class _OtherConfigError(Exception):
    """The config of a planned launch is none of those that the graph has a grid of."""


@dataclass(frozen=True)
class SiteGrid:
    """The grid of a launch of a graph, where each of its configs has one."""

    site: LaunchSite
    sizes: Sequence[int]

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the grid of a config, of which `values` holds the values."""
        index = self.index(values)
        if index is None:
            raise _OtherConfigError
        return self.at(index)

    def index(self, values: Mapping[str, Any]) -> int | None:
        """Return the place of the config of these values; None if it is none of the graph's."""
        for index, config in enumerate(self.site.configs):
            if all(values.get(name, _ABSENT) == value for name, value in config.kwargs.items()):
                return index
        return None

    def at(self, index: int) -> tuple[int, ...]:
        """Return the grid of one of the configs."""
        return (*self.sizes[3 * index : 3 * index + 3],)

    def has_programs(self, index: int) -> bool:
        """Return whether the grid of one of the configs launches anything."""
        return all(size > 0 for size in self.at(index))

    def choose(self, chooser: Chooser, call: KernelCall) -> Choice:
        """Return the config of a launch's key if it has a grid here, else the first."""
        return chooser.choose_traced(
            call, self.site.configs[0], lambda config: self.index(config.kwargs) is not None
        )


@dataclass
class _Sites:
    """The launches of this process's graphs, by name; an equal one keeps its name.

    A graph that PyTorch's caches keep for other processes holds the name. It is traced again
    there, before it is looked up, so that the name is known.
    """

    by_name: dict[str, LaunchSite] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def name(self, site: LaunchSite) -> str:
        """Return the name of a launch."""
        with self.lock:
            kernel = site.origin.kernel.__name__
            for number in itertools.count():
                name = f"{kernel}:{number}"
                known = self.by_name.setdefault(name, site)
                # 1, 1.0 and True are equal, and other constants to Triton.
                if known == site and repr(known.values) == repr(site.values):
                    return name
        raise AssertionError

    def launch(
        self, written: list[Any], read: list[Any], numbers: list[int], grids: list[int], name: str
    ) -> None:
        """Launch as the operator does.

        Raises:
            InputError: the graph is another process's.
        """
        import torch

        site = self.by_name.get(name)
        if site is None:
            raise InputError(
                f"launch {name!r} of a compiled program: it was traced in another process; "
                "call torch.compile in this one"
            )
        with torch.cuda.device(written[0].get_device()):  # -1 on a host: changes none
            site.launch((written, read, numbers), grids)


_SITES: Final = _Sites()


@functools.cache
def _operator() -> tuple[Any, Any]:
    """Register the operator; return its library, with which it would go, and it."""
    import torch

    untyped: Any = torch.library
    library = untyped.Library("asmtune", "FRAGMENT")
    # Strides are among the kernel's arguments, as they were when it was traced.
    tags = (torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)
    library.define(f"launch{_SCHEMA}", tags=tags)
    library.impl("launch", _SITES.launch, "CompositeExplicitAutograd")
    # As PyTorch's own operator of users' kernels: gradients are the business of who launches.
    library.impl("launch", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("asmtune::launch", lambda *_: None, lib=library)
    return library, torch.ops.asmtune.launch.default


@functools.cache
def carried_options() -> frozenset[str]:
    """Return which of `num_ctas` and `maxnreg` the installed Inductor hands on to Triton.

    Its own functions are asked with a config; one that works otherwise carries none.
    """
    from torch._inductor.runtime import triton_heuristics as inductor

    wanted = {"num_ctas": 2, "maxnreg": 64}
    try:
        sent = inductor.config_from_dict(inductor.config_to_dict(triton.Config({}, **wanted)))
        tuner: Any = object.__new__(inductor.CachingAutotuner)
        tuner.device_props = SimpleNamespace(type="cuda", cc=90)
        tuner.inductor_meta, tuner.fn = {}, SimpleNamespace(params=(), constexprs=(), arg_names=())
        tuner.triton_meta = {"constants": {}, "signature": {}}
        options = tuner._create_compile_options(sent, tuner._create_compile_meta(sent))
    except (AttributeError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name, value in wanted.items() if options.get(name) == value)


def can_trace_operator() -> bool:
    """Prepare the loaded parts of PyTorch's compiler; return False if they cannot be."""
    from torch._higher_order_ops import triton_kernel_wrap

    needed = ("get_mutated_tensors", "kernel_side_table", "triton_kernel_wrapper_mutation")
    base = getattr(triton_kernel_wrap, "TritonHOPifier", None)
    if base is None or not all(hasattr(triton_kernel_wrap, name) for name in needed):
        return False
    for kind in base.__subclasses__():
        call = getattr(kind, "call_HOP", None)
        if call is None or [*inspect.signature(call).parameters] != _CALL_HOP:
            return False
        if not hasattr(call, _MARK):
            kind.call_HOP = _with_operator(call)
    return True


def _with_operator(call: Callable[..., Any]) -> Callable[..., Any]:
    """Make the method that traces a launch: of configs that know theirs, as the operator."""

    @functools.wraps(call)
    def call_hop(self: Any, variable: Any, grids: Any, combined_args: Any, tx: Any) -> Any:
        configs = getattr(variable.kernel, "configs", ())
        if not configs or not all(isinstance(config, TracedConfig) for config in configs):
            return call(self, variable, grids, combined_args, tx)
        if tx is not None:  # Dynamo
            result = call(self, variable, grids, combined_args, tx)
            _replace(tx.output.graph)
            return result
        launch = _TracedLaunch(variable.kernel, variable.kernel_idx, combined_args, {})
        if launch.refusal is None:
            return _operator()[1](*launch.operands(combined_args, grids))
        variable.kernel_idx = launch.single()
        return call(self, variable, grids[-1:], combined_args, tx)

    setattr(call_hop, _MARK, True)
    return call_hop


def _replace(graph: Any) -> None:
    """Replace the node that Dynamo has just made by one of the operator."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    node = next(iter(reversed(graph.nodes)))
    index, grids = node.kwargs["kernel_idx"], node.kwargs["grid"]
    nodes, descriptors = node.kwargs["kwargs"], node.kwargs["tma_descriptor_metadata"]
    constants = kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])
    examples = {name: value.meta["example_value"] for name, value in nodes.items()}
    launch = _TracedLaunch(
        kernel_side_table.get_kernel(index), index, {**constants, **examples}, descriptors
    )
    if launch.refusal is not None:
        node.kwargs = {**node.kwargs, "kernel_idx": launch.single(), "grid": [grids[-1]]}
        return
    node.target = _operator()[1]
    node.args, node.kwargs = launch.operands(nodes, grids), {}


class _TracedLaunch:
    """A launch that PyTorch has traced, with a tensor or a number for each of its arguments.

    Attributes:
        refusal: why it cannot be traced as the operator, or None.
    """

    def __init__(
        self, kernel: Any, kernel_idx: int, examples: Mapping[str, Any], descriptors: Any
    ) -> None:
        import torch
        from torch._higher_order_ops import triton_kernel_wrap as wrap

        self._kernel = kernel
        self._origin: LaunchOrigin = kernel.configs[0].origin
        graphed = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        symbolic: dict[str, Any] = {n: v for n, v in examples.items() if isinstance(v, graphed)}
        self._constants = {n: value for n, value in examples.items() if n not in symbolic}
        tensors = {n for n, value in symbolic.items() if isinstance(value, torch.Tensor)}
        constants = wrap.kernel_side_table.add_constant_args(self._constants)
        # Tensors of functionalisation have no memory that PyTorch's reading of the IR could see.
        with torch._C._DisableTorchDispatch():
            stand_ins = {n: torch.empty(2, dtype=symbolic[n].dtype) for n in tensors}
        seen = {**symbolic, **stand_ins}
        written = wrap.get_mutated_tensors(kernel_idx, constants, seen, descriptors)
        self._written = [name for name in symbolic if name in written and name in tensors]
        self._read = [name for name in symbolic if name in tensors and name not in written]
        self._numbers = [n for n, value in symbolic.items() if isinstance(value, torch.SymInt)]
        others = symbolic.keys() - tensors - {*self._numbers}
        self.refusal = self._refusal(sorted(others), descriptors)
        if self.refusal is not None:
            self._warn(self.refusal)

    def _refusal(self, others: Sequence[str], descriptors: Mapping[str, Any]) -> str | None:
        import torch

        virtualized = sys.modules.get("torch._inductor.virtualized")
        ahead = virtualized is not None and virtualized.V.aot_compilation is True
        if ahead or torch.compiler.is_exporting():
            return "an exported program runs without asmtune"
        if descriptors:
            return f"{next(iter(descriptors))} is a tensor descriptor"
        if others:
            return f"{others[0]} is a number with a fraction that may change"
        return None if self._written else "no argument is known to be written"

    def operands(self, values: Mapping[str, Any], grids: Sequence[Any]) -> tuple[Any, ...]:
        """Return the operator's arguments, of the traced arguments of the launch."""
        groups = (self._written, self._read, self._numbers)
        sizes = [size for grid in grids for size in grid]
        return (*([values[name] for name in group] for group in groups), sizes, self._name())

    def _name(self) -> str:
        groups = (self._written, self._read, self._numbers)
        places = [
            (n, at, place) for at, names in enumerate(groups) for place, n in enumerate(names)
        ]
        constants = [(name, -1, value) for name, value in self._constants.items()]
        computed = self._origin.computed
        configs = [
            Config(
                {n: value for n, value in traced.kwargs.items() if n not in computed},
                *(traced.num_warps, traced.num_stages, traced.num_ctas, traced.maxnreg),
            )
            for traced in self._kernel.configs
        ]
        return _SITES.name(LaunchSite(self._origin, (*places, *constants), (*configs,)))

    def single(self) -> int:
        """Return PyTorch's number of the kernel with its last config alone."""
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        last = self._kernel.configs[-1]
        options = (last.num_warps, last.num_stages, last.num_ctas, last.maxnreg)
        config = triton.Config(dict(last.kwargs), *options)
        return int(kernel_side_table.add_kernel(triton.autotune([config], key=[])(self._kernel.fn)))

    def _warn(self, reason: str) -> None:
        first, last = self._kernel.configs[0], self._kernel.configs[-1]
        warn_of_loss(self._origin.kernel, Config.of(first), Config.of(last), reason)


_warned: Final[set[str]] = set()


def warn_of_loss(kernel: Any, tuned: Config, used: Config, reason: str) -> None:
    """Warn once that a compiled program goes on with a config in the place of the tuned ones."""
    lost = f"{tuned}" if tuned != used else "the config of each size"
    message = (
        f"kernel {kernel.__name__} in a compiled program: {reason}; "
        f"it goes on with {used} in the place of {lost}"
    )
    if message not in _warned:
        _warned.add(message)
        stacklevel = user_stacklevel(*LAUNCHING_MODULES)
        warnings.warn(message, LaunchWarning, stacklevel=stacklevel)
