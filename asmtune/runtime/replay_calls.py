"""`replay_calls`: functions of the host whose repeated calls go from Python to the driver at once.

    call -> signature -> prepared call -> allocations, launches, result           in C
                | none, or one that does not hold
                └> the function itself; a repeated signature's call is traced and kept

A signature is all that the function may decide by: dtypes, extents, strides, addresses by 16
bytes and gradients of tensors, which of them are one, values of everything else, device, stream,
grad mode, and default dtype. A trace
(`runtime/call_trace`) notes what the function allocates, its views, and its launches with their
arguments. `launch/native/calls.c` does the same again with other addresses. Whatever a trace does
not understand leaves its signature to the function.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar, cast, overload

import torch
from torch.compiler import is_dynamo_compiling

from asmtune.base.errors import ArgumentTypeError
from asmtune.core.alternatives import Alternatives, checked_alternatives, on_trial
from asmtune.runtime.call_trace import CallTrace, needs_gradient
from asmtune.runtime.launch.planning import MOST_PARAMETERS, kinds, tensor_backend
from asmtune.triton_api.launching import current_stream
from asmtune.triton_api.tensors import (
    MODES,
    apply_of,
    forward_level,
    is_view,
    raising_when_differentiated,
    tensor_functions,
    tree_leaves,
    tree_map,
)

_MOST_COUNTED: Final = 4096

_tracing: Final = threading.Lock()


P = ParamSpec("P")
R = TypeVar("R")


@overload
def replay_calls(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def replay_calls(
    *, alternatives: Alternatives | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@overload
def replay_calls(
    *,
    backward: Callable[..., Any],
    gradients: Sequence[str] = (),
    alternatives: Alternatives | None = None,
) -> Callable[[Callable[P, tuple[R, tuple[Any, ...]]]], Callable[P, R]]: ...


def replay_calls(
    function: Callable[..., Any] | None = None,
    *,
    backward: Callable[..., Any] | None = None,
    gradients: Sequence[str] = (),
    alternatives: Alternatives | None = None,
) -> Any:
    """Make a host function around autotuned kernels cheap to call again.

        @asmtune.replay_calls
        def add(x, y):
            out = torch.empty_like(x)
            add_kernel[grid](x, y, out, x.numel())
            return out

    The function may check its arguments, view them, allocate tensors, and launch kernels of
    `asm_autotune`. Repeated calls of a signature do the allocations and launches alone. It must
    decide by the signature only: not by values in tensors, random numbers, or globals that
    change; nor may another kernel get the name of one that it launches. A function that does
    anything else with tensors is called each time.

    Args:
        function: returns a tensor, a tuple of tensors, or None.
        backward: makes the function differentiable. It then returns `(result, saved)`, `saved` a
            tuple of tensors and plain values; `backward(*gradients_of_results, *saved)` returns
            the gradients of the first parameters. Its `needed`, where it has such a parameter,
            says of all parameters if they require one. Autograd is entered only where one does.
            To differentiate gradients again that have no graph, as those of a kernel, raises.
            Prepare it as well: repeated backward passes then are launches alone.
        gradients: names of those parameters; another tensor that requires a gradient is then
            refused with a ValueError. By default it gets none.
        alternatives: functions of the same arguments by name; they get all, by position where the
            function takes them so. Where an alternative of such a name has won one of the
            function's launches, and the others none, and no argument requires a gradient, the
            function of that name is called in its place: as long as its first result of a signature
            has the structure, dtypes, shapes and strides of the function's. Values are not
            compared.

    Raises:
        InputError: a parameter collects arguments, there are too many, or an alternative is not a
            function.
    """
    if function is None:
        return functools.partial(
            replay_calls, backward=backward, gradients=gradients, alternatives=alternatives
        )
    checked = checked_alternatives(alternatives)
    host = PreparedFunction(function, backward, checked, frozenset(gradients))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return host.ordinary(*args, **kwargs)
        return host.call(*args, **kwargs)

    call.prepared = host  # type: ignore[attr-defined]
    return call


class PreparedFunction:
    """A host function and its prepared calls; `replay_calls` describes the first four attributes.

    Attributes:
        function, backward, alternatives, gradients: the function, and what goes with it.
        refused: why calls were left to the function, each reason once.
        call: calls the function, or does what was prepared.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        backward: Callable[..., Any] | None,
        alternatives: Mapping[str, Callable[..., Any]],
        gradients: frozenset[str] = frozenset(),
    ) -> None:
        self._parameters = _checked_parameters(function)
        self.function, self.backward, self.alternatives = function, backward, alternatives
        self.gradients = gradients
        for name, alternative in alternatives.items():
            _check_takes(function, name, alternative)
        self.refused: dict[str, None] = {}
        self._graph_node = (
            None if backward is None else _graph_node(function, backward, self._parameters)
        )
        self._counts: dict[bytes, tuple[int, Any]] = {}
        self.call: Callable[..., Any] = self._first

    def __len__(self) -> int:
        """Count the prepared calls."""
        return len(cast(Any, self.call)) if hasattr(self.call, "keep") else 0

    def ordinary(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, without what was prepared."""
        if self._graph_node is None:
            return self.function(*args, **kwargs)
        if _is_differentiated((*args, *kwargs.values())):
            placed = self._placed(args, kwargs)
            self._check_gradients(placed)
            return self._graph_node.apply(None, *placed.values())
        return self.function(*args, **kwargs)[0]

    def _check_gradients(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if self.gradients and name not in self.gradients and needs_gradient(value):
                raise ValueError(
                    f"{self.function.__name__}: {name} requires a gradient, and gets none: "
                    "detach it"
                )

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        """Make the C part at the first call, since it may have to be built."""
        part = tensor_backend()
        self.call = self.ordinary if part is None else self.over(part)
        return self.call(*args, **kwargs)

    def over(self, part: Any) -> Any:
        """Make the object of the C part that looks calls up."""
        read = tensor_functions()
        parameters = self._parameters.values()
        return part.Prepared(
            tuple(self._parameters),
            _positional(self._parameters),
            tuple(part.GIVEN if p.default is p.empty else p.default for p in parameters),
            kinds(),
            (
                *(read.address, read.requires_grad, torch.is_grad_enabled),
                *(torch.get_default_dtype, read.is_conj, read.is_neg),
            ),
            current_stream(),
            MODES,
            (forward_level(),),
            read.empty,
            None if self._graph_node is None else apply_of(self._graph_node),
            functools.partial(self._slow, part),
        )

    def _slow(self, part: Any, args: Any, kwargs: Any, key: bytes | None, held: Any) -> Any:
        """Call the function; trace calls number 2, 4, 8, .. of a signature until one is kept."""
        if key is None:
            return self.ordinary(*args, **kwargs)
        if len(self._counts) >= _MOST_COUNTED:
            self._counts.clear()
        count = self._counts.get(key, (0, None))[0] + 1
        self._counts[key] = (count, held)
        if count == 1 or count & (count - 1) or not _tracing.acquire(blocking=False):
            return self.ordinary(*args, **kwargs)
        try:
            return self._traced(part, self._placed(args, kwargs), key, held)
        finally:
            _tracing.release()

    def _traced(self, part: Any, values: dict[str, Any], key: bytes, held: Any) -> Any:
        needed = _is_differentiated(values.values())
        attached = needed and self._graph_node is not None
        if attached:
            self._check_gradients(values)
        trace = CallTrace(part, tuple(values.values()))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not attached), trace:
            outcome = _called(self.function, self._parameters, values.values())
        result = outcome[0] if self.backward is not None and not attached else outcome
        tried = on_trial(self.alternatives, self.ordinary, result, self.refused)
        call = trace.call(result, {} if needed else tried, attached)
        if isinstance(call, str):
            self.refused[call] = None
        else:
            cast(Any, self.call).keep(key, call, held)
            self._counts.pop(key, None)
        if attached and self._graph_node is not None:
            return self._graph_node.apply(_own(outcome), *values.values())
        return result

    def _placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, in the parameters' order."""
        values = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        if len(values) < len(args) + len(kwargs) or not values.keys() <= self._parameters.keys():
            self.function(*args, **kwargs)  # raises Python's own TypeError
        return {
            name: values.get(name, parameter.default)
            for name, parameter in self._parameters.items()
        }


def _is_differentiated(values: Iterable[Any]) -> bool:
    """Return whether autograd is to hear of a call."""
    return torch.is_grad_enabled() and any(map(needs_gradient, values))


def _own(outcome: Any) -> Any:
    """Return a result, and what is saved for it, without views.

    Autograd lets nobody write to a view that its function made. A prepared call makes none.
    """
    result, saved = outcome
    views = [r for r in tree_leaves(result) if isinstance(r, torch.Tensor) and is_view(r)]
    own = {id(view): view.detach() for view in views}
    return tree_map(lambda value: own.get(id(value), value), (result, tuple(saved)))


def _checked_parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    if not inspect.isfunction(function):
        raise ArgumentTypeError(f"replay_calls: {function!r:.60} is no Python function")
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ArgumentTypeError(
                f"replay_calls: {function.__name__} collects arguments in {parameter}; name each"
            )
    if len(parameters) > MOST_PARAMETERS:
        raise ArgumentTypeError(
            f"replay_calls: {function.__name__} has {len(parameters)} parameters; "
            f"at most {MOST_PARAMETERS} fit a signature"
        )
    return parameters


def _signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # one of C's may have none
        return None


def _check_takes(function: Any, name: str, alternative: Callable[..., Any]) -> None:
    """Refuse an alternative that cannot be called in a function's place."""
    parameters = inspect.signature(function).parameters
    if (signature := _signature_of(alternative)) is None:
        return
    try:
        _called(signature.bind, parameters, parameters)
    except TypeError as error:
        raise ArgumentTypeError(
            f"replay_calls: alternatives[{name!r}] takes {signature}, not the arguments of "
            f"{function.__name__}: {error}"
        ) from error


def _positional(parameters: Mapping[str, inspect.Parameter]) -> int:
    """Count the parameters that may be given by position."""
    return sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())


