"""One row for each public estimator; `test_contract.py` puts every row through the same tests.

A new model adds its row here and gets: scikit-learn's estimator checks, dense = sparse, the same result for any
`n_jobs`, reproducibility by seed, a round trip through `arbora.io` (plain and memory-mapped), clone and pickle, and
the test that it reduces to something known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import multivariate_t
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_random_state

import arbora
from arbora import classify, discover, text
from arbora.datasets import make_vmf_mixture
from arbora.special import kappa_mle, vmf_logpdf
from arbora.structure import Hierarchy
from support.contract import Data, Row
from support.expand_registry import EXPAND_ROWS

TREE = Hierarchy.from_edges(
    [("root", "a"), ("root", "b"), ("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]
)


def labelled_clouds() -> Data:
    """Documents of a small tree: a direction for each node, counts of features around the sum along the path."""
    rng = check_random_state(0)
    leaves = ["a1", "a2", "a3", "b1", "b2"]
    directions = {name: rng.randn(12) for name in TREE.names}

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.array(leaves, dtype=object)[rng.randint(len(leaves), size=n)]
        X = np.array([sum(directions[node] for node in TREE.path(name)) for name in y])
        X = X + rng.randn(*X.shape) * 0.5
        X[rng.rand(*X.shape) < 0.5] = 0.0
        return X, y

    (X, y), (X_new, y_new) = draw(150), draw(80)
    return Data(X, y, X_new, y_new)


def sentences() -> Data:
    texts = [
        "the cats are chasing the mice",
        "a cat chased a mouse and another mouse",
        "trees grow leaves",
        "growing trees shed their leaves",
        "mice eat seeds of trees",
    ]
    return Data(texts, None, [*texts[:2], "words never seen before"], None)


def svc_reduces(data: Data) -> tuple[Any, Any]:
    """One-vs-rest is one-vs-rest: LIBLINEAR's trust-region Newton solves the same smooth problem in the primal."""
    ours = classify.OneVsRestSVC(loss="squared_hinge", **_EXACT).fit(data.X, data.y)
    known = LinearSVC(loss="squared_hinge", dual=False, tol=1e-12, max_iter=10_000).fit(data.X, data.y)
    return ours.decision_function(data.X_new), known.decision_function(data.X_new)


def logistic_reduces(data: Data) -> tuple[Any, Any]:
    """With a cost so small that no multiplier leaves C/2, the weights are those of a nearest-centroid rule."""
    C = 1e-9
    ours = classify.OneVsRestLogistic(C=C, tol=1e-12, calibration=None).fit(data.X, data.y)
    sign = np.where(data.y[:, None] == ours.classes_, 1.0, -1.0)
    return ours.coef_, (C / 2 * data.X.T @ sign).T


def top_down_reduces(data: Data) -> tuple[Any, Any]:
    """On a star, one choice at the root is all there is: the flat model."""
    star = Hierarchy.from_edges([("root", leaf) for leaf in ["a1", "a2", "a3", "b1", "b2"]])
    top_down = classify.TopDownSVC(structure=star, **_EXACT).fit(data.X, data.y)
    flat = classify.OneVsRestSVC(structure=star, **_EXACT).fit(data.X, data.y)
    return top_down.coef_.toarray(), flat.coef_


def cost_reduces(data: Data) -> tuple[Any, Any]:
    """On a star all classes are two edges apart: the flat model at twice the cost."""
    star = Hierarchy.from_edges([("root", leaf) for leaf in ["a1", "a2", "a3", "b1", "b2"]])
    exact = {**_EXACT, "tol": 1e-10}
    ours = classify.HierarchicalCostClassifier(**{**exact, "C": 0.5}, structure=star).fit(data.X, data.y)
    return ours.coef_, classify.OneVsRestLogistic(**exact).fit(data.X, data.y).coef_


def bayes_reduces(data: Data) -> tuple[Any, Any]:
    """With one precision that is certain, a star is multinomial regression: a softmax leaves its root at zero."""
    ours = classify.HierarchicalBayesClassifier(tol=1e-9, prior=_HALF, fit_intercept=False)
    ours.fit(data.X, data.y)
    known = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(data.X, data.y)
    return ours.coef_, known.coef_


