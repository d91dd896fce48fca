"""Alternatives: the user's functions that are timed beside the configs and called if one wins.

A record names the winning alternative in its winner, `Config.alternative`; the rest of that config
is the best one, which is launched where the name is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from asmtune.base.errors import ArgumentTypeError, AsmtuneError, InputError
from asmtune.base.text import shortened
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.triton_api.jit_functions import is_kernel
from asmtune.triton_api.user_state import inside

Alternatives = Mapping[str, Callable[..., Any]]
"""Functions of a launch's arguments by name."""

_MOST_NAME: Final = 64
_FORM: Final = 'a dict of functions by name, such as {"cublas": fn}'


def checked_alternatives(given: Any) -> dict[str, Callable[..., Any]]:
    """Check `alternatives=` and return it; {} for None.

    Raises:
        InputError: it is no dict of functions by name, or a record cannot hold a name.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(f"alternatives={shortened(repr(given))}: expected {_FORM}")
    for name, function in given.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"alternatives: name {name!r:.60} is no text: expected {_FORM}")
        if not 0 < len(name) <= _MOST_NAME or not name.isprintable() or name != name.strip():
            raise InputError(
                f"alternatives: name {shortened(ascii(name))}: give 1 to {_MOST_NAME} printable "
                "characters without spaces around them"
            )
        if not callable(function) or is_kernel(function):
            raise ArgumentTypeError(
                f"alternatives[{name!r}]={shortened(repr(function))}: expected a function of the "
                "launch's arguments"
            )
    return dict(given)


def caller(
    function: Callable[..., Any], parameters: Sequence[str], given: Collection[str], skip: int = 0
) -> Callable[..., None]:
    """Return a function of the values of all parameters, in order, that calls an alternative.

    Arguments up to the first parameter that a launch does not give are passed by position, those
    after it by name. Gradients are off, as around a launch. A function that it returns is called
    at once; anything else is dropped.

    Args:
        function: the alternative.
        parameters: the kernel's, in order.
        given: those that the launch gives; the config's values are not passed.
        skip: values before those of the parameters, which are not passed.
    """
    from torch import is_grad_enabled, set_grad_enabled

    passed = _passing(function, parameters, given, skip)

    def call(*values: Any) -> None:
        if not is_grad_enabled():
            _finish(passed(*values))
            return
        # Calls, not `with no_grad()`, which takes 4 us more.
        set_grad_enabled(False)
        try:
            _finish(passed(*values))
        finally:
            set_grad_enabled(True)

    return call


def _finish(returned: Any) -> None:
    """Call what an alternative has returned if it is a function."""
    if callable(returned):
        returned()


def _passing(
    function: Callable[..., Any], parameters: Sequence[str], given: Collection[str], skip: int
) -> Callable[..., Any]:
    """Return a function of the values of all parameters that passes on those of a launch."""
    gap = next((i for i, name in enumerate(parameters) if name not in given), len(parameters))
    end = skip + gap
    named = [(name, skip + i) for i, name in enumerate(parameters) if i > gap and name in given]

    def by_name(*values: Any) -> Any:
        return function(*values[skip:end], **{name: values[index] for name, index in named})

    def by_position(*values: Any) -> Any:
        return function(*values[skip:end])

    return by_name if named else by_position


def call_of(
    function: Callable[..., Any], parameters: Sequence[str], arguments: Mapping[str, Any]
) -> Callable[[], None]:
    """Return a function that calls an alternative with a launch's arguments by name."""
    call = caller(function, parameters, arguments)
    values = [arguments.get(name) for name in parameters]
    return lambda: call(*values)


def raised_by(run: Callable[[], Any]) -> str | None:
    """Call an alternative; return what it or a kernel of its own raised, by type and text."""
    try:
        made = guarded("alternative", run)
    except AsmtuneError as error:
        return f"{type(error).__name__}: {error}"
    return made.detail if isinstance(made, Failure) else None


def calls_in_race(
    function: Callable[..., Any], parameters: Sequence[str], arguments: Mapping[str, Any]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what a race times of an alternative, and what it calls after it, untimed.

    The second calls the function that the first has returned, if it has. One that fails costs
    itself alone: it may launch kernels of its own, and asmtune's errors of those would end the
    tuning.
    """
    passed = _passing(function, parameters, arguments, 0)
    values = [arguments.get(name) for name in parameters]
    returned: list[Any] = []

    def guarded(work: Callable[[], None]) -> None:
        from torch import no_grad

        try:
            with inside(), no_grad():
                work()
        except AsmtuneError as error:
            raise RuntimeError(str(error)) from error

    def run() -> None:
        returned[:] = [passed(*values)]

    def complete() -> None:
        while returned:  # what it holds is memory
            _finish(returned.pop())

    return partial(guarded, run), partial(guarded, complete)


def on_trial(
    alternatives: Alternatives, function: Callable[..., Any], result: Any, refused: dict[str, None]
) -> Alternatives:
    """Return callers of alternatives, which call the function once a first result differs.

    Args:
        alternatives: what may be called in the function's place.
        function: the function.
        result: what it returns for such arguments; structure, dtypes, shapes and strides count.
        refused: gets what differs.
    """
    wanted = _form(result)

    def tried(name: str, alternative: Callable[..., Any]) -> Callable[..., Any]:
        chosen: Callable[..., Any] | None = None

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal chosen
            if chosen is None:
                made = guarded("alternative", lambda: alternative(*args, **kwargs))
                if (found := _form(made)) == wanted:
                    chosen = alternative
                    return made
                chosen = function
                refused[f"alternative {name!r} gave {found}, and the function {wanted}"] = None
            return chosen(*args, **kwargs)

        return call

    return {name: tried(name, alternative) for name, alternative in alternatives.items()}


def _form(result: Any) -> Any:
    """Describe a result's structure and tensors; along an axis of 1 no stride is taken."""
    if isinstance(result, tuple):
        return tuple(map(_form, result))
    if not hasattr(result, "stride"):
        return repr(result)
    steps = zip(result.shape, result.stride(), strict=True)
    strides = tuple(step if extent > 1 else 0 for extent, step in steps)
    return result.dtype, result.device, tuple(result.shape), strides