def _called(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], values: Iterable[Any]
) -> Any:
    """Call a function with the values of all parameters in order, by position where it may be."""
    ordered, count = tuple(values), _positional(parameters)
    return function(
        *ordered[:count], **dict(zip([*parameters][count:], ordered[count:], strict=True))
    )


def _graph_node(
    function: Callable[..., Any],
    backward: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
) -> Any:
    """Make the autograd function that calls `backward` with what a call has saved."""
    asks = "needed" in getattr(_signature_of(backward), "parameters", ())

    class Prepared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, outcome: Any, *args: Any) -> Any:
            # An outcome is not one of the inputs, so that its tensors are new to autograd.
            if outcome is None:
                outcome = _called(function, parameters, args)
                outcome = outcome if is_dynamo_compiling() else _own(outcome)
            result, saved = outcome
            tensors = [value for value in saved if isinstance(value, torch.Tensor)]
            ctx.save_for_backward(*tensors)
            ctx.plain = [None if isinstance(v, torch.Tensor) else (v,) for v in saved]
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            tensors = iter(ctx.saved_tensors)
            saved = [next(tensors) if value is None else value[0] for value in ctx.plain]
            more = {"needed": ctx.needs_input_grad[1:]} if asks else {}
            results = backward(*gradients, *saved, **more)
            if isinstance(results, torch.Tensor):
                results = (results,)
            sources = (*gradients, *ctx.saved_tensors)
            results = refuse_second(function.__name__, tuple(results), sources)
            return (None, *results, *[None] * (len(parameters) - len(results)))

    return Prepared


def refuse_second(what: str, results: Any, sources: Iterable[Any]) -> Any:
    """Return gradients so that to differentiate them raises, where they have no graph.

    Args:
        what: the function whose gradients they are.
        results: gradients, some of which may be None.
        sources: what they were computed from.
    """
    if not torch.is_grad_enabled() or is_dynamo_compiling():
        return results
    given = results if isinstance(results, tuple) else (results,)
    places = [n for n, r in enumerate(given) if isinstance(r, torch.Tensor) and not r.requires_grad]
    if not places or not any(needs_gradient(source) for source in sources):
        return results
    message = f"{what}: its gradients cannot be differentiated again (create_graph=True)"
    refused = raising_when_differentiated(message, tuple(given[n] for n in places))
    found = dict(zip(places, refused, strict=True))
    return tuple(found.get(n, result) for n, result in enumerate(given))
