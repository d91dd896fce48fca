"""Triton's compiler: specialisation, front end, stages and options, for one target each."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import triton
from triton._C.libtriton import amd, ir, nvidia, passes
from triton.backends.amd.compiler import HIPOptions
from triton.backends.compiler import GPUTarget, Language
from triton.backends.nvidia.compiler import CUDAOptions, get_ptx_version_from_options
from triton.compiler.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError
from triton.knobs import nvidia as nvidia_knobs
from triton.runtime.jit import create_function_from_signature

from asmtune.base.errors import ProblemError
from asmtune.triton_api.jit_functions import is_gluon, parameters

StageFunction = Callable[[Any, dict[str, Any]], Any]

NEWEST_TRIED: Final = "3.9"
"""The newest Triton that `make test-tritons` has tried: `benchmarks/results/tritons.json`."""

_ALLOCATED: Final = {
    "num_warps": "ttg.total-num-warps",
    "shared": "ttg.shared",
    "tmem_size": "ttg.tensor_memory_size",
}
"""Names in the metadata, by the module's attributes that the allocation leaves."""


@dataclass(frozen=True)
class Specialised:
    """Holds a kernel's source with the specialisation that Triton itself would choose.

    Attributes:
        source: the source with the types of its arguments.
        options: the backend's options object.
        options_read: names of the options that the front end looked at; also
            where it failed.
    """

    source: ASTSource
    options: Any
    options_read: set[str] = field(default_factory=set)

    @property
    def signature(self) -> dict[str, Any]:
        """Return Triton's type of every parameter, in order; of a tuple, a tuple of types."""
        return dict(self.source.signature)

    @property
    def identity(self) -> str:
        """Return Triton's own digest of the source, its place in its file included."""
        return str(self.source.hash())

    @property
    def key(self) -> str:
        """Return a text that two configs share exactly if their sources are the same."""
        source = self.source
        return repr((source.signature, sorted(source.constants.items()), source.attrs))


