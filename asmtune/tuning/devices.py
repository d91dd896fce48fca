"""The GPU that options choose, here or on another host, and what tunes and compiles for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from joblib import parallel_config

from asmtune.base.errors import InputError, MeasureError
from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import chosen_target, known_device
from asmtune.measure.bench.dedup import gpus_of
from asmtune.measure.bench.remote_gpus import RemoteGpu, remote_compiler
from asmtune.measure.timing.nvml import NO_GPU, device_name
from asmtune.tuning.options import TuneOptions


@dataclass(frozen=True)
class TuningDevice:
    """The first GPU that options choose.

    Attributes:
        name: the GPU's name by its driver.
        target: what ranks for it; None for that of its name.
        settings: where its compiles run.
        made_with: versions of the host that it is on, if that is another one.
    """

    name: str
    target: Target | None
    settings: Settings
    made_with: Mapping[str, str] | None = None


def device_of(options: TuneOptions, target: Target | None = None) -> TuningDevice:
    """Return the first GPU that options choose; connect to its host if that is another one.

    Raises:
        InputError: an address is malformed, or nothing there can time.
        MeasureError: there is no GPU.
    """
    settings = Settings.from_environment()
    gpus = gpus_of(options.devices) if options.devices else []
    if not gpus or not isinstance(gpus[0], RemoteGpu):
        if options.compile_at == "remote":
            raise InputError(
                "compile_at='remote' (--compile-at) needs a GPU of another host first in devices"
            )
        return TuningDevice(gpu_of(options), target, settings)
    first, device = gpus[0], gpus[0].attributes.name
    target = target or chosen_target() or known_device(device, first.attributes)
    if target is None or target.backend != "cuda":
        raise InputError(
            f"{first}: no descriptor describes {device}, and its driver does not tell enough: "
            "give --target, a descriptor of it"
        )
    settings = _compiled_at(gpus, options.compile_at, settings)
    return TuningDevice(device, target, settings, first.made_with)


def _compiled_at(gpus: Sequence[int | RemoteGpu], place: str, settings: Settings) -> Settings:
    compiler = remote_compiler(gpus, place)
    if compiler is None:
        return settings
    return replace(settings, compiler=compiler.identity, jobs=compiler.jobs)


def reconnected(options: TuneOptions, settings: Settings) -> Settings:
    """Connect again to hosts that were lost; return the settings that their compilers need.

    Raises:
        InputError: a host has another Triton than compiles, or cannot be reached.
        HostLostError: no host is left.
    """
    if not any(isinstance(device, str) for device in options.devices or ()):
        return settings
    place = "remote" if settings.compiler else "home"
    return _compiled_at(gpus_of(options.devices or ()), place, settings)


def compiling_by(settings: Settings) -> AbstractContextManager[Any]:
    """Have this thread's compiles wait in threads where another host does the work."""
    if not settings.compiler:
        return nullcontext()
    config: AbstractContextManager[Any] = parallel_config("threading", n_jobs=settings.jobs)
    return config


def gpu_of(options: TuneOptions) -> str:
    """Return the name of this host's GPU that options choose: the first, or the current one.

    Raises:
        MeasureError: there is none.
    """
    first = options.devices[0] if options.devices else None
    assert not isinstance(first, str)
    try:
        return device_name(first)
    except MeasureError:
        raise MeasureError(f"tune needs a CUDA GPU; {NO_GPU}") from None
