"""Gives `torch.compile` the config of an autotuned kernel for the launch that it traces.

PyTorch's compiler knows users' kernels by Triton's `Autotuner` and goes on with an autotuner
of its own over that one's configs, which Inductor compiles and times all when the graph first
runs: on the real arguments, in-place kernels included. But where a kernel has an
`early_config_prune`, PyTorch first asks it for the configs of this very launch, and keeps what
it answers for the graph. asmtune answers with one config: the tuned one for the traced
arguments where a store knows their key, else an untuned one, with one warning. Where Inductor would
lose an option of it, it answers with the fastest timed config that has none of these.

One config, so that nothing is timed in the graph (PyTorch drops `restore_value` and
`reset_to_zero` once a kernel was pruned), and asked at this place, so that grid, TTIR and
launch agree on it: what `configs` gave could differ from one look to the next.

Read in PyTorch 2.11 and 2.13: `torch/_higher_order_ops/triton_kernel_wrap.py` and
`torch/_inductor/runtime/triton_heuristics.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asmtune.core.config import Config
from asmtune.runtime.calls import as_triton
from asmtune.runtime.events import Notices, whole_record
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.options import Arguments
from asmtune.store.codec import config_text
from asmtune.triton_api.compiled_graphs import (
    call_when_traced,
    no_dispatch,
    size_functions,
)

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest

PruneHook = Callable[..., list[Any]]
Described = tuple[tuple[str, Any, Any], ...]
"""Arguments as constants: name, a tensor's facts, and a value."""

Traced = tuple[Config, tuple[tuple[str, Any], ...]]
"""A config, and computed values."""

_UNKNOWN_SIZE: Final = 8192  # what Inductor takes for a size that depends on the data


@dataclass(frozen=True, kw_only=True)
class TracedLaunches:
    """Functions that find a kernel's configs while PyTorch traces its launches.

    Attributes:
        choose: from a launch's arguments, given by position and by name, both by name (meta
            tensors in the place of tensors, None for what cannot be described), to its request
            and a config; looks up and never compiles or tunes. Called with the traced tensors'
            device as the current one.
        listed: the configs among which Inductor may choose where the key is not tuned, as it
            does under `triton.autotune`; None for the choice's config alone. Only for kernels
            that may run many times on their own arguments.
        rules: names and functions of the `@triton.heuristics` below, outermost first.
        notices: warn of keys that are not tuned.
    """

    choose: Callable[[Arguments, Arguments], tuple[TuningRequest, Choice]]
    listed: Callable[[Arguments, Arguments], Sequence[Config]] | None = None
    rules: tuple[tuple[str, Callable[..., Any]], ...] = ()
    notices: Notices = field(default_factory=Notices)


def prune_hook(launches: TracedLaunches) -> PruneHook:
    """Make the `early_config_prune` of an autotuned kernel, for PyTorch's compiler.

    Dynamo runs its body symbolically, so that it holds what Dynamo understands and no more. It
    adds no guard on a size: for a dynamic one it takes the hint, and another size is no
    reason to compile again.
    """
    hint, static = size_functions()
    book = ConfigBook()
    rules = launches.rules

    def choose(placed: Described, named: Described) -> str:
        configs = _configs(launches, placed, named)
        return " ".join(book.name((config, ())) for config in configs)

    def complete(name: str, added: tuple[tuple[str, Any], ...]) -> str:
        return book.name((book.traced[name][0], added))

    def values(name: str) -> tuple[tuple[str, Any], ...]:
        return (*book.traced[name][0].kwargs.items(),)

    functions: tuple[Callable[..., Any], ...] = (choose, complete, values)
    for function in functions:
        call_when_traced(function)

    def prune(_configs: list[Any], named_args: dict[str, Any], **kwargs: Any) -> list[Any]:
        arguments = {**named_args, **kwargs}
        chosen = []
        placed, named = _described(named_args, hint, static), _described(kwargs, hint, static)
        for config_name in choose(placed, named).split(" "):
            added: dict[str, Any] = {}
            for name, rule in rules:
                # Not from the book: for `dynamic=True` the values of an attribute may change.
                added[name] = rule({**arguments, **dict(values(config_name)), **added})
            if rules:
                config_name = complete(config_name, tuple(added.items()))
            # By an attribute each: Dynamo guards what it reads, and the book grows.
            chosen.append(getattr(book, config_name))
        return chosen

    return prune