def bayes_logistic_reduces(data: Data) -> tuple[Any, Any]:
    """With a root held at zero and one certain precision, every class is a logistic regression of its own."""
    ours = classify.HierarchicalBayesClassifier(likelihood="logistic", tol=1e-9, **_CERTAIN).fit(
        data.X, data.y
    )
    known = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000)
    return ours.coef_, np.vstack([known.fit(data.X, data.y == name).coef_ for name in ours.classes_])


def bayes_variational_reduces(data: Data) -> tuple[Any, Any]:
    """The same by variational inference: the bound of Jaakkola and Jordan (2000), one class at a time."""
    ours = classify.HierarchicalBayesClassifier(
        likelihood="logistic", inference="variational", tol=1e-12, **_CERTAIN
    ).fit(data.X, data.y)
    return ours.coef_, np.array([_jaakkola_jordan(data.X, data.y == name) for name in ours.classes_])


def _jaakkola_jordan(X: Any, positive: Any, precision: float = 2.0) -> Any:
    width = np.ones(len(X))
    for _ in range(200):
        curvature = np.tanh(width / 2) / (2 * width)
        covariance = np.linalg.inv(precision * np.eye(X.shape[1]) + (X.T * curvature) @ X)
        mean = covariance @ X.T @ (positive - 0.5)
        width = np.sqrt(np.einsum("ia,ab,ib->i", X, covariance + np.outer(mean, mean), X))
    return mean


def path_reduces(data: Data) -> tuple[Any, Any]:
    """Without a structure all classes are siblings: the multiclass machine of Crammer and Singer."""
    ours = classify.HierarchicalSVM(fit_intercept=False, **_EXACT).fit(data.X, data.y)
    return ours.coef_, _crammer_singer(data.X, data.y)


def orthogonal_reduces(data: Data) -> tuple[Any, Any]:
    """Without a coupling the children of a node are chosen among as if there were no other nodes."""
    under_a = np.char.startswith(data.y.astype(str), "a")
    ours = classify.OrthogonalTransfer(coupling=0.0, structure=TREE, fit_intercept=False, **_EXACT)
    routes = ours.fit(data.X, data.y).routes_
    first, stop = routes.child_indptr[routes.id_of("a") :][:2]
    return ours.coef_[first:stop], _crammer_singer(data.X[under_a], data.y[under_a])


def recursive_svc_reduces(data: Data) -> tuple[Any, Any]:
    """In a forest of single nodes no class has a neighbour: the flat model."""
    forest = Hierarchy.from_edges([], nodes=["a1", "a2", "a3", "b1", "b2"])
    exact = {**_EXACT, "tol": 1e-10}
    ours = classify.RecursiveSVC(structure=forest, coupling=1.0, **exact).fit(data.X, data.y)
    return ours.coef_, classify.OneVsRestSVC(**exact).fit(data.X, data.y).coef_


def recursive_squared_reduces(data: Data) -> tuple[Any, Any]:
    """Without coupling the inner nodes are held at zero: what LIBLINEAR solves in the primal."""
    exact = {**_EXACT, "tol": 1e-10, "loss": "squared_hinge"}
    ours = classify.RecursiveSVC(structure=TREE, coupling=0.0, **exact).fit(data.X, data.y)
    known = LinearSVC(loss="squared_hinge", dual=False, tol=1e-12, max_iter=10_000).fit(data.X, data.y)
    return ours.decision_function(data.X_new), known.decision_function(data.X_new)


def recursive_logistic_reduces(data: Data) -> tuple[Any, Any]:
    """Without coupling the inner nodes are held at zero: the flat model."""
    exact = {**_EXACT, "tol": 1e-10}
    ours = classify.RecursiveLogisticRegression(structure=TREE, coupling=0.0, **exact).fit(data.X, data.y)
    return ours.coef_, classify.OneVsRestLogistic(**exact).fit(data.X, data.y).coef_


def correlated_reduces(data: Data) -> tuple[Any, Any]:
    """A prior that is sure of weights near zero leaves all classes equally likely, and nodes by their leaves."""
    ours = classify.CorrelatedMultinomialLogit(prior={"shape": 1e14}, **_SMALL, **_FEW_DRAWS)
    ours.fit(data.X, data.y)
    shares = {"root": 1.0, "a": 0.6, "b": 0.4}
    known = np.array([shares.get(name, 0.2) for name in ours.nodes_.tolist()])
    return ours.predict_node_proba(data.X_new), np.tile(known, (len(data.X_new), 1))


