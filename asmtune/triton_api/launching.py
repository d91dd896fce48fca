"""Triton's driver, its compiled kernels, and what a launch of one needs."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import triton
import triton.language as tl
from triton import knobs
from triton.compiler.compiler import CompiledKernel
from triton.runtime import _allocation
from triton.runtime.driver import driver

from asmtune.base.child import temporary_files
from asmtune.triton_api.jit_functions import globals_read

Machine = tuple[str, int | str, int]
"""Triton's (backend, arch, warp size)."""


_RUNTIME_KNOBS: Final = (
    "debug", "launch_enter_hook", "launch_exit_hook", "add_stages_inspection_hook",
)  # fmt: skip
_COMPILATION_KNOBS: Final = ("instrumentation_mode", "fpsan_homomorphic_casts")

Watched = tuple[dict[str, Any], str]
"""A dict, and a name in it, whose value Triton compares at each launch."""


class LaunchFacts(NamedTuple):
    """Facts of a compiled kernel that its launches need.

    Attributes:
        relay: Triton's launcher, in C.
        function: the driver's handle of the loaded kernel.
        for_relay: what the relay takes after the grid and the stream, before the values.
        threads, shared: of a program: its threads, and its bytes of shared memory.
        scratch: bytes of global memory of a program, their alignment, and a function that returns
            the allocator that Triton would ask now.
        attributes: programs of a cluster, whether all programs run together, and whether the kernel
            may begin before the one ahead of it has ended.
        signature: Triton's type of each parameter.
        maps: of each descriptor in the signature what its tensor map is made with; see `TensorMap`.
            None of each where the kernel copies without the copy engine.
        ptx: its text; "" without one.
        is_native: whether a driver's launch, with these facts, is all that Triton's does.
    """

    relay: Callable[..., Any]
    function: int
    for_relay: tuple[Any, ...]
    threads: int
    shared: int
    scratch: tuple[int, int, Callable[[], Any]]
    attributes: tuple[int, bool, bool]
    signature: Mapping[str, Any]
    maps: tuple[TensorMap | None, ...]
    ptx: str
    is_native: bool


class TensorMap(NamedTuple):
    """A descriptor's tensor as the copy engine reads it: what `cuTensorMapEncodeTiled` takes.

    Attributes:
        swizzle, dtype: the driver's numbers of the swizzle and the element type.
        element_bytes: bytes of an element.
        box: extents that one copy reads.
        is_packed: whether a byte holds two elements, and the last axis counts bytes.
    """

    swizzle: int
    element_bytes: int
    dtype: int
    box: tuple[int, ...]
    is_packed: bool


_ONLY_TRITONS: Final = 16
"""Programs of a cluster that Triton must allow anew at each launch."""

DESCRIPTOR: Final = "tensordesc"
"""The prefix of a descriptor's type in a signature."""


def launch_facts(compiled: Any) -> LaunchFacts | None:
    """Return the facts of a kernel that Triton has launched; None if it was not loaded."""
    relay, function = getattr(compiled, "run", None), getattr(compiled, "function", None)
    if relay is None or function is None:
        return None
    metadata, signature = compiled.metadata, compiled.src.signature
    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    scratch = getattr(metadata, "global_scratch_size", 0) * metadata.num_ctas
    maps = _tensor_maps(metadata, signature)
    return LaunchFacts(
        relay,
        function,
        (function, compiled.packed_metadata, None, *hooks),
        metadata.num_warps * metadata.target.warp_size,
        metadata.shared,
        (scratch, getattr(metadata, "global_scratch_align", 1), _allocation._allocator.get),
        (
            metadata.num_ctas,
            bool(getattr(metadata, "launch_cooperative_grid", False)),
            bool(getattr(metadata, "launch_pdl", False)),
        ),
        signature,
        maps or (),
        compiled.asm.get("ptx", ""),
        metadata.target.backend == "cuda"
        and maps is not None
        and metadata.num_ctas < _ONLY_TRITONS
        and not getattr(metadata, "profile_scratch_size", 0),
    )


def _tensor_maps(
    metadata: Any, signature: Mapping[str, Any]
) -> tuple[TensorMap | None, ...] | None:
    """Read a kernel's tensor maps; None where they are not one of each descriptor."""
    types = signature.values()
    count = sum(isinstance(one, str) and one.startswith(DESCRIPTOR) for one in types)
    described = getattr(metadata, "tensordesc_meta", None) or [None] * count
    if len(described) != count:
        return None
    return tuple(None if one is None else _tensor_map(one) for one in described)


def _tensor_map(described: Mapping[str, Any]) -> TensorMap:
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    return TensorMap(
        described["swizzle"],
        described["elem_size"],
        TMA_DTYPE_DEVICE_TO_HOST[described["elem_type"]],
        tuple(described["block_size"]),
        described["fp4_padded"],
    )


_FIELDS: Final = frozenset(
    {"base", "shape", "strides", "block_shape", "padding", "layout", "round_f32_to_tf32"}
)
"""All that our launches read of a descriptor. Triton 3.7 and newer have the last: one that rounds
is Triton's to launch."""


