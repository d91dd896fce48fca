"""Buckets of whole numbers, which a key rounds up so that near sizes share a config.

A `BucketRule` is for the keys of kernels that somebody else has written: `pow2(M)` for every kernel
whose key has the argument M, or `attention:multiple(128, M)` for the kernels of that name.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened

Span = tuple[int | None, int | None]
"""First and last whole number of a bucket; None for an open end."""


@dataclass(frozen=True)
class Bucket:
    """A rounding of whole numbers; calling it with a name binds it to an argument.

    Attributes:
        kind: "pow2", "multiple" or "between".
        numbers: the kind's numbers: the divisor of `multiple`, or the edges of `between`.
        argument: the kernel's parameter whose value is rounded; None until it is bound.
    """

    kind: str
    numbers: tuple[int, ...] = ()
    argument: str | None = None

    def __call__(self, argument: str) -> Bucket:
        """Bind the bucket to an argument: `pow2("N")`.

        Raises:
            InputError: the argument is not a name.
        """
        if not isinstance(argument, str):
            raise InputError(
                f"{self.kind}({argument!r}): expected the name of an argument of the kernel"
            )
        return replace(self, argument=argument)

    def __str__(self) -> str:
        inside = (*map(str, self.numbers), *filter(None, [self.argument]))
        return f"{self.kind}({', '.join(inside)})" if inside else self.kind

    @property
    def __name__(self) -> str:
        return self.kind

    @property
    def function(self) -> Callable[[Any], int]:
        """Return the function from a value to its bucket's number; pure and monotone.

        It takes any index of Python's (`numpy.int64(5)`) but a bool, and raises TypeError for
        other values.
        """
        rounding = KINDS[self.kind].rounding
        return partial(rounding, self.numbers) if self.numbers else rounding

    def span(self, value: int) -> Span | None:
        """Return the numbers of the bucket that `value` represents; None if it represents none."""
        return KINDS[self.kind].span(self.numbers, value)


pow2: Final = Bucket("pow2")
"""Rounds up to a power of two: 5 to 8 share a key, 0 is alone, and so do -8 to -5."""


def multiple(of: int, argument: str | None = None) -> Bucket:
    """Round up to a multiple: with 128, 385 to 512 share a key.

    Raises:
        InputError: `of` is not a whole number above 0.
    """
    if type(of) is not int or of < 1:
        raise InputError(f"multiple({of!r}): expected a whole number above 0, then a name")
    bucket = Bucket("multiple", (of,))
    return bucket if argument is None else bucket(argument)


def between(*edges: int, argument: str | None = None) -> Bucket:
    """Round up to an edge: with 16 and 256, up to 16, 17 to 256, and above 256 share a key.

    Numbers above the last edge become the last edge plus one.

    Raises:
        InputError: the edges are not whole numbers, each above the one before.
    """
    rising = all(type(edge) is int for edge in edges) and edges == tuple(sorted(set(edges)))
    if not edges or not rising:
        shown = ", ".join(map(repr, edges))
        raise InputError(f"between({shown}): expected whole numbers, each above the one before")
    bucket = Bucket("between", edges)
    return bucket if argument is None else bucket(argument)


def bucket_of(name: str) -> Bucket | None:
    """Parse a key part's name such as `multiple(128, K)`; None if it names no bucket."""
    match = re.fullmatch(r"(\w+)\(((?:-?\d+, )*)(\w+)\)", name)
    if match is None or match[1] not in KINDS or not match[3].isidentifier():
        return None
    numbers = tuple(int(number) for number in match[2].split(", ")[:-1])
    try:
        bucket = KINDS[match[1]].make(*numbers)
    except (InputError, TypeError):  # a name from a file may hold any numbers
        return None
    return bucket(match[3])


def _whole(value: Any) -> int:
    if isinstance(value, bool) or hasattr(value, "data_ptr"):
        raise TypeError("a bucket is of whole numbers")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("a bucket is of whole numbers") from None


def _pow2(value: Any) -> int:
    size = value if type(value) is int else _whole(value)
    if size > 0:
        return 1 << (size - 1).bit_length()
    return -(1 << (-size - 1).bit_length()) if size else 0


def _pow2_span(_: tuple[int, ...], value: int) -> Span | None:
    size = abs(value)
    if size & (size - 1):
        return None
    lowest = size // 2 + 1 if size else 0
    return (lowest, size) if value >= 0 else (-size, -lowest)


def _multiple(numbers: tuple[int, ...], value: Any) -> int:
    size = value if type(value) is int else _whole(value)
    return -(-size // numbers[0]) * numbers[0]


def _multiple_span(numbers: tuple[int, ...], value: int) -> Span | None:
    return None if value % numbers[0] else (value - numbers[0] + 1, value)


def _between(edges: tuple[int, ...], value: Any) -> int:
    size = value if type(value) is int else _whole(value)
    return edges[bisect_left(edges, size)] if size <= edges[-1] else edges[-1] + 1


def _between_span(edges: tuple[int, ...], value: int) -> Span | None:
    if value == edges[-1] + 1:
        return (value, None)
    if value not in edges:
        return None
    place = edges.index(value)
    return (edges[place - 1] + 1 if place else None, value)


@dataclass(frozen=True)
class _Kind:
    make: Callable[..., Bucket]
    rounding: Callable[..., int]
    span: Callable[[tuple[int, ...], int], Span | None]


KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "pow2": _Kind(lambda: pow2, _pow2, _pow2_span),
        "multiple": _Kind(multiple, _multiple, _multiple_span),
        "between": _Kind(between, _between, _between_span),
    }
)
"""The kinds of bucket, by their names in keys."""


