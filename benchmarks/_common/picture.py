"""Pictures of the documentation: a Plotly figure as a PNG file, by a headless browser."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_MARGIN = 16  # pixels around a figure on its page
# Colours of Okabe and Ito, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"


def style(figure: Any, width: int, height: int) -> None:
    """Light background, large type, a frame around each panel, the legend below."""
    axis = {
        "gridcolor": "#ECECEC", "zeroline": False, "linecolor": "#888888", "mirror": True, "ticks": "outside",
        "tickfont": {"size": 15}, "title_font": {"size": 17},
    }  # fmt: skip
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_annotations(font_size=19, yshift=8)
    figure.update_layout(
        template="plotly_white", width=width, height=height,
        font={"family": "DejaVu Sans, Arial, sans-serif", "size": 16, "color": "#222222"},
        margin={"l": 80, "r": 20, "t": 80, "b": 120},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.24, "yanchor": "top", "font_size": 17},
    )  # fmt: skip


def save(figure: Any, png: Path) -> None:
    """Write a figure with a width and a height as a PNG file."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"a picture needs one of {', '.join(_BROWSERS)}")
    size = f"{int(figure.layout.width) + _MARGIN},{int(figure.layout.height) + _MARGIN}"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        figure.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000",
            f"--window-size={size}", f"--screenshot={png.resolve()}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
