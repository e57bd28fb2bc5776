"""Label three of six groups, find the other three: ``python examples/find_the_other_groups.py [--out FIGURE.html]``.

Each group has two separate parts, one above the other. Plain clustering takes the parts for groups. Three labelled
groups show that height says nothing about the group, and that is enough to find the others. With `--out` the script
draws the picture of the documentation (needs plotly).
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from arbora.expand import GaussianTransform

N_GROUPS, N_KNOWN, N_EACH = 6, 3, 90
# Colours of Okabe and Ito, which colour-blind readers can tell apart; a marker for each group too.
FOUND = (("#0072B2", "circle"), ("#E69F00", "diamond"), ("#009E73", "square"))
KNOWN = "#9A9A9A"
KNOWN_MARKERS = ("circle-open", "diamond-open", "square-open")


def bimodal_groups(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Six groups side by side, each in two parts: one above the other."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(N_GROUPS), N_EACH)
    side = np.where(rng.random(len(truth)) < 0.5, -10.0, 10.0)
    X = np.column_stack([6.0 * truth, side]) + rng.normal(size=(len(truth), 2))
    return X, truth


def cluster(Z: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, float]:
    """Cluster rows into three groups, numbered in horizontal order; return their agreement with the truth too."""
    found = KMeans(N_GROUPS - N_KNOWN, n_init=20, random_state=0).fit_predict(Z)
    order = np.argsort([truth[found == k].mean() for k in range(found.max() + 1)])
    return np.argsort(order)[found], normalized_mutual_info_score(truth, found)


def find_groups() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    """Cluster the rows of the unlabelled groups before and after the learned map."""
    X, truth = bimodal_groups()
    y = np.where(truth < N_KNOWN, truth, -1)  # -1: no label
    transform = GaussianTransform().fit(X, y)
    found = {}
    mapped = transform.transform(X)
    mapped = mapped * np.sign(
        np.sum(mapped * (X - X.mean(axis=0)), axis=0)
    )  # a map is known up to reflections
    for name, Z in (("before", X), ("after", mapped)):
        labels, agreement = cluster(Z[y < 0], truth[y < 0])
        found[name] = Z, truth, labels, agreement
    return found


def panels(
    found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]],
) -> list[tuple[str, np.ndarray, list]]:
    """Title, rows and (members, name, colour, marker) of the parts of each panel."""
    (X, truth, before, low), (Z, _, after, high) = found["before"], found["after"]
    known = [(truth == k, f"labelled group {'ABC'[k]}", KNOWN, KNOWN_MARKERS[k]) for k in range(N_KNOWN)]
    pool = np.flatnonzero(truth >= N_KNOWN)

    def clusters(labels: np.ndarray) -> list:
        parts = []
        for k, (color, marker) in enumerate(FOUND):
            members = np.zeros(len(truth), bool)
            members[pool[labels == k]] = True
            parts.append((members, f"new group {k + 1}", color, marker))
        return parts

    unlabelled = [(truth >= N_KNOWN, "no label", "#222222", "cross-thin-open")]
    return [
        ("<b>A half-sorted pile</b><br>three groups are labelled, three are not", X, known + unlabelled),
        (
            f"<b>k-means of the unlabelled rows</b><br>agreement with the truth {low:.2f}",
            X,
            known + clusters(before),
        ),
        (
            f"<b>k-means after the learned map</b><br>agreement with the truth {high:.2f}",
            Z,
            known + clusters(after),
        ),
    ]


def draw(found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]]) -> "Figure":  # noqa: F821
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    shown = panels(found)
    figure = make_subplots(
        rows=1, cols=3, subplot_titles=[title for title, *_ in shown], horizontal_spacing=0.075
    )
    named = set()
    for column, (_, rows, parts) in enumerate(shown, start=1):
        for members, name, color, marker in parts:
            figure.add_trace(
                Scatter(
                    x=rows[members, 0], y=rows[members, 1], mode="markers", name=name, legendgroup=name,
                    showlegend=name not in named,
                    marker={"color": color, "symbol": marker, "size": 8, "opacity": 0.85,
                            "line": {"color": color, "width": 1.4}},
                ),
                row=1, col=column,
            )  # fmt: skip
            named.add(name)
    # Equal units on both axes show what the map does to distances.
    Z = found["after"][0]
    middle, reach = (Z.max(axis=0) + Z.min(axis=0)) / 2, 0.55 * float(np.ptp(Z, axis=0).max())
    figure.update_xaxes(range=[middle[0] - reach, middle[0] + reach], row=1, col=3)
    figure.update_yaxes(range=[middle[1] - reach, middle[1] + reach], row=1, col=3)
    for column in (1, 2):
        figure.update_xaxes(range=[-4, 34], title_text="feature 1", row=1, col=column)
        figure.update_yaxes(range=[-19, 19], row=1, col=column)
    figure.update_yaxes(title_text="feature 2", row=1, col=1)
    figure.update_xaxes(title_text="learned feature 1", row=1, col=3)
    figure.update_yaxes(title_text="learned feature 2", title_standoff=4, row=1, col=3)
    axis = {"showgrid": True, "gridcolor": "#ECECEC", "zeroline": False, "linecolor": "#888888", "mirror": True,
            "ticks": "outside", "tickfont": {"size": 15}, "title_font": {"size": 17}}  # fmt: skip
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_annotations(font_size=19, yshift=8)
    figure.update_layout(
        template="plotly_white", width=1320, height=540, font={"family": "DejaVu Sans, Arial, sans-serif", "size": 16,
        "color": "#222222"}, margin={"l": 70, "r": 20, "t": 75, "b": 120},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22, "yanchor": "top", "font": {"size": 17},
                "itemsizing": "constant"},
    )  # fmt: skip
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="HTML file of the picture")
    options = parser.parse_args()
    found = find_groups()
    print(f"NMI of k-means on the three unlabelled groups: {found['before'][3]:.2f}")
    print(f"NMI after the map learned from the labelled groups: {found['after'][3]:.2f}")
    if options.out is not None:
        draw(found).write_html(options.out, include_plotlyjs=True, config={"displayModeBar": False})
        print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
