"""What a key is made of: buckets, functions of arguments, their values and what these cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.keys.buckets import (
    Bucket,
    BucketRule,
    BucketRules,
    between,
    bucket_of,
    multiple,
    pow2,
)
from asmtune.core.keys.parts import KeyPart, key_parts, values

NAMES = ("x_ptr", "M", "N", "K", "BLOCK")
NUMBERS = st.integers(-(1 << 40), 1 << 40) | st.integers(-70, 70)
BUCKETS = st.one_of(
    st.just(pow2),
    st.integers(1, 5000).map(multiple),
    st.lists(st.integers(-60, 300), min_size=1, max_size=5, unique=True).map(
        lambda edges: between(*sorted(edges))
    ),
)


def cells(M: int, N: int) -> int:
    """A function of two arguments."""
    return (M * N).bit_length()


def evaluate(key: Any, **arguments: Any) -> dict[str, Any]:
    """A key's values at a launch of `add`."""
    return values(key_parts(key, NAMES, "add"), arguments, "add")


@given(bucket=BUCKETS, first=NUMBERS, second=NUMBERS)
def test_buckets_are_monotone_and_idempotent(bucket: Bucket, first: int, second: int) -> None:
    """A larger number has no smaller bucket, and a bucket's value lies in the bucket."""
    low, high = sorted((first, second))
    assert bucket.function(low) <= bucket.function(high)
    assert bucket.function(bucket.function(first)) == bucket.function(first)


@given(bucket=BUCKETS, number=NUMBERS, other=NUMBERS)
def test_a_bucket_covers_what_maps_to_it(bucket: Bucket, number: int, other: int) -> None:
    """The span of a bucket's value holds exactly the numbers with that value."""
    value = bucket.function(number)
    span = bucket.span(value)
    assert span is not None
    low, high = span
    assert low is None or low <= number
    assert high is None or number <= high
    inside = (low is None or low <= other) and (high is None or other <= high)
    assert inside == (bucket.function(other) == value)
    for end, beyond in ((low, -1), (high, 1)):
        if end is not None:
            assert bucket.function(end) == value
            assert bucket.function(end + beyond) != value


@given(bucket=BUCKETS, number=NUMBERS)
def test_no_other_number_is_a_buckets_value(bucket: Bucket, number: int) -> None:
    """A number that no argument maps to has no span, and its name is enough to tell."""
    named = bucket_of(str(bucket("N")))
    assert named == bucket("N")
    assert named is not None
    assert (named.span(number) is None) == (bucket.function(number) != number)


def test_both_forms_give_the_same_parts() -> None:
    """A list and a mapping make the same buckets, and functions are named by what they take."""
    listed = key_parts(["M", pow2("N"), multiple(128, "K"), between(1, 64)("BLOCK")], NAMES)
    named = key_parts(
        {"M": None, "N": pow2, "K": multiple(128), "BLOCK": between(1, 64, argument="BLOCK")},
        NAMES,
    )
    assert [part.name for part in listed] == [
        "M", "pow2(N)", "multiple(128, K)", "between(1, 64, BLOCK)",
    ]  # fmt: skip
    assert [(p.name, p.needs) for p in listed] == [(p.name, p.needs) for p in named]
    assert listed[0] == KeyPart("M", ("M",), None)
    made = key_parts([cells, lambda K, M: K + M], NAMES)
    assert [(p.name, p.needs) for p in made] == [
        ("cells(M, N)", ("M", "N")),
        ("lambda(K, M)", ("K", "M")),
    ]
    assert key_parts({"cells": lambda M, N: M * N}, NAMES)[0].name == "cells(M, N)"
    assert key_parts((), NAMES) == ()