def multinomial_reduces(data: Data) -> tuple[Any, Any]:
    """Without a structure and a bias, the model of scikit-learn."""
    ours = classify.MultinomialLogistic(1.0, fit_intercept=False, tol=1e-13).fit(data.X, data.y)
    known = LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=10_000).fit(data.X, data.y)
    return ours.coef_, known.coef_


def _crammer_singer(X: Any, y: Any) -> Any:
    known = LinearSVC(multi_class="crammer_singer", fit_intercept=False, tol=1e-12, max_iter=100_000)
    return known.fit(X, y).coef_


def semi_supervised_reduces(data: Data) -> tuple[Any, Any]:
    """Where every row has a label, there is no pool: the flat model."""
    ours = classify.SemiSupervisedSVC(**_EXACT).fit(data.X, data.y)
    return ours.coef_, classify.OneVsRestSVC(loss="hinge", **_EXACT).fit(data.X, data.y).coef_


def ltc_reduces(data: Data) -> tuple[Any, Any]:
    """A document of one word that not all documents share is a unit vector."""
    model = text.LtcVectorizer(stem=None, stop_words=None).fit(["one two", "one three"])
    return model.transform(["three three"]).toarray(), [[0.0, 1.0, 0.0]]


def topics_reduce(data: Data) -> tuple[Any, Any]:
    """The probabilities of topics are those of a mixture of the rows of the texts."""
    ours = arbora.TopicModel(2, features="none").fit(data.X)
    rows = text.LtcVectorizer(stem=None, stop_words=None)
    known = discover.VMFMixture(2, random_state=0).fit(rows.fit_transform(data.X))
    return ours.predict_proba(data.X_new), known.predict_proba(rows.transform(data.X_new))


def counts() -> Data:
    rng = check_random_state(0)
    X, X_new = rng.poisson(0.7, (40, 9)), rng.poisson(0.7, (10, 9))
    return Data(X, None, X_new, None)


def counts_reduce(data: Data) -> tuple[Any, Any]:
    """Counting first and weighing then is what the vectoriser does at once."""
    texts = ["one two two three", "three four", "one four four four"]
    words = text.LtcVectorizer(stem=None, stop_words=None).fit(texts)
    table = [[t.split().count(word) for word in words.get_feature_names_out()] for t in texts]
    return text.LtcTransformer().fit_transform(table).toarray(), words.transform(texts).toarray()


def landmarked_counts() -> Data:
    """Counts of three clusters, with landmarks for some rows."""
    rng = check_random_state(0)
    means = np.kron(np.eye(3), np.full((1, 4), 2.5)) + 0.3
    y = np.arange(60) % 3
    X = rng.poisson(means[y])
    return Data(X[:48], np.where(np.arange(48) < 12, y[:48], -1), X[48:], None)


def cluster_topics_reduce(data: Data) -> tuple[Any, Any]:
    """One topic holds the shares of the words among all counts."""
    ours = discover.ClusterTopicModel(1, prior={"beta": 0.5}, **_TOPIC_SWEEPS).fit(data.X, data.y)
    return ours.components_[0], (data.X.sum(axis=0) + 0.5) / (data.X.sum() + 0.5 * data.X.shape[1])


def margin_topics_reduce(data: Data) -> tuple[Any, Any]:
    """Without weight of the losses there is no margin: the same chain."""
    ours, plain = (
        model.fit(data.X, data.y)
        for model in (
            discover.MaxMarginClusterTopicModel(4, c=0.0, **_TOPIC_SWEEPS),
            discover.ClusterTopicModel(4, **_TOPIC_SWEEPS),
        )
    )
    return ours.predict_proba(data.X_new), plain.predict_proba(data.X_new)


def directions() -> Data:
    X = make_vmf_mixture(160, 6, 3, random_state=0).X_train
    X[np.abs(X) < 0.1] = 0.0
    return Data(X[:120], None, X[120:], None)


def unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def means_reduce(data: Data) -> tuple[Any, Any]:
    """The centre of one cluster is the direction of the sum of all rows."""
    ours = discover.SphericalKMeans(1).fit(data.X)
    return ours.cluster_centers_[0], unit(unit(data.X).sum(axis=0))


