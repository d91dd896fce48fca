"""The head of a PTX kernel: its name, its parameters and the threads that it demands."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY: Final = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)[{;]")
_TYPE: Final = re.compile(r"\.[bfsu](8|16|32|64|128)\b")
_LENGTH: Final = re.compile(r"\[\s*(\d{1,9})\s*\]")
_DIRECTIVE: Final = re.compile(r"\.(reqntid|maxntid|reqnctapercluster)\s+([\d,\s]+)")


@dataclass(frozen=True)
class KernelEntry:
    """The head of a kernel.

    Attributes:
        name: of the kernel.
        parameters: bytes of each parameter, in order.
        threads: threads a program, from `reqntid` or `maxntid`; None if neither is there.
        programs: programs a cluster, from `reqnctapercluster`; 1 if it is not there.
    """

    name: str
    parameters: tuple[int, ...]
    threads: int | None
    programs: int

    def misfit(self, own: KernelEntry) -> str | None:
        """Return why a launch of another kernel cannot launch this one; None if it can."""
        if self.parameters != own.parameters:
            return f"takes {_listed(self.parameters)}, and the kernel {_listed(own.parameters)}"
        if self.threads is not None and self.threads != own.threads:
            return f"is for {self.threads} threads a program, and launched with {own.threads}"
        if self.programs != own.programs:
            return f"is for clusters of {self.programs}, and launched in clusters of {own.programs}"
        return None


def entries(ptx: str) -> list[KernelEntry]:
    """Return the kernels of a PTX module in the text's order; [] if the text is not PTX."""
    kernels = []
    for match in _ENTRY.finditer(_COMMENT.sub(" ", ptx)):
        name, parameters, tail = match.groups()
        sizes = {
            key: math.prod(int(size) for size in value.split(",") if size.strip())
            for key, value in _DIRECTIVE.findall(tail)
        }
        threads = sizes.get("reqntid", sizes.get("maxntid"))
        listed = [each for each in (parameters or "").split(",") if each.strip()]
        bytes_each = tuple(map(_bytes_of, listed))
        programs = sizes.get("reqnctapercluster", 1)
        kernels.append(KernelEntry(name, bytes_each, threads, programs))
    return kernels


def _bytes_of(parameter: str) -> int:
    """Return the bytes of one parameter; 0 if its type is not a known one."""
    kind, length = _TYPE.search(parameter), _LENGTH.search(parameter)
    bits = int(kind[1]) if kind else 0
    return bits // 8 * (int(length[1]) if length else 1)


def _listed(parameters: tuple[int, ...]) -> str:
    sizes = ", ".join(map(str, parameters))
    return f"{len(parameters)} parameters of {sizes} bytes" if parameters else "no parameters"
