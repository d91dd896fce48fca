"""Exceptions of compilers and user code, turned into `Failure` values or one-line errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from asmtune.base.errors import AsmtuneError, InputError, ProblemError
from asmtune.core.records.artifacts import Failure

T = TypeVar("T")

_DETAIL_LIMIT: Final = 2000
_QUOTE_LIMIT: Final = 100
_DEFINED: Final = re.compile(r"^def (\w+)", re.MULTILINE)
_KIND_OF_STAGE: Final = {"options": "options", "lower": "kernel", "ttir": "kernel"}

# Python's own `compile` returns NULL where it has no memory to make an exception of it.
_SHORT_MEMORY: Final = re.compile(
    "MemoryError|bad_alloc|out of memory|allocate memory|function compile> returned NULL",
    re.IGNORECASE,
)

# Kinds of failure by patterns in an error's message, most specific first.
_KINDS: Final = (
    ("registers", re.compile(r"Insufficient registers|C7602")),
    ("shared_memory", re.compile(r"shared (data|memory)", re.IGNORECASE)),
    ("memory", _SHORT_MEMORY),
    ("disk", re.compile(r"No space left|No usable temporary|quota exceeded", re.IGNORECASE)),
    ("timeout", re.compile(r"took too long")),
    # A signal ended ptxas, as the kernel's out-of-memory killer does.
    ("crash", re.compile(r"ptxas` failed with error code -\d")),
    ("ptxas", re.compile(r"ptxas")),
)


def guarded(stage: str, work: Callable[[], T]) -> T | Failure:
    """Return the result of `work`, or its exception as a failure.

    asmtune's own errors pass through: they concern the user's input, not one config.
    """
    try:
        return work()
    except AsmtuneError:
        raise
    # The compiler, its plugins and the kernel's source raise any exception, RuntimeError
    # from C++ included; each must affect its own config alone.
    except Exception as error:  # noqa: BLE001
        return _failure(stage, error)


def of_one_config(stage: str, kind: str, work: Callable[[], T]) -> T | Failure:
    """Return the result of `work`, or its exception as the failure of the config that it is for.

    It is for what the user's functions say of one config: an `InputError` about it is no more.
    """
    try:
        result = guarded(stage, work)
    except InputError as error:
        return Failure(stage, kind, str(error))
    return replace(result, kind=kind) if isinstance(result, Failure) else result


def required(what: str, work: Callable[[], T]) -> T:
    """Return the result of `work`, which runs the user's code.

    Raises:
        ProblemError: `work` raised; names the result, as `what` calls it, and the cause.
    """
    result = guarded("input", work)
    if isinstance(result, Failure):
        raise ProblemError(f"{what}: {result.detail.splitlines()[0]}")
    return result


def _failure(stage: str, error: Exception) -> Failure:
    if _is_source_error(error):
        place, cause = f"{_places(error)}: ", _cause(error)
    else:
        place, cause = "", f"{type(error).__name__}: {error}"
    usual = _KIND_OF_STAGE.get(stage, "compiler")
    kind = next((name for name, pattern in _KINDS if pattern.search(cause)), usual)
    return Failure(stage, kind, _essence(place + cause))


def wants_memory(text: str) -> bool:
    """Return whether an error's message says that memory is short."""
    return _SHORT_MEMORY.search(text) is not None


def _is_source_error(error: BaseException) -> bool:
    """Recognise a `CompilationError` of Triton's front end, which this room does not import."""
    return all(hasattr(error, name) for name in ("src", "node", "error_message"))


def _chain(error: BaseException) -> list[Any]:
    chain: list[Any] = [error]  # outermost first
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain


def _cause(error: BaseException) -> str:
    """Return the innermost message, without the source that Triton puts before it."""
    innermost = _chain(error)[-1]
    if _is_source_error(innermost):
        return str(innermost.error_message or type(innermost).__name__)
    return f"{type(innermost).__name__}: {innermost}"


def _places(error: BaseException) -> str:
    """Return `line 3 of the kernel, "x = f(y)"`, and the lines in functions that it calls."""
    places: list[str] = []
    for part in filter(_is_source_error, _chain(error)):
        source, line = str(part.src or ""), int(getattr(part.node, "lineno", 1))
        name = _DEFINED.search(source)
        owner = name.group(1) if places and name else "the kernel"
        text = "".join(source.split("\n")[line - 1 : line]).strip()
        # Triton may name a caller's line with the source of the function that it calls.
        quote = f', "{text[:_QUOTE_LIMIT]}"' if text else ""
        places.append(f"line {line} of {owner}{quote}")
    return ", ".join(dict.fromkeys(places))


_OF_PTXAS: Final = re.compile(r"ptxas \S+, (line \d+); error\s*: (.*)")


def _essence(message: str) -> str:
    """Cut the PTX and the repro command that Triton appends to a message; ptxas's error first."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("Repro command")]
    fatal = [line for line in own if "fatal" in line and "aborted" not in line]
    refused = next(filter(None, map(_OF_PTXAS.match, own)), None)
    first = [] if refused is None else [f"ptxas at {refused[1]} of the PTX: {refused[2]}"]
    return "\n".join(fatal or first + own)[:_DETAIL_LIMIT]
