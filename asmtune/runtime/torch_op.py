"""`asmtune::launch`: the operator by which a compiled program launches as an eager one does.

TorchInductor compiles users' kernels itself. Of a config it hands Triton the values, `num_warps`
and `num_stages`, and it has one config for all sizes of a dynamic dimension. Where that would lose
something, a launch is traced with several configs: those that its keys may have, and last the one
to go on with where the operator cannot be used. PyTorch evaluates the grid for each of them. Then
the operator takes the place of the higher-order operator that PyTorch has made: it names the
tensors that the kernel writes, and at run time launches by the kernel's own launcher, with the
config of the key that it meets and the grid of that config.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import triton

from asmtune.base.errors import InputError
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.problem import is_launchable
from asmtune.runtime.events import LAUNCHING_MODULES
from asmtune.runtime.launch.planning import LaunchWarning
from asmtune.triton_api.compiled_graphs import (
    Operands,
    is_exporting,
    take_launches,
    written_tensors,
)

if TYPE_CHECKING:
    from asmtune.runtime.calls import KernelCall
    from asmtune.runtime.choosing import Chooser
    from asmtune.runtime.misses.lookups import Choice

# By name: the check of branches of `torch.cond` and its kin fails at written lists by position. One
# by position: Inductor's C++ wrapper wants any.
_SCHEMA: Final = (
    "(str site, *, Tensor(a!)[] written, Tensor[] read, SymInt[] numbers, SymInt[] grids) -> ()"
)


@dataclass(frozen=True)
class LaunchOrigin:
    """A launch as it stands in the program: an `AsmAutotuner`, and names given by position."""

    kernel: Any
    positional: tuple[str, ...]


class TracedConfig(triton.Config):  # type: ignore[misc] # Triton's has no types
    """A `triton.Config` that knows its launch, also after the copies that PyTorch makes.

    Attributes:
        config: as it was chosen, without what PyTorch and `@triton.heuristics` add to `kwargs`.
    """

    def __init__(self, config: Config, origin: LaunchOrigin, kwargs: dict[str, Any]) -> None:
        # Without the hook, which PyTorch refuses: the operator's launch calls it.
        options = (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg)
        super().__init__(kwargs, *options)
        self.config, self.origin = config, origin

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedConfig:
        copied = TracedConfig.__new__(TracedConfig)
        copied.__dict__.update(vars(self), kwargs=dict(self.kwargs))
        return copied


@dataclass(frozen=True)
class LaunchSite:
    """A launch of a graph.

    Attributes:
        origin: the launch in the program.
        names: of the kernel's arguments, in the order of the operator's.
        constants: the kernel's other arguments, by name.
        configs: in the order of the grids; the first is for keys that have none of them.
    """

    origin: LaunchOrigin
    names: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    configs: tuple[Config, ...]

    def launch(self, values: Sequence[Any], sizes: Sequence[int]) -> None:
        """Launch with the operator's arguments and the sizes of all grids, three a config."""
        grid = SiteGrid(self, sizes)
        if not any(all(size > 0 for size in grid.at(i)) for i in range(len(self.configs))):
            return
        named = {**dict(self.constants), **dict(zip(self.names, values, strict=True))}
        args = [named.pop(name) for name in self.origin.positional]
        self.origin.kernel[grid](*args, **named)