RuleSource = str | Iterable["str | Bucket | BucketRule"]
"""Rules, or one rule."""

_RULE: Final = re.compile(r"(?:([\w.<>]+) *: *)?(\w+)\(([^()]*)\)")
_FORM: Final = "write pow2(M), multiple(128, M) or between(16, 256, M), after kernel_name: for one"


@dataclass(frozen=True)
class BucketRule:
    """A bucket of an argument in the keys of the kernels of a name, or of all kernels.

    Attributes:
        bucket: the bucket, bound to the argument.
        kernel: name of a kernel, alone or after (the end of) its module's; None for all kernels.
    """

    bucket: Bucket
    kernel: str | None = None

    def __str__(self) -> str:
        return f"{self.kernel}:{self.bucket}" if self.kernel else str(self.bucket)

    @classmethod
    def parse(cls, text: str) -> BucketRule:
        """Read a rule such as `kernel_name:multiple(128, seqlen)`.

        Raises:
            InputError: it is not one; says what is wrong with it.
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            raise InputError(f"bucket {shortened(text)!r} is no rule: {_FORM}")
        *numbers, argument = (part.strip() for part in match[3].split(","))
        if match[2] not in KINDS:
            hint = did_you_mean(match[2], KINDS)
            raise InputError(
                f"bucket {shortened(text)!r}: {match[2]} is no bucket: "
                f"they are {', '.join(KINDS)}{hint}"
            )
        if not argument.isidentifier():
            raise InputError(f"bucket {shortened(text)!r} names no argument: {_FORM}")
        if not all(re.fullmatch(r"-?\d{1,18}", number) for number in numbers):
            raise InputError(f"bucket {shortened(text)!r}: expected whole numbers, then a name")
        try:
            bucket = KINDS[match[2]].make(*map(int, numbers))
        except TypeError:
            count = {"pow2": "no number", "multiple": "one number"}[match[2]]
            raise InputError(f"bucket {shortened(text)!r}: {match[2]} takes {count}") from None
        return cls(bucket(argument), match[1])

    def names(self, kernel: str) -> bool:
        """Return whether the rule is for a kernel, by its full name."""
        return self.kernel is None or f".{kernel}".endswith(f".{self.kernel}")


@dataclass
class BucketRules:
    """Rules for the kernels of a process, and the kernels that it has met.

    The rule that names a kernel by more parts of its name counts before one that does by fewer.
    """

    rules: tuple[BucketRule, ...] = ()
    _kernels: dict[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: RuleSource) -> BucketRules:
        """Check rules.

        Raises:
            InputError: one is no rule, or two say different things of one argument.
        """
        listed = [given] if isinstance(given, str | Bucket | BucketRule) else given
        if not isinstance(listed, Iterable):
            raise ArgumentTypeError(
                f"buckets={shortened(repr(given))}: give a list of rules, such as ['pow2(M)']"
            )
        return cls(_checked([_rule(one) for one in listed]))

    def key(self, kernel: str, key: Sequence[str]) -> list[Any]:
        """Return the parts of a kernel's key, with the arguments that rules name in their buckets.

        Args:
            kernel: its full name.
            key: names of arguments.
        """
        self._kernels[kernel] = key
        own = sorted(
            (rule for rule in self.rules if rule.names(kernel)),
            key=lambda rule: len(rule.kernel.split(".")) if rule.kernel else 0,
        )
        buckets = {rule.bucket.argument: rule.bucket for rule in own}
        return [buckets.get(name, name) for name in key]

    def unused(self) -> list[str]:
        """Say of each rule that changed no key so far, in one line, what was met."""
        met = list(self._kernels.items())  # threads may still meet kernels
        lines = []
        for rule in self.rules:
            keys = {name for kernel, key in met if rule.names(kernel) for name in key}
            if rule.bucket.argument in keys:
                continue
            there = f"those that it names hold {_listed(sorted(keys))}"
            if not any(rule.names(kernel) for kernel, _ in met):
                there = f"the program has {_listed(kernel for kernel, _ in met)}"
            lines.append(f"bucket {rule} changed no key: {there}")
        return lines


def _listed(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "no kernel of triton.autotune") + rest


def _rule(given: Any) -> BucketRule:
    if isinstance(given, BucketRule):
        return given
    if isinstance(given, Bucket) and given.argument is not None:
        return BucketRule(given)
    if isinstance(given, str):
        return BucketRule.parse(given)
    raise ArgumentTypeError(f"bucket {shortened(str(given))} is no rule: {_FORM}")


def _checked(rules: Iterable[BucketRule]) -> tuple[BucketRule, ...]:
    known: dict[tuple[str | None, str | None], BucketRule] = {}
    for rule in rules:
        first = known.setdefault((rule.kernel, rule.bucket.argument), rule)
        if first != rule:
            raise InputError(f"buckets {first} and {rule} are of one argument: give one of them")
    return tuple(known.values())
