"""Records as rows of plain values for CSV files, pandas frames and notebooks."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import MissingPackageError
from asmtune.core.config import ALTERNATIVE, OPTION_AXES, Config

if TYPE_CHECKING:
    import pandas as pd

OPTION_DTYPES: Final = dict.fromkeys(OPTION_AXES, "Int64")
"""Pandas dtypes of the columns of compile options; other axes are inferred."""

ROWS: Final = 20
"""Rows that a notebook shows of a long list."""


def axes_row(config: Config, columns: set[str]) -> dict[str, Any]:
    """Return a config's values; an axis named like a column, as `rank`, becomes `config.rank`."""
    own = {f"config.{n}" if n in columns else n: value for n, value in config.kwargs.items()}
    axes = {**own, **{option: getattr(config, option) for option in OPTION_AXES}}
    if config.ir_override is not None:
        axes["ir_override"] = config.to_dict()["ir_override"]
    if config.alternative is not None:
        axes[ALTERNATIVE] = config.alternative
    return axes


def notebook_html(lines: Iterable[str], frame_of: Callable[[], pd.DataFrame]) -> str | None:
    """Show lines of text above a frame; None without pandas, where a notebook shows plain text."""
    try:
        frame = frame_of()
    except MissingPackageError:
        return None
    text = "".join(f"<div>{_escaped(line)}</div>" for line in lines)
    return text + str(frame.to_html(max_rows=ROWS, max_cols=ROWS, border=0))


def _escaped(text: str) -> str:
    """Escape text for HTML; characters that a browser cannot show become U+FFFD."""
    shown = (
        c
        if c in "\t\n" or unicodedata.category(c) not in ("Cc", "Cs")
        else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )
    return html.escape("".join(shown))


def frame(
    rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str], facts: Mapping[str, Any]
) -> pd.DataFrame:
    """Build a frame with a row per mapping; columns are in the order of first appearance.

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
