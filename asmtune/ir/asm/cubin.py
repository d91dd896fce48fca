"""Read a kernel's resources from a cubin, the ELF file that ptxas makes.

This needs no GPU and no disassembler: registers and stack are in `.nv.info` sections, as records
of a format byte, an attribute byte and a value. The attributes' names are those that
`cuobjdump -elf` prints.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from asmtune.base.errors import ParseError

_REGCOUNT = 0x2F
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12

_FORMAT_SIZED = 0x04
_WORD = 4
_EM_CUDA = 190

_BROKEN = (
    ELFError,
    ConstructError,
    struct.error,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
)
"""Errors that pyelftools raises on damaged files, seen by mutating cubins."""


@dataclass(frozen=True, slots=True)
class Resources:
    """A kernel's registers, memory and code size, as its cubin states them.

    Attributes:
        regs_per_thread: registers of a thread, as ptxas allocated them.
        frame_bytes: bytes of local memory in the kernel's own frame, for each thread.
        stack_bytes: the same with the functions it calls; what cuobjdump calls STACK.
        code_bytes: of machine code.
    """

    regs_per_thread: int
    frame_bytes: int
    stack_bytes: int
    code_bytes: int

    @property
    def spill_words(self) -> int:
        """Return the 4-byte words of the frame: the driver's local size / 4, Triton's `n_spills`.

        Arrays that the PTX itself keeps in local memory count as well: sin() of a large
        argument has one of 28 bytes. The "bytes spill stores" that ptxas prints are code,
        and more than the frame where several stores share a slot (1,594 against 1,176).
        """
        return self.frame_bytes // _WORD


def read_cubin(data: bytes) -> Resources:
    """Read the resources of the first kernel of a cubin (Triton's `asm["cubin"]`).

    Raises:
        ParseError: the bytes are not a cubin, are damaged, or have no kernel.
    """
    if data[:4] != b"\x7fELF":
        raise ParseError(f"not a cubin: {len(data)} bytes that start with {data[:4]!r}, not ELF")
    try:
        return _Cubin(data).resources()
    except ParseError:
        raise
    except _BROKEN as error:
        kind = type(error).__name__
        raise ParseError(f"damaged cubin of {len(data)} bytes: {kind}: {error}") from error


def _check_tables(elf: ELFFile, size: int) -> None:
    """Raise ParseError where a table or section ends outside the file.

    First of all the table of sections: a damaged header can name 2**64 of them, which
    pyelftools would go through one by one.
    """
    header = elf.header
    ends = {
        "sections": header["e_shoff"] + elf.num_sections() * header["e_shentsize"],
        "segments": header["e_phoff"] + elf.num_segments() * header["e_phentsize"],
    }
    for name, end in ends.items():
        if end > size:
            raise ParseError(f"truncated cubin: table of {name} ends at {end} of {size} bytes")
    for section in elf.iter_sections():
        end = section["sh_offset"] + section["sh_size"]
        if section["sh_type"] != "SHT_NOBITS" and end > size:
            where = f"section {section.name!r} ends at {end}"
            raise ParseError(f"truncated cubin: {where} of {size} bytes")


class _Cubin:
    def __init__(self, data: bytes) -> None:
        self._elf = ELFFile(io.BytesIO(data))
        header = self._elf.header
        machine = header["e_machine"]
        if machine not in ("EM_CUDA", _EM_CUDA):
            raise ParseError(f"not a cubin: an ELF file for {machine}, not EM_CUDA")
        _check_tables(self._elf, len(data))
        self._sections = {section.name: section for section in self._elf.iter_sections()}
        table = self._sections.get(".symtab")
        if not isinstance(table, SymbolTableSection):
            raise ParseError("damaged cubin: no symbol table")
        self._symbols = table

    def resources(self) -> Resources:
        registers = self._by_kernel(_REGCOUNT)
        kernel = next(iter(registers), None)
        if kernel is None:
            raise ParseError("no kernel in the cubin")
        frame = self._by_kernel(_FRAME_SIZE).get(kernel, 0)
        return Resources(
            regs_per_thread=registers[kernel],
            frame_bytes=frame,
            stack_bytes=self._by_kernel(_MIN_STACK_SIZE).get(kernel, frame),
            code_bytes=self._size(f".text.{kernel}"),
        )

    def _size(self, name: str) -> int:
        return int(self._sections[name]["sh_size"]) if name in self._sections else 0

    def _by_kernel(self, wanted: int) -> dict[str, int]:
        values: dict[str, int] = {}
        for attribute, value in self._records(".nv.info"):
            if attribute == wanted and len(value) == 2 * _WORD:
                symbol, number = struct.unpack("<II", value)
                if symbol >= self._symbols.num_symbols():
                    raise ParseError(f"damaged cubin: .nv.info names symbol {symbol}, not in it")
                values[self._symbols.get_symbol(symbol).name] = number
        return values

    def _records(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield (attribute, payload) of an info section; only sized records have a payload."""
        data = self._sections[name].data() if name in self._sections else b""
        place = 0
        while place + _WORD <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, place)
            place += _WORD
            if form != _FORMAT_SIZED:
                continue
            if place + size > len(data):
                raise ParseError(f"damaged cubin: {name} ends inside attribute {attribute:#x}")
            yield attribute, data[place : place + size]
            place += size