@dataclass(frozen=True)
class SiteGrid:
    """The grid of a launch of a graph, where each of its configs has one."""

    site: LaunchSite
    sizes: Sequence[int]

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return the grid of a config, of which `values` holds the values.

        None, with which a planned launch takes the slow path, where the graph has no such config:
        it was tuned after the graph was made.
        """
        for index, config in enumerate(self.site.configs):
            # Triton tells no values of options that are no parameters; no grid depends on them.
            if all(values.get(name, value) == value for name, value in config.kwargs.items()):
                return self.at(index)
        return None

    def at(self, index: int) -> tuple[int, ...]:
        """Return the grid of one of the configs."""
        return (*self.sizes[3 * index : 3 * index + 3],)

    def choose(self, chooser: Chooser, call: KernelCall) -> Choice:
        """Return the config of a launch's key if it has a grid here, else one to go on with.

        That is the first config with a grid that can be launched.
        """
        configs = self.site.configs
        known = [config.kwargs for config in configs]
        able = (c for i, c in enumerate(configs) if is_launchable(self.at(i)))
        default = next(able, configs[0])
        return chooser.choose_traced(call, default, lambda config: config.kwargs in known)


_sites: Final[dict[str, LaunchSite]] = {}


def site_name(site: LaunchSite) -> str:
    """Return the name of a launch of this process's graphs; an equal one has the same.

    A graph that PyTorch's caches keep for other processes holds the name. It is traced again
    there, before it is looked up, so that the name is known. Where it is not traced again, the
    digest keeps the name from being that of another launch.
    """
    text = repr((site.origin.positional, site.names, site.constants, site.configs))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    kernel = site.origin.kernel.__name__
    names = (f"{kernel}:{digest}:{number}" for number in itertools.count())
    return next(name for name in names if _sites.setdefault(name, site) == site)


def _launch(
    site: str, written: list[Any], read: list[Any], numbers: list[int], grids: list[int]
) -> None:
    """Launch as the operator does.

    Raises:
        InputError: the graph is another process's.
    """
    import torch

    known = _sites.get(site)
    if known is None:
        raise InputError(
            f"launch {site!r} of a compiled program: it was traced in another process; "
            "call torch.compile in this one"
        )
    with torch.cuda.device(written[0].get_device()):  # -1 on a host: changes none
        known.launch([*written, *read, *numbers], grids)


@functools.cache
def _operator() -> tuple[Any, Any]:
    """Register the operator; return its library, with which it would go, and it."""
    import torch

    untyped: Any = torch.library
    library = untyped.Library("asmtune", "FRAGMENT")
    # Strides are among the kernel's arguments, as they were when it was traced.
    tags = (torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)
    library.define(f"launch{_SCHEMA}", tags=tags)
    library.impl("launch", _launch, "CompositeExplicitAutograd")
    # As PyTorch's own operator of users' kernels: gradients are the business of who launches.
    library.impl("launch", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("asmtune::launch", lambda *_, **__: None, lib=library)
    return library, torch.ops.asmtune.launch.default


class OperatorTaker:
    """Has launches whose configs know their origin traced as the operator."""

    @staticmethod
    def owns(kernel: Any) -> bool:
        """Return whether all configs of an autotuner know their launch."""
        configs = getattr(kernel, "configs", ())
        return bool(configs) and all(isinstance(config, TracedConfig) for config in configs)

    @staticmethod
    def operator() -> Any:
        """Return the operator."""
        return _operator()[1]

    @staticmethod
    def operands(
        kernel: Any, examples: Mapping[str, Any], descriptors: Mapping[str, Any]
    ) -> Operands | None:
        """Return what makes the operator's arguments; None if the launch cannot be one."""
        launch = _TracedLaunch(kernel, examples, descriptors)
        return launch.operands if launch.refusal is None else None


def can_trace_operator() -> bool:
    """Prepare the loaded parts of PyTorch's compiler; return False if they cannot be."""
    return take_launches(OperatorTaker())


class _TracedLaunch:
    """A launch that PyTorch has traced, with a tensor or a number for each of its arguments.

    Attributes:
        refusal: why it cannot be traced as the operator, or None.
    """

    def __init__(self, kernel: Any, examples: Mapping[str, Any], descriptors: Any) -> None:
        import torch

        self._kernel, self._configs = kernel, kernel.configs
        symbolic = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        self._constants = {n: v for n, v in examples.items() if not isinstance(v, symbolic)}
        tensors = {n: v for n, v in examples.items() if isinstance(v, torch.Tensor)}
        numbers = [n for n, value in examples.items() if isinstance(value, torch.SymInt)]
        others = [n for n in examples if n not in {*self._constants, *tensors, *numbers}]
        reason = self._refusal(others, descriptors)
        written = set() if reason else self._written(examples, tensors)
        self._groups = (
            [n for n in tensors if n in written],
            [n for n in tensors if n not in written],
            numbers,
        )
        self.refusal = reason or (None if written else "no argument is known to be written")
        if self.refusal is not None:
            first, last = self._configs[0], self._configs[-1]
            warn_of_loss(first.origin.kernel, first.config, last.config, self.refusal)

    def _written(self, examples: Mapping[str, Any], tensors: Mapping[str, Any]) -> set[str]:
        """Return the tensors that the kernel writes with any of the configs."""
        known = {*tensors, *self._constants}
        symbols = {name: value for name, value in examples.items() if name not in known}
        values = {repr(config.kwargs): config.kwargs for config in self._configs}.values()
        constants = [{**self._constants, **chosen} for chosen in values]
        return written_tensors(self._kernel, tensors, symbols, constants)

    @staticmethod
    def _refusal(others: Sequence[str], descriptors: Mapping[str, Any]) -> str | None:
        if is_exporting():
            return "an exported program runs without asmtune"
        if descriptors:
            return f"{next(iter(descriptors))} is a tensor descriptor"
        if others:
            return f"{others[0]} is a number with a fraction that may change"
        return None

    def operands(self, values: Mapping[str, Any], grids: Sequence[Any]) -> dict[str, Any]:
        """Return the operator's arguments by name, of the traced arguments of the launch."""
        site = LaunchSite(
            self._configs[0].origin,
            (*itertools.chain(*self._groups),),
            (*self._constants.items(),),
            # An edited file is that of one key.
            tuple(traced.config.with_override(None) for traced in self._configs),
        )
        lists = ([values[name] for name in group] for group in self._groups)
        operands: dict[str, Any] = dict(zip(("written", "read", "numbers"), lists, strict=True))
        sizes = [size for grid in grids for size in grid]
        return {**operands, "grids": sizes, "site": site_name(site)}


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
