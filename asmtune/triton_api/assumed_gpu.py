"""A GPU that is not here: PyTorch and Triton answer for it, and launches are handed over.

Files of kernels ask the GPU while they are imported, and host functions before they launch: for
the number of SMs, the capability, the device of their tensors. While a GPU is assumed, these
questions are answered for it, in this whole process; nothing is launched, allocated or timed. All
is as before at the end.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, KernelInterface

DEVICE: Final = torch.device("cuda", 0)


class Launch(NamedTuple):
    """A launch that a program has asked for.

    Attributes:
        kernel: under all its decorators.
        grid: as it was given.
        args: by position.
        kwargs: by name.
        listed: configs that Triton would time, where they are known.
    """

    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    listed: list[Any] | None = None


class AssumedGpuError(RuntimeError):
    """A program wants of the assumed GPU what only a real one has."""


@dataclass
class AssumedGpu:
    """A GPU as programs ask for it.

    Attributes:
        name: of the device.
        machine: backend, architecture and threads of a warp, as Triton has them.
        capability: major and minor.
        properties: by PyTorch's names, as `multi_processor_count`.
        limits: by the names of Triton's driver, as `max_shared_mem`.
        resources: reads registers and spilled words a thread from a kernel's binary.
        launched: is called with each launch, in its place.
        was_asked: whether anything has been answered so far.
    """

    name: str
    machine: tuple[str, int | str, int]
    capability: tuple[int, int]
    properties: Mapping[str, Any]
    limits: Mapping[str, int]
    resources: Callable[[bytes], tuple[int, int]]
    launched: Callable[[Launch], Any] = lambda _: None
    was_asked: bool = field(default=False, init=False)
    _is_active: bool = field(default=False, init=False)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Answer for this GPU in the whole process, and hand over each launch."""
        with ExitStack() as undo:
            undo.callback(setattr, self, "_is_active", self._is_active)
            self._is_active = True
            for name, value in self._answers().items():
                _replace(undo, torch.cuda, name, value)
            accelerator = getattr(torch, "accelerator", None)
            for name, value in self._accelerator().items():
                if hasattr(accelerator, name):
                    _replace(undo, accelerator, name, value)
            version = "cuda" if self.machine[0] == "cuda" else "hip"
            if getattr(torch.version, version) is None:
                _replace(undo, torch.version, version, "12.8" if version == "cuda" else "6.4")
            _replace(undo, shutil, "which", self._finding(shutil.which))
            for name in ("range_push", "range_pop", "mark"):
                _replace(undo, torch.cuda.nvtx, name, self.answered(None))
            _replace(undo, torch.cuda.nvtx, "range", _Nothing)
            for name in ("do_bench", "do_bench_cudagraph"):
                _replace(undo, triton.testing, name, self._benched)
            _replace(undo, torch, "compile", self._uncompiled)
            if "torch._dynamo" in sys.modules:  # what has been compiled before runs as it is
                undo.enter_context(torch.compiler.set_stance("force_eager"))
            undo.callback(setattr, driver, "_active", driver._active)
            driver.set_active(_Driver(self))
            for kind in [KernelInterface, *_subclasses(KernelInterface)]:
                self._take_launches(undo, kind)
            yield

    def answered(self, value: Any) -> Callable[..., Any]:
        """Return a function that answers with a value, and notes that it was asked."""

        def answer(*_: Any, **__: Any) -> Any:
            self.was_asked = True
            return value

        return answer

    def _refusal(self, verb: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            self.was_asked = True
            raise AssumedGpuError(f"nothing here {verb}: {self.name} is assumed, not present")

        return refuse

    def _finding(self, which: Any) -> Callable[..., Any]:
        """Find the program of the GPU's vendor, by which packages tell the vendor."""
        own = "nvidia-smi" if self.machine[0] == "cuda" else "rocm-smi"
        found = self.answered(f"/usr/bin/{own}")
        return lambda name, *args, **how: (found if name == own else which)(name, *args, **how)

    def _benched(self, call: Callable[[], Any], *_: Any, **__: Any) -> Any:
        """Call what is to be timed, for its launches; then refuse."""
        call()
        return self._refusal("times")()

    def _uncompiled(self, model: Any = None, **_: Any) -> Any:
        """Return a model or function as it is, as `torch.compile` does by a debug switch."""
        self.was_asked = True
        return (lambda one: one) if model is None else model

    def _answers(self) -> dict[str, Any]:
        properties = SimpleNamespace(name=self.name, **self.properties)
        properties.major, properties.minor = self.capability
        stream = _Queue()
        memory = int(self.properties["total_memory"])
        values: dict[str, Any] = {
            "is_available": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_name": self.name,
            "get_device_capability": self.capability,
            "get_device_properties": properties,
            "is_bf16_supported": self.capability >= (8, 0) or self.machine[0] == "hip",
            "mem_get_info": (memory, memory),
            "memory_allocated": 0,
            "current_stream": stream,
            "default_stream": stream,
            "synchronize": None,
            "empty_cache": None,
            "set_device": None,
            "is_current_stream_capturing": False,
        }
        answers = {name: self.answered(value) for name, value in values.items()}
        nothing = dict.fromkeys(("device", "device_of", "stream", "graph"), _Nothing)
        return answers | nothing | dict.fromkeys(("Stream", "Event", "CUDAGraph"), _Queue)

    def _accelerator(self) -> dict[str, Any]:
        values = {
            "is_available": True,
            "device_count": 1,
            "current_accelerator": torch.device("cuda"),
            "current_device_index": 0,
            "synchronize": None,
        }
        return {name: self.answered(value) for name, value in values.items()}

    def _take_launches(self, undo: ExitStack, kind: Any) -> None:
        """Have a class of kernels hand over its launches."""
        own = vars(kind)
        own_launcher, own_run = own.get("__getitem__"), own.get("run")

        def launcher(kernel: Any, grid: Any) -> Callable[..., Any]:
            def launch(*args: Any, **kwargs: Any) -> Any:
                if self._is_active or own_launcher is None:
                    return self._hand_over(kernel, grid, args, kwargs)
                return own_launcher(kernel, grid)(*args, **kwargs)  # kept beyond its time

            return launch

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            if not self._is_active and own_run is not None:
                return own_run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            if warmup and own_run is not None:
                return self._compiled(own_run, kernel, args, kwargs)
            return self._hand_over(kernel, grid, args, kwargs)

        for name, replacement in (("__getitem__", launcher), ("run", run)):
            if name in own:
                _replace(undo, kind, name, replacement)

    def _hand_over(
        self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.was_asked = True
        tensors = (one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor))
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
            raise AssumedGpuError(
                "torch.func's tensors (vmap, grad) have no memory, and no GPU launches on them "
                "either: give the kernel the batch as an axis, or its autograd.Function a vmap"
            )
        self.launched(Launch(kernel, grid, args, kwargs))

    def _compiled(self, run: Any, kernel: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Compile a kernel as its `warmup` does, for this GPU."""
        if not isinstance(kernel, JITFunction):
            made = run(kernel, *args, grid=(1,), warmup=True, **kwargs)
            if made is None:
                raise AssumedGpuError("warmup compiles nothing under Triton's interpreter")
            return made
        caches = dict(kernel.device_caches)
        kernel.device_caches.clear()
        try:
            compiled = run(kernel, *args, grid=(1,), warmup=True, **kwargs)
        finally:
            kernel.device_caches.clear()
            kernel.device_caches.update(caches)
        return _Compiled(compiled, self, kernel, kwargs)


class _Compiled:
    """A compiled kernel whose launches are handed over; it is loaded onto no GPU."""

    def __init__(self, compiled: Any, gpu: AssumedGpu, kernel: Any, kwargs: Any) -> None:
        self._compiled, self._gpu = compiled, gpu
        self._kernel, self._kwargs = kernel, kwargs

    def __getattr__(self, name: str) -> Any:
        if name in ("n_regs", "n_spills"):  # Triton reads them where it loads a kernel
            return self._gpu.resources(self._compiled.kernel)[name == "n_spills"]
        return getattr(self._compiled, name)

    def _init_handles(self) -> None:
        """Load nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        names = {name for name in self._kwargs if name not in self._kernel.arg_names}
        options = {name: self._kwargs[name] for name in names}
        return lambda *args: self._gpu._hand_over(self._kernel, grid, args, options)


class _Nothing(nullcontext[Any]):
    """Stands for `torch.cuda.device`, `stream` and `graph`: there is one device, one stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class _Queue:
    """Stands for streams, events and graphs: nothing is in flight, and nobody waits."""

    cuda_stream: Final = 0
    device: Final = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., _Queue]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: self

    def __enter__(self) -> _Queue:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        """Raise: nothing is timed."""
        raise AssumedGpuError("nothing here times: the GPU is assumed, not present")


class _Driver(DriverBase):  # type: ignore[misc] # Triton's has no types
    """Stands for Triton's driver of the assumed GPU."""

    def __init__(self, gpu: AssumedGpu) -> None:
        self._gpu = gpu
        self.utils = SimpleNamespace(get_device_properties=gpu.answered(dict(gpu.limits)))
        self.get_current_device = gpu.answered(0)
        self.set_current_device = gpu.answered(None)
        self.get_current_stream = gpu.answered(0)
        self.get_device_capability = gpu.answered(gpu.capability)
        self.get_device_interface = gpu.answered(torch.cuda)

    @classmethod
    def is_active(cls) -> bool:
        """Say that there is such a GPU."""
        return True

    def get_current_target(self) -> GPUTarget:
        """Return what Triton compiles for."""
        self._gpu.was_asked = True
        return GPUTarget(*self._gpu.machine)

    def get_active_torch_device(self) -> torch.device:
        """Return the device of tensors."""
        self._gpu.was_asked = True
        return DEVICE

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Raise: no launcher is built."""
        raise AssumedGpuError(f"no launcher is built for {ty}")

    def get_benchmarker(self) -> Any:
        """Return a function that refuses to time."""
        return self._gpu._refusal("times")

    def get_empty_cache_for_benchmark(self) -> Any:
        """Raise: nothing is timed."""
        return self._gpu._refusal("times")()

    def clear_cache(self, cache: Any) -> None:
        """Clear nothing."""


def _subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for one in children:
        yield one
        yield from _subclasses(one)


def _replace(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    before = inspect.getattr_static(owner, name)
    undo.callback(setattr, owner, name, before)
    setattr(owner, name, value)
