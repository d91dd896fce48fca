"""Starts workers, and builds what launches need, before the first config is compiled."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from asmtune.base.errors import InputError, StoreError
from asmtune.base.settings import Settings
from asmtune.runtime.determinism import is_deterministic
from asmtune.store.sqlite_file import holds_content

_READERS: Final = ("asmtune.predict.features.reader", "asmtune.predict.features.sketch.reader")
"""Modules that the workers import before those that tune are loaded here."""

_NVIDIA: Final = Path("/proc/driver/nvidia/version")


def start_early() -> None:
    """Start what tuning needs of no device, if the store is empty: the program will tune.

    That is the workers and the compilers in them, and what the C compiler builds for launches:
    all of it is ready when the program has loaded its data. A program whose store holds something
    may never tune. Of the ranks of a host only the first starts them: one rank tunes a key.
    """
    try:
        settings = Settings.from_environment()
        store = settings.store_where
        if is_deterministic() or not _NVIDIA.exists() or "://" in store:
            return
        if os.environ.get("LOCAL_RANK", "0") != "0" or holds_content(Path(store).expanduser()):
            return
    except (InputError, StoreError, OSError):
        return  # whoever needs the setting or opens the store tells what it is instead
    # Here, since the program's own imports of Triton may be under way in another thread.
    from asmtune.compile.pool import warm
    from asmtune.compile.workers import Workers
    from asmtune.runtime.launch.planning import build_early

    def build() -> None:
        with suppress(RuntimeError, OSError, StoreError):  # the disk is full
            Workers(settings.jobs).call(build_early, None)

    warm(None, _READERS, settings)
    threading.Thread(target=build, name="asmtune-early", daemon=True).start()


def start_workers(device: str) -> None:
    """Start the workers in the background, while all that tunes is loaded: 0.6 s.

    Earlier it would cost programs that never tune. On 2 cores two workers with their compilers
    take 0.7 s and 150 MiB.
    """
    from asmtune.compile.pool import warm
    from asmtune.core.hardware.shipped import match_device

    target = match_device(device)
    if target is not None and target.backend == "cuda":
        warm(target.machine, _READERS, Settings.from_environment())