class Toolchain:
    """Wraps Triton's compiler for one target; needs no GPU.

    Args:
        backend: Triton's name of the vendor's backend ("cuda", "hip").
        arch: compute capability as a number (90), or AMD's name ("gfx942").
        warp_size: threads a warp.
    """

    def __init__(self, backend: str, arch: int | str, warp_size: int) -> None:
        self.target = GPUTarget(backend, arch, warp_size)
        self.backend = make_backend(self.target)
        self._bound: tuple[Any, Callable[..., Any]] | None = None

    def specialise(self, function: Any, values: Mapping[str, Any]) -> Specialised:
        """Specialise a `JITFunction` for a launch's keywords as Triton's launcher does.

        Raises:
            TypeError, KeyError: the arguments do not fit the kernel's signature.
        """
        keywords = {"debug": function.debug or False, "instrumentation_mode": "", **values}
        bound, specialization, extra = self._binder(function)(**keywords)
        options, signature, constexprs, attrs = function._pack_args(
            self.backend, keywords, bound, specialization, extra
        )
        return Specialised(source_class(function)(function, signature, constexprs, attrs), options)

    def refused_argument(self, function: Any, values: Mapping[str, Any]) -> str | None:
        """Return the name of the argument that Triton refuses; None if it takes each."""
        # What is missing, such as a heuristic's result, is no argument's fault.
        plain = {
            p.name: 1 for p in parameters(function) if not p.is_constexpr or p.name not in values
        }
        for name in [name for name in plain if name in values]:
            try:
                self._binder(function)(**{**values, **plain, name: values[name]})
            except (TypeError, KeyError):
                return str(name)
        return None

    def _binder(self, function: Any) -> Callable[..., Any]:
        """Cache Triton's binder: generating its source takes as long as 10 uses of it."""
        if self._bound is None or self._bound[0] is not function:
            made = create_function_from_signature(
                function.signature, [*parameters(function)], self.backend
            )
            self._bound = function, made
        return self._bound[1]

    def front_end(self, specialised: Specialised) -> tuple[str, frozenset[str]]:
        """Return the TTIR text, or a Gluon kernel's TTGIR, and names of options it depends on."""
        context = self._context()
        options = _Watched(specialised.options, specialised.options_read)
        is_triton = specialised.source.language == Language.TRITON
        with nullcontext() if is_triton else _told_errors():
            module = specialised.source.make_ir(
                self.target,
                options,
                self.backend.get_codegen_implementation(specialised.options),
                self.backend.get_module_map(),
                context,
            )
        return str(module), frozenset(specialised.options_read)

    def parse(self, text: str) -> Any:
        """Parse a text of TTIR or TTGIR."""
        context = self._context()
        with tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
            path = Path(folder) / "kernel.ttir"
            path.write_text(text)
            module = ir.parse_mlir_module(str(path), context)
        module.context = context
        return module

    def options(self, values: Mapping[str, Any]) -> Any:
        """Make the backend's options object from its JSON form."""
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return self.backend.parse_options(plain)

    def stages(self, options: Any, *, gluon: bool = False) -> dict[str, StageFunction]:
        """Return the compiler's stages in order: "ttir", "ttgir", "llir", assembly, code.

        Those of a Gluon kernel have no "ttir", and their "ttgir" takes the front end's TTGIR.
        """
        stages: dict[str, StageFunction] = {}
        self.backend.add_stages(stages, options, Language.GLUON if gluon else Language.TRITON)
        return stages

    def allocate(self, module: Any, options: Any) -> dict[str, int]:
        """Compute shared and tensor memory of a TTGIR module, and its warps, without LLVM.

        Runs what the stage "llir" does before it makes LLVM's IR: in place, so
        that the module's text has to be taken first.
        """
        manager = ir.pass_manager(module.context)
        if self.target.backend == "hip":
            _add_amd_allocation(manager, self.target.arch)
        else:
            self._add_nvidia_allocation(manager, options)
        manager.run(module, "allocate")
        found = {name: module.get_int_attr(key) for name, key in _ALLOCATED.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _add_nvidia_allocation(self, manager: Any, options: Any) -> None:
        capability = self.target.arch
        passes.ttgpuir.add_combine_tensor_select_and_if(manager)
        _add_warp_groups(manager)
        passes.convert.add_scf_to_cf(manager)
        passes.gluon.add_inliner(manager)
        version = get_ptx_version_from_options(options, capability)
        nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, version)
        nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(manager)

    def _context(self) -> Any:
        context = ir.context()
        ir.load_dialects(context)
        self.backend.load_dialects(context)
        # Gluon's front end aborts the process at an operation whose dialect is not loaded.
        for vendor in (amd, nvidia):
            vendor.load_dialects(context)
        return context


_stderr_lock: Final = threading.Lock()
_ERROR: Final = re.compile(r"^(.*):(\d+):\d+: error: (.*)\n(?:(\S.*)\n)?", re.MULTILINE)
# MLIR ends a failed pipeline with a line that says no more than that, and prints the module.
_PLACELESS: Final = re.compile(r" error: (?!Failures have been)(.*)|(Assertion `.*' failed)")


def compiler_error(log: str) -> str:
    """Return the first error that MLIR or LLVM tells on stderr, as one line; "" for none."""
    if match := _ERROR.search(log):
        file, line, first, second = match.groups()
        return f"{Path(file).name} line {line}: {first} {second or ''}".rstrip()
    placeless = _PLACELESS.search(log)
    return "" if placeless is None else placeless[1] or placeless[2]


