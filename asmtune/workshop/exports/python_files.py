"""Stored configs as Python files that run without asmtune, and such files read back.

`triton-configs` holds lists of `triton.Config` by key. `python` holds a function of the key, which
needs Python alone. Reading takes literals off the syntax tree: no file is executed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import version_of
from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.records.tuned import TuneKey
from asmtune.store.codec import config_from_json, key_from_json, key_to_json
from asmtune.store.seeds import KeyedConfigs, header_of
from asmtune.workshop.exports.literals import LANGUAGE, dict_literal, read_literal, value_literal

CONFIGS_FORMAT: Final = "asmtune-triton-configs"
FUNCTION_FORMAT: Final = "asmtune-python"
VERSION: Final = 1

_MOST_PARTS: Final = 90
"""Parts of a key that nested ifs serve: Python allows 100 levels of indentation."""

_CONFIGS_HEAD: Final = '''\
"""Configs of Triton kernels by key, the best of each key first; written by asmtune {version}.

    @triton.autotune(configs=configs("{kernel}"), key=[...])

`CONFIGS` has them by (kernel, device, dtypes, shape).
"""

import triton
{imports}
FORMAT = "{format}"
VERSION = {number}

CONFIGS = {{
'''

_CONFIGS_TAIL: Final = '''\
}


def configs(kernel, device=None):
    """Return the configs of a kernel's keys, on one device or on all, equal ones once."""
    unique = {}
    for (name, where, _, _), listed in CONFIGS.items():
        if name == kernel and device in (None, where):
            unique.update((str(config), config) for config in listed)
    if not unique:
        raise LookupError(f"no config of kernel {kernel!r} on device {device or 'any'}")
    return list(unique.values())
'''

_FUNCTION_HEAD: Final = '''\
"""The tuned config of a Triton kernel as a function of its key; written by asmtune {version}.

    values = config("{kernel}", dtypes, device, shape)
    kernel[grid](*arguments, **values)

It needs {needs} alone. A shape that is not stored gets the config of the nearest stored one of the
kernel, dtypes and device: that with the least sum of |log2| of the ratios of its sizes. Values
that are no sizes must be equal. No constraint is checked: for a kernel whose config must fit the
shape (BLOCK at least a row, say) give `strict=True`, with which a shape that is not stored raises
LookupError. A kernel, dtypes or a device that is not stored raises it in any case.
"""

from math import inf, log2
from numbers import Real
{imports}
FORMAT = "{format}"
VERSION = {number}