def descriptor_types() -> tuple[type[Any], ...]:
    """Return the classes of host descriptors that have nothing which our launches do not read.

    Gluon's is among them once the program has imported it, which takes 23 ms.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    hopper = sys.modules.get("triton.experimental.gluon.nvidia.hopper")
    classes = (TensorDescriptor, getattr(hopper, "TensorDescriptor", TensorDescriptor))
    known = (one for one in classes if {part.name for part in fields(one)} <= _FIELDS)
    return tuple(dict.fromkeys(known))


def ttir_of(compiled: Any) -> str:
    """Return the TTIR of a kernel that Triton compiled; "" for anything else."""
    return str(getattr(compiled, "asm", {}).get("ttir") or "")


def compiled_kernel(
    machine: Machine, digest: str, code: bytes, metadata: Mapping[str, Any], signature: Any
) -> Any:
    """Make Triton's `CompiledKernel` of machine code; the GPU loads it at its first launch."""
    backend, arch, warp_size = machine
    target = {"backend": backend, "arch": arch, "warp_size": warp_size}
    described_as = {**metadata, "hash": digest, "target": target}
    with temporary_files(), tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
        suffix = "hsaco" if backend == "hip" else "cubin"
        described, binary = Path(folder) / "kernel.json", Path(folder) / f"kernel.{suffix}"
        described.write_text(json.dumps(described_as))
        binary.write_bytes(code)
        group = {path.name: str(path) for path in (described, binary)}
        # The part of an `ASTSource` that Triton's launcher is made from. The launcher knows a
        # constexpr by its type in the signature, and does not need its value.
        function = SimpleNamespace(arg_names=tuple(signature))
        source = SimpleNamespace(signature=signature, fn=function, constants={})
        # It reads its files at once, so they can be deleted.
        return CompiledKernel(source, group, digest)


def build_launcher(kernel: Any) -> None:
    """Have Triton's cache hold the launcher of a `CompiledKernel`."""
    driver.active.launcher_cls(kernel.src, kernel.metadata)


def build_c_module(source: str, name: str) -> Any:
    """Build a module of C by Triton's own means, and import it; Triton's cache keeps it.

    Raises:
        RuntimeError, OSError, ImportError, CalledProcessError: it cannot be built.
    """
    from triton.runtime.build import compile_module_from_src

    return compile_module_from_src(source, name, libraries=["dl"])


def active_machine() -> Machine | None:
    """Return the machine that Triton compiles launches for; None without a GPU."""
    try:
        target = driver.active.get_current_target()
    except RuntimeError:  # "0 active drivers"
        return None
    return target.backend, target.arch, target.warp_size


def machine_in_use() -> Machine | None:
    """Return the active machine where CUDA is in use already; else None.

    To ask would initialise CUDA, which breaks processes that are forked later.
    """
    import torch

    if driver._active is None and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return active_machine()


class CurrentStream(NamedTuple):
    """Functions that give the index of the current device, and the handle of its stream."""

    device: Callable[[], int]
    stream: Callable[[int], int]


def current_stream() -> CurrentStream:
    """Return PyTorch's functions for device and stream below its Python: 0.1 us in place of 3.

    Without a GPU, or a PyTorch without CUDA, tensors are on "device" -1.
    """
    import torch

    if not torch.cuda.is_available():
        return CurrentStream(lambda: -1, lambda _: 0)
    return CurrentStream(torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream)


def driver_clock() -> Callable[..., Any]:
    """Return the function that Triton's active driver times with."""
    clock: Callable[..., Any] = driver.active.get_benchmarker()
    return clock


def device_setter() -> Callable[[], None]:
    """Return a function that gives another thread this one's device."""
    active: Any = driver.active
    device = active.get_current_device()
    return lambda: active.set_current_device(device)


def launch_functions() -> tuple[tuple[Any, str], ...]:
    """Return the classes of Triton, and the names of their methods, by which kernels launch."""
    return (triton.JITFunction, "run"), (CompiledKernel, "__getitem__")


def has_allocator() -> bool:
    """Return whether the program has set an allocator for memory that kernels ask for."""
    return not isinstance(_allocation._allocator.get(), _allocation.NullAllocator)


@contextmanager
def allocating() -> Iterator[None]:
    """Set an allocator for memory that kernels ask for at launch, such as for descriptors.

    A program's own allocator takes precedence. Without any, Triton refuses to launch them.
    """
    if has_allocator():
        yield
        return
    before = _allocation._allocator.set(_memory)
    try:
        yield
    finally:
        _allocation._allocator.reset(before)


def _memory(size: int, alignment: int, stream: int | None) -> Any:  # noqa: ARG001
    import torch

    # PyTorch aligns memory to 512 bytes; a descriptor needs 128.
    return torch.empty(size, dtype=torch.int8, device="cuda")


def hook_lists(function: Any) -> tuple[list[Any], ...]:
    """Return Triton's lists of launch hooks, of the process and of a `JITFunction`."""
    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    chains = tuple(hook.calls for hook in hooks if hasattr(hook, "calls"))
    return (*chains, function.pre_run_hooks)


def watched_by_triton(function: Any) -> list[Watched] | None:
    """List what Triton compares at each launch of a `JITFunction`: knobs, globals, its `debug`.

    None where the user hooks into launches: Triton must see each.
    """
    runtime, compilation = vars(knobs.runtime), vars(knobs.compilation)
    hooked = any(runtime.get(name) is not None for name in _RUNTIME_KNOBS[1:])
    if hooked or any(hook_lists(function)):
        return None
    watched = [(runtime, name) for name in _RUNTIME_KNOBS]
    watched += [(compilation, name) for name in _COMPILATION_KNOBS]
    watched.append((vars(function), "debug"))
    for scope, name in globals_read(function):
        watched.append((scope, name))
        if isinstance(value := scope.get(name), tl.constexpr):  # it may be changed in place
            watched.append((vars(value), "value"))
    return watched
