"""Which launcher this process uses: the C part, or Python where it cannot be built."""

from __future__ import annotations

import functools
import subprocess
import warnings
from importlib import resources
from typing import Any, Final, Protocol, cast

import torch

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.runtime.launch import plain

_SOURCES: Final = ("words.c", "table.c", "plan.c", "cuda.c", "launcher.c", "module.c")
DRIVER: Final = "libcuda.so.1"


class LaunchWarning(UserWarning):
    """A launch is slower, or of another config, than it might be."""


class AnyLauncher(Protocol):
    """`launcher[grid](*args, **kwargs)`; see `native/launcher.c`."""

    last: Any

    def __getitem__(self, grid: Any, /) -> Any: ...
    def __len__(self) -> int: ...

    def keep(self, key: Any, plan: Any, held: tuple[Any, ...], /) -> None:
        """Remembers the plan of a key, and what the key is made of."""

    def forget(self) -> None:
        """Forgets every plan."""


class Backend(Protocol):
    """A module with a launcher and its plans."""

    GIVEN: Any

    def Plan(self, *facts: Any) -> Any:  # noqa: N802 - a class of the module
        """See `native/plan.c`."""

    def Launcher(self, *parts: Any) -> AnyLauncher:  # noqa: N802 - a class of the module
        """See `native/launcher.c`."""


@functools.cache
def backend() -> Backend:
    """The process's launcher, as ASMTUNE_LAUNCH says: "auto", "native" or "python".

    Raises:
        InputError: it is to be native, and cannot be built.
    """
    wanted = Settings.from_environment().launch
    if wanted == "python":
        return cast(Backend, plain)
    try:
        return native()
    except (RuntimeError, OSError, ImportError, subprocess.CalledProcessError) as error:
        if wanted == "native":
            raise InputError(
                f"ASMTUNE_LAUNCH=native: the launcher cannot be built: {error}; "
                "Triton needs the same: a C compiler (CC names it) and Python's headers"
            ) from error
        warnings.warn(
            f"launches go by Python, some 3 us slower each: the C part cannot be built: {error}",
            LaunchWarning,
            stacklevel=4,
        )
        return cast(Backend, plain)


@functools.cache
def native(driver: str | None = None) -> Backend:
    """The C part, built by Triton's own means and kept in its cache.

    Args:
        driver: library of the CUDA driver; None for the system's, where there is a GPU.

    Raises:
        RuntimeError: there is no C compiler.
        CalledProcessError: it fails.
        ImportError: what it made cannot be loaded.
        OSError: the driver cannot be loaded.
    """
    from triton.runtime.build import compile_module_from_src

    folder = resources.files("asmtune.runtime.launch") / "native"
    source = "\n".join((folder / name).read_text() for name in _SOURCES)
    module = compile_module_from_src(source, "asmtune_launch", libraries=["dl"])
    if driver is not None or torch.cuda.is_available():
        module.open_driver(driver or DRIVER)
    return cast(Backend, module)