def _described(
    arguments: dict[str, Any], hint: Callable[[Any, int], int], static: Callable[[Any], bool]
) -> Described:
    """Describe arguments as constants; Dynamo runs this symbolically as well."""
    import torch

    described: list[tuple[str, Any, Any]] = []
    for name, value in arguments.items():
        facts: Any = None
        constant: Any = None
        if isinstance(value, torch.Tensor):
            shape = tuple([hint(size, _UNKNOWN_SIZE) for size in value.shape])
            strides = tuple([hint(stride, _UNKNOWN_SIZE) for stride in value.stride()])
            facts = (shape, strides, value.dtype, value.device.type, value.device.index)
        elif isinstance(value, (bool, str)):
            constant = value
        elif isinstance(value, (float, torch.SymFloat)):
            # PyTorch has no hint of one that may change. A global may change as well.
            constant = value if static(value) else 1.0
        elif isinstance(value, (int, torch.SymInt)):
            constant = hint(value, _UNKNOWN_SIZE)
        described.append((name, facts, constant))
    return tuple(described)


class ConfigBook:
    """Triton's configs, each under an attribute of its own that never changes."""

    def __init__(self) -> None:
        self.traced: dict[str, Traced] = {}
        self._names: dict[Traced, str] = {}
        self._lock = threading.Lock()

    def name(self, traced: Traced) -> str:
        """Return the name of the attribute that holds a config."""
        with self._lock:
            if traced not in self._names:
                name, (config, computed) = f"config_{len(self._names)}", traced
                kwargs = {**config.kwargs, **dict(computed)}
                whole = {**vars(config), "kwargs": kwargs, "ir_override": None}
                setattr(self, name, as_triton(Config(**whole)))
                self.traced[name], self._names[traced] = traced, name
            return self._names[traced]


def inductor_config(request: TuningRequest, choice: Choice) -> Config:
    """Return the best config for Inductor, which drops `maxnreg`, `num_ctas` and `ir_override`.

    Where the choice has one of them, the fastest of those timed for the key that has none and is
    of the space; without such a one, the choice without them.
    """
    config = choice.config
    if _is_plain(config):
        return config
    record = choice.record or whole_record(request.key, request.expected)
    # A program may have put another config into the cache.
    same = record is not None and record.winner.plain.to_dict() == config.to_dict()
    timed = [m for m in record.config_timings if _is_plain(m.config)] if record and same else []
    own = {config_text(one): one for one in request.configs()} if timed else {}
    timed = [m for m in timed if config_text(m.config) in own]
    if timed and config.pre_hook is None:
        return own[config_text(min(timed, key=lambda measured: measured.median_us).config)]
    return Config(config.kwargs, config.num_warps, config.num_stages, pre_hook=config.pre_hook)


def _configs(launches: TracedLaunches, placed: Described, named: Described) -> Sequence[Config]:
    import torch

    arguments = _stand_ins(placed), _stand_ins(named)
    with torch.cuda.device(_device((*placed, *named))):
        request, choice = launches.choose(*arguments)
        if not choice.final and launches.listed is not None:
            return launches.listed(*arguments)
    plain = inductor_config(request, choice)
    if not choice.final:
        launches.notices.untuned(request.key, plain, "compile")
    elif plain != choice.config:
        launches.notices.untaken(request.key, plain, choice.config)
    return [plain]


def _stand_ins(described: Described) -> dict[str, Any]:
    import torch

    arguments: dict[str, Any] = {}
    # Outside all modes: a meta tensor must not become a node of the graph that is traced.
    with no_dispatch():
        for name, facts, value in described:
            arguments[name] = value
            if facts is not None:
                shape, strides, dtype = facts[:3]
                arguments[name] = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return arguments


def _device(described: Described) -> int:
    """Return the index of the first tensor's CUDA device; -1, which changes none, without one."""
    on_gpu = (facts[4] for _, facts, *_ in described if facts is not None and facts[3] == "cuda")
    index = next(on_gpu, None)
    return -1 if index is None else int(index)


def _is_plain(config: Config) -> bool:
    return config.maxnreg is None and config.num_ctas == 1 and config.ir_override is None