RECORDS = [
'''

_FUNCTION_TAIL: Final = """

def _nearest(stored, shape, strict):
    best, least = None, inf
    for index in () if strict else stored:
        away = _distance(RECORDS[index]["key"]["shape"], shape)
        if away < least:
            best, least = index, away
    if best is None:
        raise LookupError(f"no config is stored for shape {shape}, and none compares with it")
    return dict(RECORDS[best]["config"])


def _distance(stored, shape):
    arguments = [_ARGUMENTS.get(name, name) for name in stored]
    names = [a if arguments.count(a) == 1 else name for a, name in zip(arguments, stored)]
    named = dict(zip(names, stored.values()))
    if named.keys() != shape.keys():
        return inf
    total = 0.0
    for name, one in named.items():
        other = shape[name]
        if one == other:
            continue
        if not (_is_number(one) and _is_number(other) and 0 < one < inf and 0 < other < inf):
            return inf
        total += abs(log2(one) - log2(other))
    return total


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)
"""


def triton_configs(entries: Iterable[KeyedConfigs]) -> str:
    """Write the text of a Python file with lists of `triton.Config` by key."""
    listed = _sorted(entries)
    lines = [_head(_CONFIGS_HEAD, CONFIGS_FORMAT, listed)]
    for entry in listed:
        lines.append(f"    {_key_literal(entry.key)}: [\n")
        lines += [f"        {_call_literal(config)},\n" for config in entry.configs]
        lines.append("    ],\n")
    return "".join(lines) + _CONFIGS_TAIL


def function_file(entries: Iterable[KeyedConfigs]) -> str:
    """Write the text of a Python file with a function of the key, by the best configs.

    Raises:
        InputError: a key has more parts than ifs can be nested.
    """
    listed = _sorted(entries)
    for entry in listed:
        if len(entry.key.shape) > _MOST_PARTS:
            raise InputError(
                f"kernel {entry.key.kernel}: its key has {len(entry.key.shape)} parts, and nested "
                f"ifs take {_MOST_PARTS}; use --format triton-configs or json"
            )
    lines = [_head(_FUNCTION_HEAD, FUNCTION_FORMAT, listed)]
    for entry in listed:
        config = dict_literal(entry.configs[0].to_dict())
        lines.append(f"    {{'key': {key_to_json(entry.key)!r}, 'config': {config}}},\n")
    arguments = _arguments(listed)
    lines.append(f"]\n\n_ARGUMENTS = {arguments!r}\n\n\n")
    lines.append("def config(kernel, dtypes, device, shape, strict=False):\n")
    lines.append('    """Return the keywords of a launch: constexprs and compile options."""\n')
    lines += _branches(range(len(listed)), listed, arguments)
    lines.append('    key = f"kernel {kernel!r}, dtypes {dtypes}, device {device!r}"\n')
    lines.append('    raise LookupError(f"no config is stored for {key}")\n')
    return "".join(lines) + _FUNCTION_TAIL


def read_python(text: str | bytes) -> list[KeyedConfigs]:
    """Read the entries of a file that `triton_configs` or `function_file` has written.

    Raises:
        InputError: the text is no such file; says what is wrong, and in which line.
    """
    constants = _constants(text)
    form = read_literal(constants.get("FORMAT"), "FORMAT")
    readers: dict[Any, tuple[str, Callable[[ast.expr], list[KeyedConfigs]]]] = {
        CONFIGS_FORMAT: ("CONFIGS", _read_lists),
        FUNCTION_FORMAT: ("RECORDS", _read_records),
    }
    if not isinstance(form, str) or form not in readers:
        names = " or ".join(map(repr, readers))
        raise InputError(f"FORMAT is {form!r}: expected {names}, as `asmtune export` writes them")
    document = {"format": form, "version": read_literal(constants.get("VERSION"), "VERSION")}
    header_of(document, form, VERSION)
    name, reader = readers[form]
    if name not in constants:
        raise InputError(f"{name} is missing")
    return reader(constants[name])


def _head(template: str, name: str, listed: Sequence[KeyedConfigs]) -> str:
    kernel = listed[0].key.kernel
    plain = kernel if kernel.isascii() and kernel.isprintable() and '"' not in kernel else "kernel"
    plain = plain.replace("\\", "")
    kwargs = (config.stored_kwargs() for entry in listed for config in entry.configs)
    literals = ((value, value_literal(value)) for one in kwargs for value in one.values())
    has_dtypes = any("tl." in text for value, text in literals if text != repr(value))
    return template.format(
        version=version_of("asmtune"),
        kernel=plain,
        format=name,
        number=VERSION,
        imports=f"import {LANGUAGE} as tl\n" if has_dtypes else "",
        needs="Triton" if has_dtypes else "Python",
    )


def _sorted(entries: Iterable[KeyedConfigs]) -> list[KeyedConfigs]:
    names = ("kernel", "dtypes", "device", "shape")

    def place(entry: KeyedConfigs) -> list[str]:
        value = key_to_json(entry.key)
        return [json.dumps(value[name], sort_keys=True) for name in names]

    return sorted(entries, key=place)


def _key_literal(key: TuneKey) -> str:
    return repr((key.kernel, key.device, tuple(key.dtypes.items()), tuple(key.shape.items())))


def _call_literal(config: Config) -> str:
    options = {name: value for name in OPTION_AXES if (value := _option(config, name)) is not None}
    words = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"triton.Config({dict_literal(config.stored_kwargs())}{words})"


def _option(config: Config, name: str) -> Any:
    """Return an option to write; None for one that older versions of Triton need not know."""
    value = getattr(config, name)
    return None if name == "num_ctas" and value == 1 else value


def _arguments(entries: Iterable[KeyedConfigs]) -> dict[str, str]:
    """Return the arguments of buckets by the names of key parts: `n` for `pow2(n)`."""
    parts = {part for entry in entries for part in entry.key.shape}
    buckets = {part: bucket_of(part) for part in sorted(parts)}
    return {part: b.argument for part, b in buckets.items() if b is not None and b.argument}


def _names(parts: Sequence[str], arguments: Mapping[str, str]) -> dict[str, str]:
    """Return what the function calls the parts of a key.

    A bucket of an argument that the key has once more keeps its own name.
    """
    names = [arguments.get(part, part) for part in parts]
    return {
        part: name if names.count(name) == 1 else part
        for part, name in zip(parts, names, strict=True)
    }


def _branches(
    rows: Iterable[int], entries: Sequence[KeyedConfigs], arguments: Mapping[str, str]
) -> list[str]:
    """Write nested ifs over kernel, dtypes, device and the shape."""
    keys = [entry.key for entry in entries]
    lines: list[str] = []
    for kernel, of_kernel in _groups(rows, lambda row: keys[row].kernel):
        lines.append(f"    if kernel == {kernel!r}:\n")
        for dtypes, of_dtypes in _groups(of_kernel, lambda row: dict(keys[row].dtypes)):
            lines.append(f"        if dtypes == {dtypes!r}:\n")
            for device, of_device in _groups(of_dtypes, lambda row: keys[row].device):
                lines.append(f"            if device == {device!r}:\n")
                for parts, same in _groups(of_device, lambda row: sorted(keys[row].shape)):
                    names = _names(parts, arguments)
                    called = ", ".join(sorted(map(repr, names.values())))
                    test = f"shape.keys() == {{{called}}}" if parts else "not shape"
                    lines.append(f"{' ' * 16}if {test}:\n")
                    lines += _shape_branches(same, parts, keys, names)
                lines.append(f"{' ' * 16}return _nearest({of_device!r}, shape, strict)\n")
    return lines


def _shape_branches(
    rows: list[int],
    parts: Sequence[str],
    keys: Sequence[TuneKey],
    names: Mapping[str, str],
    indent: int = 20,
) -> list[str]:
    if not parts:
        return [f'{" " * indent}return dict(RECORDS[{rows[0]}]["config"])\n']
    first = parts[0]
    lines: list[str] = []
    groups = _groups(rows, lambda row: keys[row].shape[first])
    # True equals 1: the test by identity comes first.
    for value, same in sorted(groups, key=lambda group: not _is_constant(group[0])):
        lines.append(f"{' ' * indent}if {_test(first, names[first], value)}:\n")
        lines += _shape_branches(same, parts[1:], keys, names, indent + 4)
    return lines


def _test(part: str, name: str, value: Any) -> str:
    """Write the condition for a value of a key's part; a bucket's is a range of its argument."""
    spelled = f"shape[{name!r}]"
    bucket = bucket_of(part) if name != part else None
    span = bucket.span(value) if bucket is not None and type(value) is int else None
    if span is None:
        return f"{spelled} {'is' if _is_constant(value) else '=='} {value!r}"
    low, high = span
    if low == high:
        return f"{spelled} == {low}"
    lower = "" if low is None else f"{low} <= "
    upper = "" if high is None else f" <= {high}"
    return f"_is_number({spelled}) and {lower}{spelled}{upper}"


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _groups(rows: Iterable[int], of: Callable[[int], Any]) -> list[tuple[Any, list[int]]]:
    """Group rows by a value, in the order of their first; values of other types are others."""
    groups: dict[str, tuple[Any, list[int]]] = {}
    for row in rows:
        value = of(row)
        groups.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(row)
    return list(groups.values())


def _constants(text: str | bytes) -> dict[str, ast.expr]:
    """Return what a file assigns to names, by name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        cause = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise InputError(f"not Python ({cause}{f', line {line}' if line else ''})") from error
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _read_lists(node: ast.expr) -> list[KeyedConfigs]:
    if not isinstance(node, ast.Dict):
        raise InputError(f"line {node.lineno}: CONFIGS is no dict of lists by key")
    entries = []
    for key_node, value in zip(node.keys, node.values, strict=True):
        where = f"line {value.lineno}"
        parts = read_literal(key_node, "the key")
        if not isinstance(parts, tuple) or len(parts) != 4:
            raise InputError(f"{where}: expected the key (kernel, device, dtypes, shape)")
        kernel, device, dtypes, shape = parts
        try:
            pairs = {"dtypes": dict(dtypes), "shape": dict(shape)}
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: dtypes and shape are no pairs") from error
        key = key_from_json({"kernel": kernel, "device": device, **pairs}, where)
        if not isinstance(value, ast.List) or not value.elts:
            raise InputError(f"{where}: expected a list of triton.Config")
        entries.append(KeyedConfigs(key, tuple(map(_config_of, value.elts))))
    return entries


def _config_of(node: ast.expr) -> Config:
    where = f"line {node.lineno}"
    is_config = isinstance(node, ast.Call) and ast.unparse(node.func) == "triton.Config"
    if not is_config or not isinstance(node, ast.Call) or len(node.args) != 1:
        raise InputError(f"{where}: expected triton.Config({{...}}, num_warps=..., num_stages=...)")
    kwargs = read_literal(node.args[0], "the first argument", as_stored=True)
    if not isinstance(kwargs, dict):
        raise InputError(f"{where}: expected a dict of constexprs")
    options = {word.arg: read_literal(word.value, f"{word.arg}") for word in node.keywords}
    unknown = [name for name in options if name not in OPTION_AXES]
    if unknown:
        raise InputError(f"{where}: option {unknown[0]!r} is none of {', '.join(OPTION_AXES)}")
    return config_from_json({**kwargs, **options}, where)


def _read_records(node: ast.expr) -> list[KeyedConfigs]:
    records = read_literal(node, "RECORDS", as_stored=True)
    if not isinstance(records, list):
        raise InputError(f"line {node.lineno}: RECORDS is no list")
    entries = []
    for index, record in enumerate(records):
        where = f"RECORDS[{index}]"
        if not isinstance(record, dict) or record.keys() != {"key", "config"}:
            raise InputError(f"{where}: expected a key and a config")
        key = key_from_json(record["key"], f"{where}['key']")
        config = config_from_json(record["config"], f"{where}['config']")
        entries.append(KeyedConfigs(key, (config,)))
    return entries