def test_values() -> None:
    """Every part has its value; functions take the arguments in their own order."""
    key = ["M", pow2("N"), multiple(128, "K"), lambda K, M: K - M, lambda x_ptr: x_ptr.shape[0]]
    found = evaluate(key, M=3, N=2049, K=385, x_ptr=torch.empty(7))
    assert found == {
        "M": 3, "pow2(N)": 4096, "multiple(128, K)": 512, "lambda(K, M)": 382, "lambda(x_ptr)": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (True, True),
        (None, None),
        (-(1 << 63), -(1 << 63)),
        ((1 << 64) - 1, (1 << 64) - 1),
        (1.5, 1.5),
        (np.int64(5), 5),
        (torch.float16, "fp16"),
        (tl.float8e4nv, "fp8e4nv"),
    ],
)
def test_plain_values(value: Any, plain: Any) -> None:
    """A number of another library's is the number that it equals, a dtype its name."""
    (found,) = evaluate(["M"], M=value).values()
    assert found == plain
    assert type(found) is type(plain)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], r"key M is \[1, 2\] \(list\): expected a finite number, text"),
        (math.nan, "key M is nan: expected a finite number"),
        (1 << 64, "key M is 18446744073709551616: expected a finite number"),
        (np.arange(2), r"key M is array\(\[0, 1\]\) \(ndarray\): expected"),
        (torch.tensor(4), r"key M is a tensor of i64 \(\): .*its dtype is part of every key"),
    ],
)
def test_values_that_are_not_plain(value: Any, message: str) -> None:
    """What no key can hold is refused with kernel, part, value and expectation, in one line."""
    with pytest.raises(InputError, match=f"^kernel add: {message}") as caught:
        evaluate(["M"], M=value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"^kernel add: key same\(M\) at M=.* is .*: expected"):
        evaluate({"same": lambda M: M}, M=value)


@pytest.mark.parametrize("bucket", [pow2, multiple(8), between(3, 5)])
@pytest.mark.parametrize("value", [True, 1.5, "8", None, torch.tensor(8)])
def test_buckets_are_of_whole_numbers(bucket: Bucket, value: Any) -> None:
    """A bucket refuses what is no whole number, and names the argument and its value."""
    with pytest.raises(InputError, match=r"at N=.*TypeError: a bucket is of whole numbers") as hit:
        evaluate([bucket("N")], N=value)
    assert str(hit.value).startswith(f"kernel add: key {bucket('N')} at N=")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda M: 1 // M, r"lambda\(M\) at M=0: ZeroDivisionError: .*division"),
        (lambda M: torch.zeros(2).view(3 + M), r"lambda\(M\) at M=0: RuntimeError: shape "),
        (lambda M: [M], r"lambda\(M\) at M=0 is \[0\] \(list\): expected a finite number"),
        (lambda N: N, r"lambda\(N\) needs argument N, and the launch has none"),
    ],
)
def test_functions_that_fail(function: Callable[..., Any], message: str) -> None:
    """A function that raises, gives nothing plain or lacks an argument is named with its input."""
    with pytest.raises(InputError, match=f"^kernel add: key {message}"):
        evaluate([function], M=0)


def test_lenient_values() -> None:
    """Under an unchanged program a tensor counts by its dtype and an object by its text."""
    parts = key_parts(["M", "N", "K"], NAMES)
    given = {"M": torch.zeros(2, dtype=torch.int8), "N": (1, 2), "K": math.inf}
    assert values(parts, given, strict=False) == {"M": "i8", "N": "(1, 2)", "K": "inf"}
    with pytest.raises(InputError, match=r"key M is \[1\] \(list\): unhashable type: 'list'"):
        values(parts, {"M": [1]}, "add", strict=False)


def anything(M: int, *rest: int) -> int:
    """Take more than it names."""
    return M + len(rest)


def by_keyword(M: int, *, N: int) -> int:
    """Take an argument by keyword alone."""
    return M + N


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (["BLOK"], r"key 'BLOK' is no parameter of add: .*BLOCK; did you mean BLOCK\?"),
        ([pow2("n_rows")], r"'n_rows' of key pow2\(n_rows\) is no parameter of add: they are x"),
        ([lambda M, n: M + n], r"'n' of key lambda\(M, n\) is no parameter of add"),
        ("M", "key='M': expected a list of names"),
        (["M", "N", "M"], "key 'M' is given twice"),
        (
            [lambda M: M, lambda M: -M],
            r"key 'lambda\(M\)' is given twice",
        ),
        ([pow2], r"key pow2 names no argument: write key=\[pow2\('N'\)\] or key=\{'N': pow2\}"),
        ([3], "key 3: expected the name of an argument, a bucket or a function"),
        ({"rows": pow2("M")}, r"key 'rows' is pow2\(M\), a bucket of M: put pow2\(M\) into a list"),
        ({"a(b)": cells}, r"key 'a\(b\)': expected a name of letters and digits"),
        ({"pow2": cells}, "key 'pow2' is a bucket of asmtune's: rename yours"),
        (
            [anything],
            r"key anything takes M, rest: expected",
        ),
        ([by_keyword], "key by_keyword takes M, N: expected"),
        ([lambda: 1], "key lambda takes nothing: expected a function"),
        ([max], "key max: no signature found.*wrap it: lambda N: max"),
    ],
)
def test_keys_that_do_not_fit(key: Any, message: str) -> None:
    """A key that cannot be made is refused when decorating, in one line that names the part."""
    with pytest.raises(InputError, match=f"^asm_autotune: {message}") as caught:
        key_parts(key, NAMES, "add")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: multiple(0), r"multiple\(0\): expected a whole number above 0"),
        (lambda: between(), r"between\(\): expected whole numbers, each above"),
        (lambda: between(4, 2), r"between\(4, 2\): expected"),
        (lambda: pow2(8), r"pow2\(8\): expected the name of an argument"),  # type: ignore[arg-type]
    ],
)
def test_buckets_that_cannot_be(make: Callable[[], Bucket], message: str) -> None:
    """A bucket of nothing, or whose name is none, is refused where it is made."""
    with pytest.raises(InputError, match=f"^{message}"):
        make()


