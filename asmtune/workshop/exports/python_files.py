"""Stored configs as a Python file that runs without asmtune.

A store holds dtypes as text. A literal of the file has the value that a kernel takes, with `tl` for
Triton's language; a text that names a dtype is taken for the dtype. A tuple is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import version_of
from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.codec import config_text, key_to_json
from asmtune.store.interchange import abridged

_HEAD: Final = '''\
"""The tuned configs of Triton kernels by key; written by asmtune {version}.

    values = config("{kernel}", dtypes, device, shape)
    kernel[grid](*arguments, **values)

    @triton.autotune(configs=configs("{kernel}"), key=[...])

`config` needs {needs} alone. A shape that is not stored gets the config of the nearest stored one
of the kernel, dtypes and device: that with the least sum of |log2| of the ratios of its sizes.
Values that are no sizes must be equal. No constraint is checked: for a kernel whose config must fit
the shape (BLOCK at least a row, say) give `strict=True`, with which a shape that is not stored
raises LookupError. A kernel, dtypes or a device that is not stored raises it in any case.
"""

from math import inf, log2
from numbers import Real
{imports}
OPTIONS = {options!r}

# Kernel, dtypes, device, shape and configs, the best first; (low, high) is a range of sizes.
RECORDS = [
'''

_TAIL: Final = '''\
]


def config(kernel, dtypes, device, shape, strict=False):
    """Return the keywords of a launch: constexprs and compile options."""
    stored = [row for row in RECORDS if row[:3] == (kernel, dtypes, device)]
    if not stored:
        key = f"kernel {kernel!r}, dtypes {dtypes}, device {device!r}"
        raise LookupError(f"no config is stored for {key}")
    away = [_distance(row[3], shape) for row in stored]
    if min(away) == inf or (strict and min(away) > 0):
        raise LookupError(f"no config is stored for shape {shape}, and none compares with it")
    return dict(stored[away.index(min(away))][4][0])


def configs(kernel, device=None):
    """Return `triton.Config`s of a kernel's keys, on one device or on all, equal ones once."""
    import triton

    unique = {}
    for name, _, where, _, listed in RECORDS:
        for values in listed if name == kernel and device in (None, where) else ():
            kwargs = {n: value for n, value in values.items() if n not in OPTIONS}
            options = {n: values[n] for n in OPTIONS if n in values}
            unique.setdefault(repr(values), triton.Config(kwargs, **options))
    if not unique:
        raise LookupError(f"no config of kernel {kernel!r} on device {device or 'any'}")
    return list(unique.values())


def _distance(stored, shape):
    """Return 0 for the same shape, inf for one that does not compare."""
    if stored.keys() != shape.keys():
        return inf
    total = 0.0
    for name, one in stored.items():
        other = shape[name]
        if isinstance(one, tuple):
            low, high = one
            if _is_size(other) and (low or 0) <= other <= (inf if high is None else high):
                continue
            one = low if high is None else high
        elif one == other and isinstance(one, bool) == isinstance(other, bool):
            continue
        if not (_is_size(one) and _is_size(other)):
            return inf
        total += abs(log2(one) - log2(other)) or 1e-9
    return total


def _is_size(value):
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < value < inf
'''

_DTYPES: Final[Mapping[str, str]] = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8e4nv", "fp8e4b8": "float8e4b8", "fp8e4b15": "float8e4b15",
    "fp8e5": "float8e5", "fp8e5b16": "float8e5b16", "int1": "int1",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Names of dtypes in `triton.language` by the text that a store holds."""


@dataclass(frozen=True)
class KeyedConfigs:
    """A key, and at least one config of it, the best first."""

    key: TuneKey
    configs: tuple[Config, ...]


def configs_of(record: TuneRecord, count: int) -> KeyedConfigs:
    """Return a record's winner and its fastest others, `count` in all.

    A config of hand-edited IR is left out, since its file does not travel.
    """
    timed = (timing.config.plain for timing in abridged(record, count).measurements)
    plain = (c for c in (record.winner.plain, *timed) if c.ir_override is None)
    distinct = {config_text(config): config for config in plain}
    return KeyedConfigs(record.key, (*distinct.values(),)[:count])


def python_file(entries: Iterable[KeyedConfigs]) -> str:
    """Write the text of a Python file with functions of the key and of the kernel.

    Raises:
        InputError: a config has a tuple.
    """
    listed = sorted(entries, key=_place)
    configs = [[_dict_literal(c.to_dict()) for c in entry.configs] for entry in listed]
    kernel = listed[0].key.kernel
    plain = kernel if kernel.isascii() and kernel.isprintable() and '"' not in kernel else "kernel"
    values = (v for e in listed for c in e.configs for v in c.stored_kwargs().values())
    has_dtypes = any(isinstance(value, str) and value in _DTYPES for value in values)
    head = _HEAD.format(
        version=version_of("asmtune"),
        kernel=plain.replace("\\", ""),
        needs="Triton" if has_dtypes else "Python",
        imports="\nimport triton.language as tl\n" if has_dtypes else "",
        options=tuple(OPTION_AXES),
    )
    rows = []
    for entry, literals in zip(listed, configs, strict=True):
        key = entry.key
        named = f"{key.kernel!r}, {dict(key.dtypes)!r}, {key.device!r}, {_spans(key)!r}"
        rows.append(f"    ({named}, [{', '.join(literals)}]),\n")
    return head + "".join(rows) + _TAIL


def _place(entry: KeyedConfigs) -> list[str]:
    value = key_to_json(entry.key)
    names = ("kernel", "dtypes", "device", "shape")
    return [json.dumps(value[name], sort_keys=True) for name in names]


def _spans(key: TuneKey) -> dict[str, Any]:
    """Return the values of a key by argument; a bucket's is the range of its argument.

    A bucket of an argument that the key has once more keeps its own name and value.
    """
    buckets = {part: bucket_of(part) for part in key.shape}
    names = {part: (b and b.argument) or part for part, b in buckets.items()}
    spans: dict[str, Any] = {}
    for part, value in key.shape.items():
        bucket, name = buckets[part], names[part]
        if list(names.values()).count(name) > 1:
            spans[part] = value
            continue
        span = bucket.span(value) if bucket is not None and type(value) is int else None
        spans[name] = value if span is None or name == part else span
    return spans


def _dict_literal(values: Mapping[str, Any]) -> str:
    items = ", ".join(f"{name!r}: {_literal(value)}" for name, value in values.items())
    return f"{{{items}}}"


def _literal(value: Any) -> str:
    """Write a stored value of a config; the text of a dtype as the dtype.

    Raises:
        InputError: it is the text of a tuple, whose values a store does not tell.
    """
    if isinstance(value, str) and value in _DTYPES:
        return f"tl.{_DTYPES[value]}"
    if isinstance(value, str) and value.startswith("(") and value.endswith(")"):
        raise InputError(
            f"a config has the tuple {value}, which a Python file cannot hold; take --format json"
        )
    return repr(value)