def vmf_reduces(data: Data) -> tuple[Any, Any]:
    """One component is maximum likelihood."""
    ours = discover.VMFMixture(1, prior_rows=0.0).fit(data.X)
    mean = unit(data.X).mean(axis=0)
    return ours.score_samples(data.X_new), vmf_logpdf(
        unit(data.X_new), unit(mean), kappa_mle(np.linalg.norm(mean), 6)
    )


def bayesian_vmf_reduces(data: Data) -> tuple[Any, Any]:
    """With a known concentration and a uniform prior, the posterior of one mean direction is in the books."""
    prior = {"concentration": 0.0, "log_mean": np.log(5.0), "log_variance": 1e-10}
    ours = discover.BayesianVMFMixture(1, prior=prior).fit(data.X)
    total = unit(data.X).sum(axis=0)
    return ours.mean_concentrations_[0] * ours.means_[0], 5.0 * total


def hierarchical_vmf_reduces(data: Data) -> tuple[Any, Any]:
    """Where the root is known and children lie anywhere around it, a single leaf has the posterior of the books."""
    prior = {"node_concentration": 1e-9, "log_mean": np.log(5.0), "log_variance": 1e-10}
    ours = discover.HierarchicalVMFMixture((1,), prior=prior).fit(data.X)
    return ours.mean_concentrations_[1] * ours.means_[1], 5.0 * unit(data.X).sum(axis=0)


def temporal_directions() -> Data:
    data = directions()
    return data._replace(y=np.arange(len(data.X)) // 40)


def temporal_vmf_reduces(data: Data) -> tuple[Any, Any]:
    """Where nothing may change, the last of three times knows all rows."""
    prior = {"concentration": 0.0, "log_mean": np.log(5.0), "log_variance": 1e-10, "persistence": 1 - 1e-9}
    ours = discover.TemporalVMFMixture(1, prior=prior, tol=1e-9)
    return ours.fit(data.X, data.y).means_[-1, 0], unit(unit(data.X).sum(axis=0))


def process_reduces(data: Data) -> tuple[Any, Any]:
    """Truncated at one component there are no pieces: the Bayesian mixture of one component."""
    ours, flat = (
        model(1).fit(data.X) for model in (discover.DirichletProcessVMFMixture, discover.BayesianVMFMixture)
    )
    return ours.score_samples(data.X_new), flat.score_samples(data.X_new)


def blobs() -> Data:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(centre, 1.0, (50, 3)) for centre in (-4.0, 0.0, 4.0)])
    X[np.abs(X) < 0.2] = 0.0
    order = rng.permutation(len(X))
    return Data(X[order[:120]], None, X[order[120:]], None)


def gaussian_reduces(data: Data) -> tuple[Any, Any]:
    """One component with known hyperparameters: Student's distribution, from the books."""
    prior = {"r": 0.5, "nu": 6.0, "alpha": 1.0, "S": np.diag(data.X.var(axis=0))}
    ours = discover.DirichletProcessGaussianMixture(1, prior=prior, **_FEW_SWEEPS)
    return ours.fit(data.X).score_samples(data.X_new), _student(data)


def max_margin_reduces(data: Data) -> tuple[Any, Any]:
    """Without a weight of the margins, the mixture without margins."""
    pair = discover.MaxMarginGaussianMixture(c=0.0), discover.DirichletProcessGaussianMixture()
    ours, known = (model.set_params(random_state=0, **_FEW_SWEEPS).fit(data.X) for model in pair)
    return ours.score_samples(data.X_new), known.score_samples(data.X_new)


def _student(data: Data, r: float = 0.5, nu: float = 6.0) -> Any:
    (n, p), mean = data.X.shape, data.X.mean(axis=0)
    scale = np.diag(data.X.var(axis=0)) + (data.X - mean).T @ (data.X - mean)
    df, rn = nu + n - p + 1, r + n
    return multivariate_t(mean, scale * (rn + 1) / (rn * df), df).logpdf(data.X_new)


def counts_mixture_reduces(data: Data) -> tuple[Any, Any]:
    """One component holds the shares of the features among all counts, each counted once more."""
    ours = discover.MultinomialMixture(1, smoothing=1.0).fit(data.X)
    return ours.means_[0], (data.X.sum(axis=0) + 1) / (data.X.sum() + data.X.shape[1])


