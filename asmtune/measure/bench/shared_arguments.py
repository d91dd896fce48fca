"""The memory under a launch's tensors, in a file without a name that every child maps."""

from __future__ import annotations

import mmap
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import MeasureError
from asmtune.measure.bench.argument_codec import (
    Packing,
    SharedRegion,
    StorageRange,
    describe_all,
    restore,
)

_ALIGNMENT: Final = 512  # of PyTorch's CUDA allocator; no specialisation asks for more


class SharedArguments:
    """Arguments as they are now, ready for any number of children.

    Attributes:
        file: descriptor of the file that holds the bytes; children inherit it.
        nbytes: of the file.
        touched: set by who runs code of the user's on the arguments in this process; `close`
            then gives them their contents back.

    Args:
        arguments: by parameter name.
        constexprs: names whose values need not travel if they cannot.

    Raises:
        InputError: an argument cannot travel; names it.
        MeasureError: there is no room for the bytes.
    """

    def __init__(
        self, arguments: Mapping[str, Any], constexprs: frozenset[str] = frozenset()
    ) -> None:
        packing = Packing()
        self._described = describe_all(packing, arguments, constexprs)
        self._regions = [_Placed(r, device) for (device, _), r in packing.regions.items()]
        self.nbytes = 0
        for placed in self._regions:
            placed.at = self.nbytes
            self.nbytes += -(-placed.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.touched = False
        self.file = _nameless_file(self.nbytes)
        with ExitStack() as undo:
            undo.callback(os.close, self.file)
            for placed, held in self._pairs():
                held.copy_(placed.content)
            undo.pop_all()

    def to_json(self) -> dict[str, Any]:
        """What `unpack` needs, but for the file's bytes."""
        return {
            "described": self._described,
            "regions": [placed.to_json() for placed in self._regions],
            "file": self.file,
            "nbytes": self.nbytes,
        }

    def close(self) -> None:
        """Gives the memory back, and the arguments what they held if they were touched."""
        try:
            if self.touched:
                for placed, held in self._pairs():
                    placed.content.copy_(held)
        finally:
            os.close(self.file)

    def _pairs(self) -> Iterator[tuple[_Placed, Any]]:
        """Each region, and the bytes of the file that are its own."""
        import torch

        if not self.nbytes:
            return
        mapped = torch.frombuffer(mmap.mmap(self.file, self.nbytes), dtype=torch.uint8)
        for placed in self._regions:
            yield placed, mapped[placed.at : placed.at + placed.nbytes]


@dataclass
class _Placed:
    """A region of this process's memory, and where in the file its bytes lie."""

    region: StorageRange
    device: str
    at: int = 0

    @property
    def nbytes(self) -> int:
        return self.region.end - self.region.first

    @property
    def content(self) -> Any:
        skipped = self.region.first - self.region.whole.data_ptr()
        return self.region.whole[skipped : skipped + self.nbytes]

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device.split(":")[0],
            "pinned": self.region.pinned,
            "first": self.region.first,
            "bytes": self.nbytes,
            "at": self.at,
        }


def _nameless_file(nbytes: int) -> int:
    """A file that no other user can open and that is gone with the last process that has it.

    In memory where half of what is free suffices, else in the folder for temporary files.
    """
    if nbytes <= _available_bytes() // 2:
        file = os.memfd_create("asmtune")
    else:
        with tempfile.TemporaryFile(prefix="asmtune-") as opened:
            file = os.dup(opened.fileno())
    try:
        # Without it a full disk would be a SIGBUS in the middle of copying.
        os.posix_fallocate(file, 0, max(nbytes, 1))
    except OSError as error:
        os.close(file)
        raise MeasureError(
            f"the arguments' {nbytes:,} bytes cannot be copied for a child process "
            f"({error.strerror}): free memory, set TMPDIR to a larger disk, or use isolate=False"
        ) from error
    return file


def _available_bytes() -> int:
    """Memory that a new program can take without swapping, as Linux estimates it."""
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable: *(\d+) kB$", text, re.MULTILINE)
    return int(found.group(1)) << 10 if found else 0


def unpack(parcel: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a parcel's JSON, in memory of this process.

    Tensors of a GPU lie on this process's current one.
    """
    memory = []
    if parcel["nbytes"]:
        import torch

        mapped = mmap.mmap(parcel["file"], parcel["nbytes"], access=mmap.ACCESS_COPY)
        source = torch.frombuffer(mapped, dtype=torch.uint8)
        memory = [_place(region, source) for region in parcel["regions"]]
    return {name: restore(value, memory) for name, value in parcel["described"].items()}


def _place(region: Mapping[str, Any], source: Any) -> SharedRegion:
    """Copies a region to where addresses are what they were, modulo the alignment."""
    import torch

    size, pinned = int(region["bytes"]) + _ALIGNMENT, bool(region["pinned"])
    buffer = torch.empty(size, dtype=torch.uint8, device=region["device"], pin_memory=pinned)
    lead = (region["first"] - buffer.data_ptr()) % _ALIGNMENT
    held = source[region["at"] : region["at"] + region["bytes"]]
    buffer[lead : lead + region["bytes"]].copy_(held)
    return SharedRegion(buffer, lead - region["first"])
