"""Records as rows of plain values for CSV files, pandas frames and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import MissingPackageError
from asmtune.base.html import escaped
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
    text = "".join(f"<div>{escaped(line)}</div>" for line in lines)
    return text + str(frame.to_html(max_rows=ROWS, max_cols=ROWS, border=0))
