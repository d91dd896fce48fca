"""The one boundary where any exception becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from asmtune.base.errors import AsmtuneError, ProblemError
from asmtune.core.records.artifacts import Failure

T = TypeVar("T")

_DETAIL_LIMIT: Final = 2000
_QUOTE_LIMIT: Final = 100
_DEFINED: Final = re.compile(r"^def (\w+)", re.MULTILINE)
_KIND_OF_STAGE: Final = {"options": "options", "lower": "kernel", "ttir": "kernel"}

# What the message of an error says it was, most specific first.
_KINDS: Final = (
    ("registers", re.compile(r"Insufficient registers|C7602")),
    ("shared_memory", re.compile(r"shared (data|memory)", re.IGNORECASE)),
    ("memory", re.compile(r"MemoryError|bad_alloc|out of memory", re.IGNORECASE)),
    ("timeout", re.compile(r"took too long")),
    # A signal ended it, as the kernel does to who takes the machine's memory.
    ("crash", re.compile(r"ptxas` failed with error code -\d")),
    ("ptxas", re.compile(r"ptxas")),
)


def guarded(stage: str, work: Callable[[], T]) -> T | Failure:
    """What `work` returns, or the failure that its exception amounts to.

    Our own errors pass: they speak of the user's input, not of one config.
    """
    try:
        return work()
    except AsmtuneError:
        raise
    # The compiler, its plugins and the kernel's own source raise whatever they
    # like, RuntimeError from C++ included; each costs its config alone.
    except Exception as error:  # noqa: BLE001
        return _failure(stage, error)


def required(what: str, work: Callable[[], T]) -> T:
    """What `work`, code of the user's, returns.

    Args:
        what: what it makes, for the message.
        work: takes nothing.

    Raises:
        ProblemError: it raised; says what and why.
    """
    made = guarded("input", work)
    if isinstance(made, Failure):
        raise ProblemError(f"{what}: {made.detail.splitlines()[0]}")
    return made


def _failure(stage: str, error: Exception) -> Failure:
    """A failure with the kind that its message tells."""
    if _is_source_error(error):
        place, cause = f"{_places(error)}: ", _cause(error)
    else:
        place, cause = "", f"{type(error).__name__}: {error}"
    usual = _KIND_OF_STAGE.get(stage, "compiler")
    kind = next((name for name, pattern in _KINDS if pattern.search(cause)), usual)
    return Failure(stage, kind, _essence(place + cause))


def _is_source_error(error: BaseException) -> bool:
    """Whether it is a `CompilationError` of Triton's front end, which this room does not import."""
    return all(hasattr(error, name) for name in ("src", "node", "error_message"))


def _chain(error: BaseException) -> list[Any]:
    """The error and what it was raised from, outermost first."""
    chain: list[Any] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain


def _cause(error: BaseException) -> str:
    """What was wrong, without the source that Triton puts before it."""
    innermost = _chain(error)[-1]
    if _is_source_error(innermost):
        return str(innermost.error_message or type(innermost).__name__)
    return f"{type(innermost).__name__}: {innermost}"


def _places(error: BaseException) -> str:
    """`line 3 of the kernel, "x = f(y)"`, and on into the functions that it calls."""
    places: list[str] = []
    for part in filter(_is_source_error, _chain(error)):
        source, line = str(part.src or ""), int(getattr(part.node, "lineno", 1))
        name = _DEFINED.search(source)
        owner = name.group(1) if places and name else "the kernel"
        text = "".join(source.split("\n")[line - 1 : line]).strip()
        places.append(f'line {line} of {owner}, "{text[:_QUOTE_LIMIT]}"')
    return ", ".join(dict.fromkeys(places))


def _essence(message: str) -> str:
    """The message without the whole PTX or the repro command that Triton appends."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith("Repro command")]
    fatal = [line for line in kept if "fatal" in line and "aborted" not in line]
    return "\n".join(fatal or kept)[:_DETAIL_LIMIT]