@contextmanager
def _told_errors() -> Iterator[None]:
    """Put what MLIR writes to stderr of a Gluon kernel that it refuses into the exception.

    Layouts are checked by MLIR, and the front end's exception says no more than that there is an
    error. What else is written meanwhile is passed on.
    """
    with _stderr_lock:
        try:
            saved, written = os.dup(2), os.memfd_create("asmtune-stderr")
        except OSError:  # stderr is closed
            yield
            return
        os.dup2(written, 2)
        text = ""
        try:
            yield
        except (RuntimeError, AssertionError, CompilationError) as error:
            if text := compiler_error(os.pread(written, 1 << 20, 0).decode(errors="replace")):
                _tell(error, text)
            raise
        finally:
            os.dup2(saved, 2)
            if not text:
                os.write(saved, os.pread(written, 1 << 20, 0))
            os.close(saved)
            os.close(written)


def _tell(error: BaseException, text: str) -> None:
    """Replace the text of an exception's innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, CompilationError):
        error.error_message = text
    else:
        error.args = (text,)


class _Watched:
    """Stands for the options in the front end and notes which are read.

    TTIR that was made without a look at `num_warps` is the same for every
    number of warps; a kernel may ask for it (`tl.extra.cuda.num_warps()`).
    """

    def __init__(self, options: Any, names_read: set[str]) -> None:
        self._options = options
        self._names_read = names_read

    def __getattr__(self, name: str) -> Any:
        self._names_read.add(name)
        return getattr(self._options, name)


def source_class(function: Any) -> Any:
    """Return the class of a kernel's source, whose `make_ir` is Triton's or Gluon's front end.

    Raises:
        ProblemError: the kernel is of Gluon, and this Triton has no such front end.
    """
    if not is_gluon(function):
        return ASTSource
    try:
        from triton.experimental.gluon._runtime import GluonASTSource
    except ImportError as error:
        raise ProblemError(
            f"kernel {function.__name__}: the Gluon of triton {triton.__version__} cannot be "
            f"compiled here ({error}): install another triton; 3.6 is known to work"
        ) from error
    return GluonASTSource


def _add_warp_groups(manager: Any) -> None:
    """Add the pass that numbers a kernel's warps; 3.9 asks whether a sanitizer needs some too."""
    try:
        passes.ttgpuir.add_allocate_warp_groups(manager)
    except TypeError:
        passes.ttgpuir.add_allocate_warp_groups(manager, False)


def _add_amd_allocation(manager: Any, arch: str) -> None:
    """Add AMD's passes. 3.7 has another than 3.6's of the LDS, and 3.8's allocation asks for it."""
    own = amd.passes.ttgpuir
    own.add_update_async_wait_count(manager, arch)
    if hasattr(own, "add_optimize_lds_usage"):
        own.add_optimize_lds_usage(manager, arch, 0)  # 0: all of the LDS
    else:
        own.add_warp_pipeline_conversion(manager, arch)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    passes.convert.add_index_to_llvmir(manager)
    try:
        own.add_allocate_shared_memory(manager)
    except TypeError:
        own.add_allocate_shared_memory(manager, arch)


def plain_options(options: Any) -> dict[str, Any]:
    """Return the backend's options as JSON values, without libraries at their default."""
    values = {f.name: getattr(options, f.name) for f in fields(options)}
    # A path inside the installed package; the package's version identifies it.
    values.pop("extern_libs", None)
    return values


def disassembler() -> str:
    """Return the path of nvdisasm: TRITON_NVDISASM_PATH, else the one that Triton brings.

    Raises:
        RuntimeError: it is missing.
        OSError: it cannot be started.
    """
    return str(nvidia_knobs.nvdisasm.path)


def newer_than_tried() -> str | None:
    """Return Triton's version where it is newer than any that was tried; else None."""
    numbers = re.findall(r"\d+", triton.__version__)[:2]
    newest = [int(number) for number in NEWEST_TRIED.split(".")]
    return triton.__version__ if [int(number) for number in numbers] > newest else None


def option_names() -> frozenset[str]:
    """Return the names that a launch may give besides its arguments: `num_warps`, `launch_pdl`."""
    return frozenset(f.name for own in (CUDAOptions, HIPOptions) for f in fields(own))
