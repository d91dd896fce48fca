"""Plans: how the next launch of the same launch key passes its arguments to the driver.

The kernel's own parameters are those of its PTX; only where they are what the signature
says, each as wide, does the C part call the driver itself. Everything else goes through
Triton's launcher: descriptors, clusters, cooperative and dependent launches, scratch memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import triton.language as tl
from triton import JITFunction, knobs

from asmtune.runtime.launch.backends import Backend
from asmtune.runtime.launch.layout import MOST_PARAMETERS

_KINDS: Final = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4,
    "u1": 5, "u8": 5, "u16": 6, "u32": 7, "u64": 8, "fp32": 9, "fp64": 10,
}  # fmt: skip
"""Kinds of `native/plan.c` by Triton's names of scalar types."""
_POINTER: Final = 0
_BYTES: Final = (8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8)
"""Widths of the kinds."""
_SCRATCH: Final = ((_POINTER, -1, 0), (_POINTER, -1, 0))
"""Triton's global and profile scratch, the last two parameters of a kernel; null here."""

_ENTRY: Final = re.compile(r"\.entry\s+[\w$]+\s*\((.*?)\)", re.DOTALL)
_PARAMETER: Final = re.compile(r"\.param\s+\.[a-z]+(\d+)\b")

_EXTRAS: Final = (
    "launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size",
)  # fmt: skip

_FROZEN: Final = (bool, int, float, str, type(None), tl.dtype, JITFunction)
"""Globals that are watched by identity."""

_RUNTIME_KNOBS: Final = (
    "debug", "launch_enter_hook", "launch_exit_hook", "add_stages_inspection_hook",
)  # fmt: skip
_COMPILATION_KNOBS: Final = ("instrumentation_mode", "fpsan_homomorphic_casts")


@dataclass(frozen=True)
class TritonLaunch:
    """A launch that Triton made of a `JITFunction`: its `CompiledKernel`, and what it was given.

    `given` holds arguments by name, and `chosen` constexprs and options of the config.
    """

    function: Any
    compiled: Any
    given: Mapping[str, Any]
    chosen: Mapping[str, Any]
    config: Any


def plan_of(backend: Backend, launched: TritonLaunch, tensors: tuple[type, ...]) -> Any | None:
    """Make the plan of a launch; None where Triton must see each: hooks, instrumentation."""
    guards = _guards(backend, launched.function)
    relay = getattr(launched.compiled, "run", None)
    if guards is None or relay is None or getattr(launched.compiled, "function", None) is None:
        return None
    params = launched.function.params
    values = tuple(_value(backend, param, launched) for param in params)
    slots = _slots(launched, values, tensors)
    function = 0 if slots is None else launched.compiled.function
    metadata = launched.compiled.metadata
    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    return backend.Plan(
        function,
        metadata.num_warps * metadata.target.warp_size,
        metadata.shared,
        slots or (),
        values,
        launched.compiled,
        launched.config,
        guards,
        relay,
        (launched.compiled.function, launched.compiled.packed_metadata, None, *hooks),
        launched.config.pre_hook,
        dict(launched.chosen),
    )


def quiet_lists(function: Any) -> tuple[list[Any], ...]:
    """Return Triton's lists of launch hooks; a plan is valid while all are empty."""
    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    chains = tuple(hook.calls for hook in hooks if hasattr(hook, "calls"))
    return (*chains, function.pre_run_hooks)


def _value(backend: Backend, param: Any, launched: TritonLaunch) -> Any:
    """Return a parameter's value where the launch gives none; GIVEN where it does."""
    if param.name in launched.given:
        return backend.GIVEN
    return launched.chosen.get(param.name, param.default)


def _guards(backend: Backend, function: Any) -> tuple[tuple[dict[str, Any], str, Any], ...] | None:
    """List the globals and knobs that Triton checks at every launch, with their values now."""
    runtime, compilation = vars(knobs.runtime), vars(knobs.compilation)
    watched = [(runtime, name) for name in _RUNTIME_KNOBS]
    watched += [(compilation, name) for name in _COMPILATION_KNOBS]
    hooked = any(runtime.get(name) is not None for name in _RUNTIME_KNOBS[1:])
    if hooked or any(quiet_lists(function)):
        return None
    watched.append((vars(function), "debug"))
    for (name, _), (_, scope) in function.used_global_vals.items():
        watched.append((scope, name))
        value = scope.get(name)
        if isinstance(value, tl.constexpr):  # its value may be changed in place
            watched.append((vars(value), "value"))
            value = value.value
        if not isinstance(value, _FROZEN):
            return None  # a list, say: only a comparison as a whole would see a change
    return tuple((owner, name, owner.get(name, backend.GIVEN)) for owner, name in watched)


def _slots(
    launched: TritonLaunch, values: tuple[Any, ...], tensors: tuple[type, ...]
) -> tuple[tuple[int, int, Any], ...] | None:
    """List how each of the kernel's parameters is filled; None where Triton must do it."""
    signature = launched.compiled.src.signature
    slots: list[tuple[int, int, Any]] = []
    for index, param in enumerate(launched.function.params):
        type_name = signature.get(param.name)
        if type_name == "constexpr":
            continue
        given = param.name in launched.given
        if isinstance(type_name, str) and type_name.startswith("*"):
            if not given or type(launched.given[param.name]) not in tensors:
                return None
            slots.append((_POINTER, index, 0))
        elif isinstance(type_name, str) and type_name in _KINDS:
            slots.append((_KINDS[type_name], index if given else -1, values[index]))
        else:
            return None
    slots.extend(_SCRATCH)
    widths = [_BYTES[kind] for kind, *_ in slots]
    native = _is_plain(launched.compiled.metadata) and widths == entry_widths(launched.compiled)
    return tuple(slots) if native and len(slots) <= MOST_PARAMETERS + len(_SCRATCH) else None


def entry_widths(compiled: Any) -> list[int] | None:
    """Read the bytes of each parameter of a kernel's entry off its PTX; None if it has none."""
    entry = _ENTRY.search(compiled.asm.get("ptx", ""))
    if entry is None:
        return None
    return [int(bits) // 8 for bits in _PARAMETER.findall(entry.group(1))]


def _is_plain(metadata: Any) -> bool:
    """Return whether a launch is a grid, a block and parameters, and nothing more."""
    return (
        metadata.target.backend == "cuda"
        and metadata.num_ctas == 1
        and not any(getattr(metadata, name, 0) for name in _EXTRAS)
    )
