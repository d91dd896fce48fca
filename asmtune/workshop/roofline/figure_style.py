"""Colours, type and files of figures, on a light card of their own.

No colour of text reads at 4.5 to 1 on white and on a dark page at once, so a figure brings its
ground.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

GROUND: Final = "#ffffff"
INK: Final = "#24292f"
"""Colour of text."""

RULE: Final = "#6e7781"
"""Colour of axes, roofs and whiskers."""

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#8c19ff", "#662200", "#540066")
"""Colours of series, apart by 15 or more (CIE76) to each colour-blind eye."""

MARKERS: Final = ("o", "s", "D", "^", "v", "P")
"""Markers of series in the order of their colours: no meaning is in a colour alone."""

WIDTH: Final = 6.4
"""Inches: 614 pixels of a browser, less than a page's column, so that no text shrinks there."""

SIZE: Final = 9.5
"""Points of type: 12.7 pixels of a browser."""

_INKED: Final = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
_RULED: Final = ("axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
_PNG_DPI: Final = 200.0


@contextmanager
def look(text: bool = True) -> Iterator[None]:
    """Set matplotlib's style while a figure is drawn and saved.

    Equal figures make equal files, and no name is read as mathematics. A sign that the font lacks
    is a box.

    Args:
        text: whether an SVG holds text as text; otherwise as outlines.

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingPackageError(
            "figures need matplotlib, which is not installed: pip install '.[figures]' "
            "in a clone of asmtune, or take --format text or json"
        ) from error
    style: dict[Any, Any] = {"svg.fonttype": "none" if text else "path", "svg.hashsalt": "asmtune"}
    style |= {"pdf.fonttype": 42, "font.size": SIZE, "text.parse_math": False}
    style |= {"legend.fontsize": SIZE, "axes.titlesize": SIZE + 0.5, "figure.facecolor": GROUND}
    style |= {"xtick.labelsize": SIZE, "ytick.labelsize": SIZE, "axes.facecolor": "none"}
    style |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    style |= {**dict.fromkeys(_INKED, INK), **dict.fromkeys(_RULED, RULE), "figure.dpi": 72.0}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ ")
        yield


def saved(figure: Figure, form: str, title: str = "") -> bytes:
    """Write a figure as "svg", "png" or "pdf", without the hour in it."""
    dates = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
    metadata: dict[str, Any] = {dates[form]: None, **({"Title": title} if title else {})}
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=_PNG_DPI, metadata=metadata)
    return out.getvalue()


def fitted_legend(
    figure: Figure, handles: Sequence[Any], width: float, **options: Any
) -> tuple[Legend, float]:
    """Add a legend of as many columns as fit a width in points; return it and its height."""
    for columns in range(max(1, len(handles)), 0, -1):
        legend = figure.legend(
            handles=handles, ncols=columns, borderaxespad=0, borderpad=0, **options
        )
        extent = legend.get_window_extent()
        if columns == 1 or extent.width <= width:
            break
        legend.remove()
    return legend, float(extent.height)
