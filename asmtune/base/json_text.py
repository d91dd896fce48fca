"""JSON of any size, read piece by piece: the array of a file's records is never whole in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from asmtune.base.json_codec import DECODER, expected, shown

_PART: Final = 1 << 20
_OF_NUMBERS: Final = "+-.0123456789Ee"

MOST: Final = 256 << 20
"""Characters of one value at most: a record with a thousand samples of 1,000 configs has 20e6."""


class JsonText:
    """The text of a file, of which the value that is being read is in memory.

    Each method raises `ValueError` where the text is not JSON as `parse_json` reads it.
    """

    def __init__(self, file: BinaryIO) -> None:
        start = file.read(max(_PART, 4))  # what tells the encoding
        self._file = file
        self._decode = codecs.getincrementaldecoder(json.detect_encoding(start))("surrogatepass")
        self._text = self._decode.decode(start, final=not start)
        self._at = self._lines = 0

    def peek(self) -> str:
        """Return the next character that is no space; empty at the end."""
        while True:
            while (char := self._text[self._at : self._at + 1]) and char in " \t\n\r":
                self._at += 1
            if char or not self._read_on():
                return char

    def value(self) -> Any:
        """Read a value."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._read_on():
                    place = f"line {self._lines + error.lineno} column {error.colno}"
                    raise ValueError(f"{error.msg}: {place}") from error
                continue
            except RecursionError as error:
                raise ValueError("nested too deeply") from error
            # A number may go on: of 1.5e-3 also 1 is one, and 1.5.
            ended = not isinstance(value, int | float) or self._text[end:].lstrip(_OF_NUMBERS)
            if ended or not self._read_on():
                self._at = end
                return value

    def names(self, what: str) -> Iterator[str]:
        """Yield the names of an object; the caller reads the value of each.

        Raises:
            InputError: it is no object; calls it `what`.
        """
        if self.peek() != "{":
            value = self.value()
            self.end()
            raise expected("an object", what, value)
        seen: set[str] = set()
        for _ in self._between("{}"):
            if self.peek() != '"':
                raise self._misplaced('"')
            name = self.value()
            if name in seen:
                raise ValueError(f"a name is repeated among {shown([name, name])}")
            seen.add(name)
            self._take(":")
            yield name

    def items(self) -> Iterator[Any]:
        """Yield the values of an array."""
        for _ in self._between("[]"):
            yield self.value()

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            raise self._misplaced("the end")

    def _between(self, brackets: str) -> Iterator[None]:
        self._take(brackets[0])
        if self.peek() != brackets[1]:
            yield
            while self.peek() == ",":
                self._take(",")
                yield
        self._take(brackets[1])

    def _take(self, char: str) -> None:
        if self.peek() != char:
            raise self._misplaced(char)
        self._at += 1

    def _misplaced(self, wanted: str) -> ValueError:
        before = self._text[: self._at]
        column = self._at - before.rfind("\n")
        place = f"line {self._lines + before.count(chr(10)) + 1} column {column}"
        return ValueError(f"expected {wanted}: {place}")

    def _read_on(self) -> bool:
        """Read at least as much as is in memory; return False at the end."""
        rest = self._text[self._at :]
        data = self._file.read(max(_PART, len(rest)))
        if len(rest) > MOST and data:
            raise ValueError(f"a value of more than {MOST:,} characters")
        self._lines += self._text.count("\n", 0, self._at)
        more = self._decode.decode(data, final=not data)
        self._text, self._at = rest + more, 0
        return bool(data)
