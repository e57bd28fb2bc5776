"""Contestants of `benchmarks.discriminative`.

Each takes training rows, labels, a number of clusters and a seed, and returns a function that gives the clusters of
new rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from arbora.expand import DiscriminativeClustering, FisherMetric, MixtureDiscriminantClustering

Method = Callable[[Any, Any, int, int], Callable[[Any], Any]]
DEFAULT = "DiscriminativeClustering()"
ANNEALING_STEPS = 10_000  # for each cluster; the thesis has 100,000


def clustering(**parameters: Any) -> Method:
    def fit(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
        more = dict(parameters)
        if more.get("optimizer") == "annealing":
            more["max_iter"] = ANNEALING_STEPS * n_clusters
        return DiscriminativeClustering(n_clusters, random_state=seed, **more).fit(X, y).predict

    return fit


def prototypes(optimizer: str, regularizer: str | None, **more: Any) -> Method:
    """Make a variant of the thesis: prototypes of raw features, one start from k-means."""
    return clustering(
        cells="prototype", optimizer=optimizer, regularizer=regularizer, scale=None, n_init=1, **more
    )


def quantization(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    return KMeans(n_clusters, n_init=3, random_state=seed).fit(X).predict


def gaussians(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    scale = float(np.asarray(X).std())
    model = GaussianMixture(n_clusters, covariance_type="spherical", n_init=3, random_state=seed)
    model.fit(np.asarray(X, np.float64) / scale)
    return lambda rows: model.predict(np.asarray(rows, np.float64) / scale)


def mda2(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    return MixtureDiscriminantClustering(n_clusters, random_state=seed).fit(X, y).predict


def standard(method: Method) -> Method:
    """Standardise the features first."""

    def fit(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
        scaler = StandardScaler().fit(X)
        predict = method(scaler.transform(X), y, n_clusters, seed)
        return lambda rows: predict(scaler.transform(rows))

    return fit


def fisher(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    model = make_pipeline(StandardScaler(), FisherMetric(), KMeans(n_clusters, n_init=3, random_state=seed))
    return model.fit(X, y).predict


def discriminants(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    model = make_pipeline(LinearDiscriminantAnalysis(), KMeans(n_clusters, n_init=3, random_state=seed))
    return model.fit(X, y).predict


def leaves(X: Any, y: Any, n_clusters: int, seed: int) -> Callable[[Any], Any]:
    """Leaves of a tree that is grown by entropy, best leaf first."""
    tree = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=n_clusters, random_state=seed).fit(X, y)
    place = {int(leaf): number for number, leaf in enumerate(np.unique(tree.apply(X)))}
    return lambda rows: np.array([place[int(leaf)] for leaf in tree.apply(rows)])


# Name, method, and name in Tables 6.3 and 6.4 of the thesis.
VARIANTS: dict[str, tuple[Method, str | None]] = {
    DEFAULT: (clustering(), None),
    "linear cells, alpha='cv'": (clustering(alpha="cv"), None),
    "linear cells, entropy": (clustering(regularizer="entropy"), None),
    "linear cells, mog": (clustering(regularizer="mog"), None),
    "linear cells, mini-batches": (clustering(optimizer="stochastic"), None),
    "prototypes, standardised, lbfgs, mog": (
        clustering(cells="prototype", regularizer="mog", init="posterior"),
        None,
    ),
    "prototypes, stochastic": (prototypes("stochastic", None), "sDC"),
    "prototypes, cg": (prototypes("cg", None), "DC-CG"),
    "prototypes, cg, vq": (prototypes("cg", "vq"), "DC-CG-VQ"),
    "prototypes, cg, mog": (prototypes("cg", "mog"), "DC-CG-MoG"),
    "prototypes, cg, entropy": (prototypes("cg", "entropy"), "DC-CG-Ent"),
    "prototypes, lbfgs": (prototypes("lbfgs", None), None),
    "prototypes, lbfgs, mog, alpha='cv'": (prototypes("lbfgs", "mog", alpha="cv"), None),
    "prototypes, annealing": (prototypes("annealing", None), "DC-SA"),
    "prototypes, annealing, vq": (prototypes("annealing", "vq"), "DC-SA-VQ"),
    "prototypes, annealing, mog": (prototypes("annealing", "mog"), "DC-SA-MoG"),
    "prototypes, annealing, entropy": (prototypes("annealing", "entropy"), "DC-SA-Ent"),
    "VQ: KMeans": (quantization, "VQ"),
    "MoG: GaussianMixture": (gaussians, "MoG"),
    "MixtureDiscriminantClustering": (mda2, "MDA2"),
}
SLOW = tuple(name for name in VARIANTS if "annealing" in name)
REFERENCES: dict[str, Method] = {
    DEFAULT: clustering(),
    "VQ: KMeans": standard(quantization),
    "MoG: GaussianMixture": standard(gaussians),
    "MixtureDiscriminantClustering": mda2,
    "KMeans in the Fisher embedding": fisher,
    "decision tree with K leaves": leaves,
    "LDA + KMeans": discriminants,
}
# Costs of Tables 6.3 and 6.4: Letter with 5 and 10 clusters, CoverType with 5 and 10.
PUBLISHED: dict[str, tuple[float | None, ...]] = {
    "sDC": (5127.7, None, 4706.0, None),
    "DC-CG": (5134.3, 4961.9, 4737.6, 4578.2),
    "DC-CG-VQ": (5128.3, 4933.4, 4773.5, 4565.5),
    "DC-CG-MoG": (5075.6, 4857.9, 4670.2, 4615.7),
    "DC-CG-Ent": (5157.5, 4864.1, 4738.2, 4575.8),
    "DC-SA": (5307.4, None, 4703.0, None),
    "DC-SA-VQ": (5115.4, None, 4569.9, None),
    "DC-SA-MoG": (5172.0, None, 4484.5, None),
    "DC-SA-Ent": (5105.9, None, 4373.2, None),
    "VQ": (6320.8, 6194.9, 5709.9, 5651.3),
    "MDA2": (5476.6, 5206.4, 5532.5, 5393.6),
    "MoG": (6333.6, 5174.9, 5697.7, 5636.3),
}
