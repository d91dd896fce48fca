"""Patterns for the values of index tensors: `ragged(64, 2048)`, `zipf(4096, 128)`.

A pattern replaces data that is not there. Its values are random but for the seed, so that the
same text gives the same values everywhere.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError, ProblemError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.index_values import IndexValues, is_index, values_of
from asmtune.core.inputs.sizes import Sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST: Final = 1 << 24
"""Most elements that a pattern makes: 128 MiB while they are drawn."""

FORMS: Final = (
    "uniform(count, low, high), ragged(count, mean) or ragged(count, total=N) for the offsets of "
    "count segments, lengths(count, mean) or lengths(count, total=N), zipf(count, ids), "
    "sparse(count, share), permutation(count), arange(count), constant(count, value), "
    "values(3, 1, 2); the random ones take seed=N, and zipf exponent=X"
)
"""The patterns, for messages. `count` may be left out where the tensor's size is known."""

_CALL: Final = re.compile(r"(?:(?P<dtype>[^:()]*):)?\s*(?P<name>[A-Za-z_]\w*)\s*\((?P<rest>.*)\)")


def _lengths(
    rng: np.random.Generator, count: int, mean: float = 0.0, *, total: int | None = None
) -> NDArray[np.int64]:
    """Draw lengths of 0 to about twice their mean, whose sum is the total."""
    import numpy as np

    whole = round(mean * count) if total is None else int(total)
    weights = rng.random(count)
    ends = np.floor(np.cumsum(weights) / weights.sum() * whole + 0.5).astype(np.int64)
    ends[-1] = whole
    return np.diff(ends, prepend=0)


def _ragged(
    rng: np.random.Generator, count: int, mean: float = 0.0, *, total: int | None = None
) -> NDArray[np.int64]:
    import numpy as np

    return np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(_lengths(rng, count, mean, total=total))]
    )


def _uniform(rng: np.random.Generator, count: int, low: int, high: int) -> NDArray[np.int64]:
    return rng.integers(int(low), int(high), count, endpoint=True)


def _zipf(
    rng: np.random.Generator, count: int, ids: int, *, exponent: float = 1.0
) -> NDArray[np.int64]:
    """Draw ids below `ids`; the n-th is drawn as often as 1 / n**exponent says."""
    import numpy as np

    shares = np.cumsum(np.arange(1, int(ids) + 1) ** -float(exponent))
    drawn = np.searchsorted(shares / shares[-1], rng.random(count), side="right")
    return np.minimum(drawn, len(shares) - 1)


def _sparse(rng: np.random.Generator, count: int, share: float) -> NDArray[np.int64]:
    """Set the given share of flags, to the nearest whole number of them."""
    import numpy as np

    flags = np.zeros(count, np.int64)
    flags[: round(share * count)] = 1
    return rng.permutation(flags)