@given(bucket=BUCKETS, kernel=st.sampled_from([None, "attn", "lib.ops.attn"]))
def test_a_rule_is_read_as_it_is_written(bucket: Bucket, kernel: str | None) -> None:
    """A rule's text gives the rule back, with any spaces."""
    rule = BucketRule(bucket("seqlen"), kernel)
    assert BucketRule.parse(str(rule)) == rule
    assert BucketRule.parse(f" {str(rule).replace(', ', ' ,').replace(':', ' : ')}") == rule


def test_rules_replace_arguments_of_keys() -> None:
    """A rule that names more of the kernel's name counts first; other arguments stay."""
    rules = BucketRules.of(["ops.attn:multiple(64, M)", "pow2(M)", "attn:multiple(128, M)"])
    parts = {
        name: list(map(str, rules.key(name, ["M", "N"])))
        for name in ("lib.ops.attn", "lib.attn", "lib.my_attn")
    }
    assert parts == {
        "lib.ops.attn": ["multiple(64, M)", "N"],
        "lib.attn": ["multiple(128, M)", "N"],
        "lib.my_attn": ["pow2(M)", "N"],
    }
    assert rules.unused() == []


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["M"], "bucket 'M' is no rule: write pow2"),
        (["pow2(M) pow2(N)"], "is no rule"),
        (["pwo2(M)"], r"pwo2 is no bucket: they are .*; did you mean pow2\?"),
        (["multiple(128)"], "names no argument"),
        (["pow2(2, M)"], "pow2 takes no number"),
        (["multiple(0, M)"], r"multiple\(0\): expected a whole number above 0"),
        (["between(5, 3, M)"], "expected whole numbers, each above"),
        (["pow2(M)", "multiple(8, M)"], r"pow2\(M\) and multiple\(8, M\) are of one argument"),
        ([pow2], "bucket pow2 is no rule"),
        (3, "buckets=3: give a list of rules"),
    ],
)
def test_rules_that_cannot_be(rules: Any, message: str) -> None:
    """A rule that does not parse is refused in one line that says how it is written."""
    with pytest.raises(InputError, match=message) as raised:
        BucketRules.of(rules)
    assert "\n" not in str(raised.value)


def test_rules_that_change_nothing() -> None:
    """A rule that named nothing is told with what there is."""
    rules = BucketRules.of(["pow2(Q)", "pow2(scale)", "atn:pow2(M)"])
    assert len(rules.unused()) == 3
    assert all(
        line.endswith("key: the program has no kernel of triton.autotune")
        for line in rules.unused()
    )
    rules.key("lib.attn", ["M", "N"])
    assert rules.unused() == [
        "bucket pow2(Q) changed no key: those that it names hold M, N",
        "bucket pow2(scale) changed no key: those that it names hold M, N",
        "bucket atn:pow2(M) changed no key: the program has lib.attn",
    ]


def test_values_that_no_bucket_rounds() -> None:
    """Under a rule for a kernel of somebody else, what is no whole number stands for itself."""
    parts = key_parts([pow2("M")], NAMES, "add", strict=False)
    for value, shown in ((5, 8), (None, None), (2.5, 2.5), (True, True), ("a", "a")):
        assert values(parts, {"M": value}, "add", strict=False) == {"pow2(M)": shown}
