"""A roofline as a picture, SVG or PNG, that reads on light ground and on dark.

Its ground is transparent, and every colour has a contrast of 3 to 1 or more, text of 4 to 1 or
more, with white and with GitHub's dark ground (`tests/report/test_roofline_figure.py`).
"""

from __future__ import annotations

import io
from typing import Any, Final

from asmtune.base.errors import MissingPackageError
from asmtune.report.roofline.names import summary
from asmtune.studies.roofline.points import Chart

INK: Final = "#757a82"
"""Of text, axes and memory roofs."""

COLOURS: Final = ("#2f7fd4", "#c4681f", "#2b8f57", "#a860c6", "#c4506a", "#7d8230")
"""Of roofs of the cores, with the points under them; the first ones again beyond."""

_SIZE: Final = (10.5, 6.4)
_FONT: Final = 9.0
_LAYOUT_DPI: Final = 72.0
_PNG_DPI: Final = 200.0
_INKED: Final = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def check_figures() -> None:
    """Makes sure that figures can be drawn.

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "figures need matplotlib, which is not installed: pip install 'asmtune[figures]', "
            "or take --format table or json"
        ) from error


def draw(chart: Chart, form: str) -> bytes:
    """The picture as a file's content.

    Args:
        chart: with at least one entry.
        form: "svg" or "png".

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    check_figures()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from asmtune.report.roofline.drawing import Drawing

    # Text stays text, and equal charts make equal files. No name is read as mathematics.
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "asmtune"}
    style |= {"font.size": _FONT, "text.parse_math": False, **dict.fromkeys(_INKED, INK)}
    with mpl.rc_context(style):
        figure = Figure(figsize=_SIZE, dpi=_LAYOUT_DPI)
        Drawing(figure, chart, COLOURS, INK).draw()
        content = io.BytesIO()
        metadata: dict[str, Any] = {"Title": f"Roofline of {chart.target}: {summary(chart)}"}
        if form == "svg":
            metadata["Date"] = None
        figure.savefig(
            content,
            format=form,
            dpi=_PNG_DPI,
            transparent=True,
            bbox_inches="tight",
            metadata=metadata,
        )
    return content.getvalue()
