"""Pandas frames from rows of values; a column's dtype does not depend on missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd


def frame(
    rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str], facts: Mapping[str, Any]
) -> pd.DataFrame:
    """Build a frame with a row per mapping; columns stand in the order of first appearance.

    Args:
        rows: values by column; a column that a row lacks is missing there.
        dtypes: pandas dtypes by column; these columns exist even without a row. Other columns
            get pandas's nullable integer, float, boolean or string dtype where all their
            values fit it, else object.
        facts: values that hold for all rows; they become the frame's `attrs`.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    pandas = _pandas()
    columns = {}
    for name in dict.fromkeys([*(name for row in rows for name in row), *dtypes]):
        values = [row.get(name) for row in rows]
        column = pandas.Series(values, dtype=dtypes.get(name, "object"), name=name)
        columns[name] = column if name in dtypes else column.convert_dtypes()
    result = pandas.DataFrame(columns, columns=list(columns))
    result.attrs.update(facts)
    return result


def series(values: Mapping[str, float], name: str) -> pd.Series[float]:
    """Build a series from numbers by name.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    return _pandas().Series(dict(values), name=name, dtype="float64")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError(
            "to_pandas needs pandas, which is not installed: "
            "pip install '.[notebooks]' in a clone of asmtune"
        ) from error
    return pandas
