"""`BucketRule`: buckets for the keys of kernels that somebody else has written.

A rule is `pow2(M)` for every kernel whose key has the argument M, or `attention:multiple(128, M)`
for the kernels of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.keys.buckets import KINDS, Bucket

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