_EXACT = {"C": 1.0, "tol": 1e-13, "calibration": None, "max_iter": 100_000}
_EXACT_LOGISTIC = {
    **_EXACT,
    "tol": 1e-18,
    "max_iter": 3000,
}  # no multiplier rests at a bound: rounding is the end
_EXACT_SVC = {**_EXACT, "loss": "hinge"}  # whose gap says more about the weights than that of a smooth loss
_EXACT_PATHS = {**_EXACT, "max_iter": 2000}  # some checks fit noise, on which no precision is needed
# The last digits take a joint problem many rounds, the fewer the smaller C.
_EXACT_HINGE = {**_EXACT, "loss": "hinge", "max_iter": 1000, "C": 0.1}
_EXACT_SMOOTH = {**_EXACT, "loss": "squared_hinge", "tol": 1e-16, "max_iter": 1000, "C": 0.1}
_EXACT_OT = {**_EXACT_PATHS, "tol": 1e-10}
_EXACT_SOFTMAX = {"C": 1.0, "tol": 1e-15}
_HALF = {"shape": 1e12, "rate": 5e11}  # an expected variance of 1/2, all but certain
_CERTAIN = {"prior": _HALF, "root_variance": 1e-12, "fit_intercept": False}
_SMALL = {"structure": TREE, "random_state": 0}
_FEW_SWEEPS = {"sampling": {"n_warmup": 3, "n_samples": 4}, "merge_split": 2}
_FEW_DRAWS = {"sampling": {"n_samples": 15, "n_warmup": 15}}
_THREE = {"n_components": 3, "random_state": 0}
_TIMES = dict.fromkeys(
    ("check_fit_score_takes_y", "check_n_features_in_after_fitting"),
    "has times in the place of y, by that name",
)
_TOPIC_SWEEPS = {"sampling": {"n_samples": 6, "n_warmup": 4}, "n_fold_in": 12, "random_state": 0}
_TOPICS = {"n_topics": 4, **_TOPIC_SWEEPS}
_QUICK_TOPICS = {
    "n_topics": 3,
    "sampling": {"n_samples": 4, "n_warmup": 1},
    "n_fold_in": 6,
    "fractions": "round",
}
_MINUS_ONE = {"check_classifiers_classes": "has -1 as a label, which means that there is none"}
_NUMBERED = Hierarchy.from_parents([-1, 0, 0, 1, 1])
_RANDOM_STARTS = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "starts from rows drawn at random; its own tests compare fits from a given start",
)
_SPARSE_CHECKS = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")
_DENSITIES = dict.fromkeys(_SPARSE_CHECKS, "takes what has predict_proba for a classifier")
_COUNTS = _RANDOM_STARTS | _DENSITIES
_SPHERE = _COUNTS

