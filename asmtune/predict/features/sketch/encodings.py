"""Layout encodings as TTGIR prints them: names, attributes, what stands for what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ALIAS: Final = re.compile(r"(#\w+) = (#tt\w*\..*)")
_NAME: Final = re.compile(r"#(?:\w+\.)?(\w+)")
_REFERENCE: Final = re.compile(r"#\w+(?![\w.])")


def read_aliases(text: str) -> dict[str, str]:
    """Encodings that a module's text names in its first lines, without names in them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("module"):
            break
        if match := _ALIAS.match(line):
            found[match[1]] = resolve(match[2], found)
    return found


def resolve(encoding: str, aliases: Mapping[str, str]) -> str:
    """An encoding's text with names replaced by what they stand for."""
    return _REFERENCE.sub(lambda match: aliases.get(match[0], match[0]), encoding)


def kind_of(encoding: str) -> str:
    """Name of an encoding: "blocked", "nvidia_mma", "slice", "nvmma_shared"."""
    match = _NAME.match(encoding)
    return match[1] if match else ""


def numbers(encoding: str, name: str) -> tuple[int, ...]:
    """A list attribute of an encoding, such as `order = [1, 0]`; empty if it has none."""
    match = re.search(rf"\b{name} = \[([\d, ]*)\]", encoding)
    return tuple(map(int, match[1].split(","))) if match and match[1].strip() else ()


def number(encoding: str, name: str, default: int) -> int:
    """A number attribute of an encoding."""
    match = re.search(rf"\b{name} = (\d+)", encoding)
    return int(match[1]) if match else default


def parent_of(encoding: str) -> str:
    """The encoding that a slice or a dot operand is of."""
    place = encoding.find("parent = ")
    return encoding[place + 9 : encoding.rfind("}>")] if place >= 0 else ""


def own_part(encoding: str) -> str:
    """An encoding's attributes without its parent's."""
    parent = parent_of(encoding)
    return encoding.replace(parent, "") if parent else encoding
