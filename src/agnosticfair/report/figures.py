"""What all figures share: colours (Okabe and Ito's), an empty canvas, tidy axes, PNG. There is no global state."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, GREY = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#555555")
Style = dict[str, Any]


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file; the same figure gives the same bytes."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=dpi, metadata={"Software": None})
    return content.getvalue()


def canvas(width: float, height: float) -> Figure:
    """An empty figure of this size, in inches, that needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, along: Literal["both", "x", "y"] = "both") -> None:
    """Axes without a box, with a pale grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis=along, color="#E5E5E5")
