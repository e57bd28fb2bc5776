"""Pictures of docs/expand.md: ``python -m benchmarks.expand_pictures`` (needs plotly and chromium).

`expand-groups.png` is drawn by `examples/find_the_other_groups.py` (Figure 6.1 of the thesis);
`expand-supervision.png` from the stored cells of `benchmarks.expand_thesis` (Figure 6.2). The growth is
drawn by `benchmarks.expand_speed --picture`.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

from benchmarks._common.expand_report import SUPERVISED
from benchmarks._common.picture import BLUE, GREEN, RED, save, style
from benchmarks.expand_thesis import ARCHIVE, SPLITS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SETS = {
    "leaves100": "Leaves, by species",
    "auslan": "Auslan, by sign",
    "isolet speakers": "Isolet, by speaker",
}
LINES = {
    "WithinClass": ("WithinClassTransform", RED, "square"),
    "TCS-GM": ("GaussianTransform (TCS-GM)", BLUE, "circle"),
    "TCS-CS": ("SeparabilityTransform (TCS-CS)", GREEN, "diamond"),
}


def supervision() -> Any:
    """NMI above k-means in the plain space by the number of labelled classes."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    cells = json.loads(ARCHIVE.read_text())
    titles = [f"<b>{SETS[name]}</b>" for name in SUPERVISED]
    figure = make_subplots(rows=1, cols=3, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    for column, name in enumerate(SUPERVISED, start=1):
        result = cells[f"supervision | {name} | {SPLITS}"]
        for method, (title, color, marker) in LINES.items():
            figure.add_trace(
                Scatter(
                    x=result["numbers"], y=result["gains"][method], name=title, mode="lines+markers",
                    line={"color": color, "width": 3}, marker={"size": 10, "symbol": marker},
                    showlegend=column == 1,
                ),
                row=1, col=column,
            )  # fmt: skip
        figure.add_hline(y=0, line={"color": "#555555", "width": 1.5, "dash": "dot"}, row=1, col=column)
        figure.update_xaxes(title_text="labelled classes", tickvals=result["numbers"], col=column)
    figure.update_yaxes(title_text="NMI above plain k-means", tickformat="+.2f", col=1)
    style(figure, 1320, 500)
    return figure


def main() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "find_the_other_groups.py"))
    save(example["draw"](example["find_groups"]()), IMAGES / "expand-groups.png")
    save(supervision(), IMAGES / "expand-supervision.png")


if __name__ == "__main__":
    main()