def _permutation(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return rng.permutation(count)


def _arange(_: np.random.Generator, count: int) -> NDArray[np.int64]:
    import numpy as np

    return np.arange(count)


def _constant(_: np.random.Generator, count: int, value: int) -> NDArray[np.int64]:
    import numpy as np

    return np.full(count, int(value))


_PATTERNS: Final[Mapping[str, Callable[..., Any]]] = {
    "uniform": _uniform,
    "ragged": _ragged,
    "lengths": _lengths,
    "zipf": _zipf,
    "sparse": _sparse,
    "permutation": _permutation,
    "arange": _arange,
    "constant": _constant,
}
_FRACTIONS: Final = frozenset({"share", "mean", "exponent"})
_LEAST: Final = {"mean": 0, "total": 0, "ids": 1, "exponent": 0, "share": 0, "seed": 0}


@dataclass(frozen=True)
class Pattern:
    """A pattern as a user wrote it.

    Attributes:
        where: the option or argument that holds it, for messages.
        text: with its name and arguments, without the dtype.
        dtype: canonical name of the dtype that was written before it, or "".
        sizes: the tensor's sizes that were written after the dtype, as written; or None.
    """

    where: str
    text: str
    dtype: str = ""
    sizes: str | None = None

    @classmethod
    def parse(cls, where: str, text: str) -> Pattern:
        """Read `ragged(64, 2048)`, `i64: ragged(64, 2048)` or `i32[rows + 1]: ragged(2048)`.

        Raises:
            InputError: there is no such pattern, or no such dtype of integers.
        """
        parts = _CALL.fullmatch(text.strip())
        name = parts["name"] if parts else shortened(text)
        if parts is None or name not in (*_PATTERNS, "values"):
            hint = did_you_mean(name, (*_PATTERNS, "values"))
            raise InputError(f"{where}: no pattern {name!r}{hint}; the patterns are {FORMS}")
        dtype, _, sizes = (parts["dtype"] or "").partition("[")
        if dtype.strip():
            dtype = canonical_dtype(dtype.strip())
            if dtype.startswith(("fp", "bf")):
                raise InputError(f"{where}: an index tensor holds integers, not {dtype}")
        is_sized = sizes.rstrip().endswith("]")
        own = f"{name}({parts['rest'].strip()})"
        return cls(where, own, dtype.strip(), sizes.rstrip()[:-1] if is_sized else None)

    def draw(self, elements: int | None, numbers: Mapping[str, Any]) -> IndexValues:
        """Make the values.

        Args:
            elements: of the tensor, where it is known; the pattern must make as many.
            numbers: values of the names that it has in the place of a number.

        Raises:
            InputError: an argument is missing, too many, no number, or out of range; or it makes
                another number of elements.
        """
        import numpy as np

        name, rest = self.text[:-1].split("(", 1)
        positional, named = self._arguments(rest, numbers)
        if name == "values":
            drawn = np.array([self._whole("a value", value) for value in positional], np.int64)
            if not len(drawn) or named:
                raise self._error("it takes one whole number or more")
        else:
            drawn = self._drawn(name, elements, positional, named)
        if elements is not None and len(drawn) != elements:
            raise self._error(f"it makes {len(drawn):,} elements, and the tensor has {elements:,}")
        dtype = self.dtype or "i32"
        bits = int(dtype[1:])
        limit = 2 ** (bits - (dtype[0] == "i" and bits > 1)) - 1
        most = int(max(drawn.max(), -drawn.min() - (bits > 1)))
        if most > limit:
            raise self._error(f"it reaches {most:,}, and {dtype} ends at {limit:,}")
        width = np.dtype(f"i{bits // 8 or 1}")
        return IndexValues(drawn.astype(width), f"the pattern {self.text}")

    def _drawn(
        self, name: str, elements: int | None, positional: list[float], named: dict[str, float]
    ) -> NDArray[np.int64]:
        import numpy as np

        function, seed = _PATTERNS[name], named.pop("seed", 0)
        self._check("seed", seed)
        rng = np.random.default_rng(int(seed))
        forms = [positional]
        if elements is not None and "count" not in named:  # the tensor's size may replace it
            forms.append([elements - (name == "ragged"), *positional])
        for values in forms:
            with suppress(TypeError):
                bound = inspect.signature(function).bind(rng, *values, **named)
                given = {key: value for key, value in bound.arguments.items() if value is not rng}
                if given.keys() & {"mean", "total"} or name not in ("ragged", "lengths"):
                    break
        else:
            raise self._error(f"its arguments do not fit; the patterns are {FORMS}")
        for key, value in given.items():
            self._check(key, value)
        if given.get("low", 0) > given.get("high", math.inf):
            raise self._error(f"low is {given['low']}, above high, {given['high']}")
        bound.arguments["count"] = int(given["count"])
        drawn: NDArray[np.int64] = function(*bound.args, **bound.kwargs)
        return drawn

    def _check(self, key: str, value: float) -> None:
        if not math.isfinite(value):
            raise self._error(f"{key} is {value}; expected a number")
        if key == "count" and not 1 <= value <= MOST:
            raise self._error(f"count is {value}; expected a whole number from 1 to {MOST:,}")
        if key == "ids" and value > MOST:
            raise self._error(f"ids is {value}; expected a whole number from 1 to {MOST:,}")
        if key not in _FRACTIONS:
            self._whole(key, value)
        least, most = _LEAST.get(key, -math.inf), 1 if key == "share" else 2**62
        if not least <= value <= most:
            limits = "from 0 to 1" if key == "share" else f"of at least {least}"
            raise self._error(f"{key} is {value}; expected a number {limits}")

    def _whole(self, key: str, value: float) -> int:
        if not math.isfinite(value) or value != int(value):
            raise self._error(f"{key} is {value}; expected a whole number")
        return int(value)

    def _arguments(
        self, rest: str, numbers: Mapping[str, Any]
    ) -> tuple[list[float], dict[str, float]]:
        try:
            call = ast.parse(f"f({rest})", mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise self._error(
                f"its arguments are no list of numbers; the patterns are {FORMS}"
            ) from error
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise self._error(f"its arguments are no list of numbers; the patterns are {FORMS}")
        named = {str(one.arg): self._number(one.value, numbers) for one in call.keywords}
        return [self._number(one, numbers) for one in call.args], named

    def _number(self, node: ast.expr, numbers: Mapping[str, Any]) -> float:
        """Read a number, or a size such as `rows // 64`."""
        plain = node.operand if isinstance(node, ast.UnaryOp) else node
        is_plain = plain is node or isinstance(getattr(node, "op", None), ast.USub)
        if is_plain and isinstance(plain, ast.Constant) and isinstance(plain.value, int | float):
            return plain.value if plain is node else -plain.value
        size = Sizes(f"{self.where} {self.text}, size", ast.unparse(node), (2**62,))
        size.check_names(name for name, value in numbers.items() if type(value) is int)
        return size(numbers)[0]

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.where}: {self.text!r}: {what}")


def pattern_of(name: str, text: str, tensor: Any, numbers: Mapping[str, Any]) -> IndexValues:
    """Make the values that `--arg NAME=PATTERN` gives an index tensor of a kernel module.

    Raises:
        InputError: it is no pattern, or its dtype or size is not the tensor's.
    """
    pattern = Pattern.parse(f"--arg {name}", text)
    dtype = canonical_dtype(str(tensor.dtype))
    if pattern.dtype not in ("", dtype):
        raise InputError(f"--arg {name}: {text!r}: the tensor is of {dtype}; leave the dtype out")
    return replace(pattern, dtype=dtype).draw(int(tensor.numel()), numbers)


def checked_values(
    kernel: str, values: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, IndexValues]:
    """Make the values that a problem's `index_values` describe.

    Raises:
        ProblemError: a name is no argument, or no index tensor; or a value is neither a pattern
            nor an integer tensor with elements.
        InputError: a pattern is malformed, or has another size than the tensor.
    """
    made: dict[str, IndexValues] = {}
    numbers = {name: value for name, value in arguments.items() if type(value) is int}
    for name, value in values.items():
        where = f"kernel {kernel}: index_values[{name!r}]"
        tensor = arguments.get(name)
        if isinstance(value, IndexValues):
            made[name] = value
        elif tensor is None or not is_index(tensor):
            raise ProblemError(f"{where}: the kernel is given no integer tensor of this name")
        elif isinstance(value, str):
            pattern = replace(Pattern.parse(where, value), dtype=canonical_dtype(str(tensor.dtype)))
            made[name] = pattern.draw(int(tensor.numel()), numbers)
        else:
            table = values_of(value, "values given with the problem") if is_index(value) else ""
            if isinstance(table, str):
                raise ProblemError(f"{where}: expected an integer tensor on the CPU, or a pattern")
            made[name] = table
    return made
