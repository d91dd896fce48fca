"""Rows of values as a pandas frame, with one dtype a column whatever is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd


def frame(
    rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str], facts: Mapping[str, Any]
) -> pd.DataFrame:
    """A row a mapping; columns in the order in which their names first come.

    Args:
        rows: values by column; a column that a row lacks is missing there.
        dtypes: of columns by name, as pandas has them; they are there even without a row.
            Others are whole numbers, floats, truth values or strings where all their values
            are, each with pandas's own sign for what is missing, and else objects.
        facts: what holds for all rows; the frame's `attrs`.

    Raises:
        MissingPackageError: there is no pandas.
    """
    pandas = _pandas()
    columns = list(dict.fromkeys([*(name for row in rows for name in row), *dtypes]))
    made = {
        name: pandas.Series(
            [row.get(name) for row in rows], dtype=dtypes.get(name, "object"), name=name
        )
        for name in columns
    }
    free = [name for name in columns if name not in dtypes]
    made |= {name: made[name].convert_dtypes() for name in free}
    built = pandas.DataFrame(made, columns=columns)
    built.attrs.update(facts)
    return built


def series(values: Mapping[str, float], name: str) -> pd.Series[float]:
    """Numbers by name.

    Raises:
        MissingPackageError: there is no pandas.
    """
    return _pandas().Series(dict(values), name=name, dtype="float64")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError(
            "to_pandas needs pandas, which is not installed: pip install 'asmtune[notebooks]'"
        ) from error
    return pandas