REGISTRY = [
    Row(classify.OneVsRestSVC, _SMALL, _EXACT_SVC, labelled_clouds, svc_reduces),
    Row(classify.OneVsRestLogistic, _SMALL, _EXACT_LOGISTIC, labelled_clouds, logistic_reduces),
    Row(classify.TopDownSVC, _SMALL, _EXACT_SVC, labelled_clouds, top_down_reduces),
    Row(classify.RecursiveSVC, _SMALL, _EXACT_HINGE, labelled_clouds, recursive_svc_reduces),
    Row(
        classify.RecursiveSVC,
        {**_SMALL, "loss": "squared_hinge"},
        _EXACT_SMOOTH,
        labelled_clouds,
        recursive_squared_reduces,
        quick={"loss": "squared_hinge"},
    ),
    Row(
        classify.RecursiveLogisticRegression,
        _SMALL,
        _EXACT_LOGISTIC,
        labelled_clouds,
        recursive_logistic_reduces,
    ),
    Row(
        classify.HierarchicalBayesClassifier,
        {"structure": TREE},
        {"tol": 1e-10, "max_iter": 1000},
        labelled_clouds,
        bayes_reduces,
    ),
    Row(
        classify.HierarchicalBayesClassifier,
        {"structure": TREE, "likelihood": "logistic", "tol": 0.01},
        {},
        labelled_clouds,
        bayes_logistic_reduces,
        quick={"likelihood": "logistic", "tol": 0.1},
    ),
    Row(
        classify.HierarchicalBayesClassifier,
        {"structure": TREE, "inference": "variational", "tol": 1e-3},
        {},
        labelled_clouds,
        bayes_variational_reduces,
        quick={"inference": "variational", "tol": 0.01},
        repeats=True,
    ),
    Row(classify.MultinomialLogistic, _SMALL, _EXACT_SOFTMAX, labelled_clouds, multinomial_reduces),
    Row(classify.HierarchicalCostClassifier, _SMALL, _EXACT_LOGISTIC, labelled_clouds, cost_reduces),
    Row(classify.HierarchicalSVM, _SMALL, _EXACT_PATHS, labelled_clouds, path_reduces),
    Row(classify.OrthogonalTransfer, _SMALL, _EXACT_OT, labelled_clouds, orthogonal_reduces),
    Row(
        classify.CorrelatedMultinomialLogit,
        {**_SMALL, **_FEW_DRAWS},
        {},
        labelled_clouds,
        correlated_reduces,
        quick=_FEW_DRAWS,
    ),
    Row(
        classify.SemiSupervisedSVC,
        _SMALL,
        {**_EXACT, "max_iter": 5000},
        labelled_clouds,
        semi_supervised_reduces,
        quick={"calibration": None, "max_iter": 100},
        excused=_MINUS_ONE,
    ),
    Row(
        discover.SphericalKMeans,
        {"n_clusters": 3, "random_state": 0},
        {},
        directions,
        means_reduce,
        excused=_RANDOM_STARTS,
    ),
    Row(discover.VMFMixture, _THREE, {}, directions, vmf_reduces, excused=_SPHERE),
    Row(
        discover.BayesianVMFMixture,
        _THREE,
        {},
        directions,
        bayesian_vmf_reduces,
        quick={"n_components": 3, "tol": 0.01},
        excused=_SPHERE,
    ),
    Row(
        discover.HierarchicalVMFMixture,
        {"structure": (2, 2), "random_state": 0, "tol": 1e-3},
        {},
        directions,
        hierarchical_vmf_reduces,
        quick={"structure": _NUMBERED, "tol": 0.1},  # the checks subtract what is predicted
        excused=_SPHERE,
    ),
    Row(
        discover.TemporalVMFMixture,
        _THREE,
        {},
        temporal_directions,
        temporal_vmf_reduces,
        quick={"n_components": 3, "tol": 0.1},
        excused=_SPHERE | _TIMES,
    ),
    Row(
        discover.DirichletProcessVMFMixture,
        {"n_components": 4, "random_state": 0},
        {},
        directions,
        process_reduces,
        quick={"n_components": 3, "tol": 0.01},
        excused=_SPHERE,
    ),
    Row(
        discover.DirichletProcessGaussianMixture,
        {"random_state": 0, **_FEW_SWEEPS},
        {},
        blobs,
        gaussian_reduces,
        quick=_FEW_SWEEPS,
        excused=_DENSITIES,
    ),
    Row(
        discover.MaxMarginGaussianMixture,
        {"random_state": 0, **_FEW_SWEEPS},
        {},
        blobs,
        max_margin_reduces,
        quick=_FEW_SWEEPS,
        excused=_DENSITIES,
    ),
    Row(
        discover.ClusterTopicModel,
        _TOPICS,
        {},
        landmarked_counts,
        cluster_topics_reduce,
        quick=_QUICK_TOPICS,
        excused=_DENSITIES,
    ),
    Row(
        discover.MaxMarginClusterTopicModel,
        _TOPICS,
        {},
        landmarked_counts,
        margin_topics_reduce,
        quick=_QUICK_TOPICS,
        excused=_DENSITIES,
    ),
    Row(discover.MultinomialMixture, _THREE, {}, counts, counts_mixture_reduces, excused=_COUNTS),
    *EXPAND_ROWS,
    Row(text.LtcTransformer, {}, {}, counts, counts_reduce),
    Row(text.LtcVectorizer, {}, {}, sentences, ltc_reduces, numeric=False),
    Row(arbora.TopicModel, {"n_topics": 2, "features": "none"}, {}, sentences, topics_reduce, numeric=False),
]
