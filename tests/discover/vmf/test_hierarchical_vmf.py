"""The hierarchical von Mises-Fisher mixture: known cases, a bound that never falls, truth that is found again."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_hierarchical_vmf
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.hierarchical_posterior import as_tree, start_tree, tree_extra, update_tree
from arbora.discover.vmf.hierarchical_start import Seeds, arrange
from arbora.discover.vmf.posterior import VMFPosterior, VMFPrior
from arbora.infer.mixture.statistics import Stats
from arbora.special import bessel_ratio, sample_vmf, vmf_log_normalizer
from arbora.structure import Hierarchy

EXACT = {"tol": 1e-11, "max_iter": 200, "random_state": 0}
OWN = {"concentration": "own"}
UNEVEN = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("c", "d"), ("c", "e"), ("a", "f")])


def free_parameters(model, X):
    """Number that the criterion of Akaike counts."""
    return round(model.aic(X) / 2 + model.score_samples(X).sum(), 6)


@pytest.fixture(scope="module")
def data():
    return make_hierarchical_vmf(
        400, 8, (2, 3), node_kappa=[8.0, 60.0], kappa=np.linspace(150, 400, 6), random_state=1
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("structure", "options"),
    [
        ((2, 3), {}),
        (UNEVEN, {"prior": {"concentration": np.inf}}),
        (UNEVEN, {"concentration_posterior": "bound", "init": "random"}),
        (UNEVEN, {"concentration": "shared"}),
        (UNEVEN, {"concentration": "shared", "prior": {"node_concentration": 5.0}}),
    ],
    ids=["regular", "known root", "bound", "shared", "shared leaves only"],
)
def test_the_bound_never_falls(data, structure, options):
    seeds = {"a" if structure is UNEVEN else "0": [0, 1]}
    exact = {**EXACT, "tol": 5e-7, "max_iter": 8}
    model = HierarchicalVMFMixture(structure, seeds=seeds, **exact, **options).fit(data.X_train)
    bounds = model.lower_bounds_
    assert len(bounds) > 3
    assert np.all(np.diff(bounds) >= -1e-10 * np.abs(bounds[:-1]))


@pytest.mark.parametrize("concentration", ["own", "shared"])
@pytest.mark.parametrize("kappa", [{}, {"log_mean": 5.0, "log_variance": 0.2}], ids=str)
def test_a_known_root_with_leaves_only_is_the_bayesian_mixture(data, kappa, concentration):
    prior, options = (
        {"alpha": 0.7, "direction": np.ones(8), **kappa},
        {"concentration": concentration, **EXACT},
    )
    root = {**prior, "concentration": np.inf, "node_concentration": 3.0}
    star = HierarchicalVMFMixture((6,), prior=root, **options).fit(data.X_train)
    labels = star.leaf_ids_.searchsorted(star.hierarchy_.encode(star.predict(data.X_train)))
    flat = BayesianVMFMixture(6, prior={**prior, "concentration": 3.0}, init=labels, **options).fit(
        data.X_train
    )
    leaves = star.leaf_ids_
    assert (len(set(star.concentrations_[leaves].tolist())) == 1) == (concentration == "shared")
    np.testing.assert_allclose(star.lower_bounds_[-1], flat.lower_bounds_[-1], rtol=1e-8)
    np.testing.assert_allclose(star.means_[leaves], flat.means_, atol=1e-4)
    np.testing.assert_allclose(star.concentrations_[leaves], flat.concentrations_, rtol=1e-3)
    np.testing.assert_allclose(star.score_samples(data.X_train), flat.score_samples(data.X_train), atol=1e-3)
    n_kappa = 1 if concentration == "shared" else 6
    assert free_parameters(star, data.X_train) == free_parameters(flat, data.X_train) == 6 * 7 + n_kappa + 5


def test_a_tree_of_one_node_is_one_component(data):
    prior = {"direction": np.eye(8)[0], "concentration": 2.0, "log_mean": 5.0, "log_variance": 0.2}
    tree = Hierarchy.from_edges([], nodes=["all"])
    tree_model = HierarchicalVMFMixture(tree, prior=prior, **EXACT).fit(data.X_train)
    flat = BayesianVMFMixture(1, prior=prior, **OWN, **EXACT).fit(data.X_train)
    np.testing.assert_allclose(tree_model.means_, flat.means_, atol=1e-6)
    np.testing.assert_allclose(tree_model.score(data.X_train), flat.score(data.X_train), rtol=1e-6)
    assert set(tree_model.predict(data.X_train)) == {"all"}


def test_updates_maximise_the_bound():
    """Means of the inner nodes at the end of many updates: no nearby factors have a higher bound."""
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("a", "d")])
    model = HierarchicalVMFMixture(tree, prior={"concentration": 1.5, "node_concentration": 4.0}, tol=1e-9)
    model.hierarchy_, model.n_features_in_ = tree, 3
    model.seed_nodes_, model.seed_means_ = np.array([1]), np.array([[0.0, 0.0, 1.0]])
    arrays, inference = model._tree(np.float64), model._inference("node_concentration")
    leaves = sample_vmf(np.eye(3)[0], 2.0, 3, rng)
    kappa = KappaPosterior(*(np.full(3, value) for value in (5.0, 0.0, np.log(5.0), np.log(5.0) ** 2, 0.1)))
    prior = VMFPrior(1.0, np.eye(3)[1], 1.5, 1.0, 1.0)
    q = start_tree(arrays, VMFPosterior(leaves.T, np.full(3, 9.0), np.ones(3), kappa, prior), 4.0)
    stats = Stats(np.array([4.0, 2.0, 3.0]), leaves.T * 2.0)
    for _ in range(40):
        q = update_tree(arrays, inference, q._replace(prior=prior), stats)

    def bound(vectors):
        vectors = vectors.reshape(2, 3)
        mean_concentrations, directions = q.nodes.mean_concentrations.copy(), q.nodes.directions.copy()
        mean_concentrations[[0, 1]] = np.linalg.norm(vectors, axis=1)
        directions[[0, 1]] = vectors / mean_concentrations[[0, 1], None]
        return tree_extra(
            arrays,
            inference,
            q._replace(
                nodes=q.nodes._replace(directions=directions, mean_concentrations=mean_concentrations)
            ),
        )

    here = (q.nodes.directions * q.nodes.mean_concentrations[:, None])[[0, 1]].ravel()
    best = minimize(lambda v: -bound(v), here + 0.3 * rng.standard_normal(6), tol=1e-10)
    np.testing.assert_allclose(bound(here), -best.fun, rtol=1e-9)
    np.testing.assert_allclose(here, best.x, atol=1e-3)


def test_the_bound_has_all_constants():
    """With certain means and concentrations what is left is the log-density of the means of a tree."""
    rng = np.random.default_rng(1)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    arrays = as_tree(tree, sp.csr_array((3, 4)), np.zeros(3), np.float64)
    mu = sample_vmf(np.eye(4)[0], 1.0, 3, rng)
    model = HierarchicalVMFMixture(tree, prior={"node_concentration": 2.0})
    model.n_features_in_ = 4
    kappa = KappaPosterior(*(np.zeros(2) for _ in range(5)))
    prior = VMFPrior(1.0, np.eye(4)[0], 3.0, 0.0, 1.0)
    q = start_tree(arrays, VMFPosterior(mu[1:].T, np.full(2, 50.0), np.ones(2), kappa, prior), 2.0)
    nodes = q.nodes._replace(directions=mu, mean_concentrations=np.full(3, 50.0))
    length = bessel_ratio(1.0, 50.0)
    entropy = -3 * (vmf_log_normalizer(50.0, 4) + 50.0 * length)
    by_hand = vmf_log_normalizer(3.0, 4) + 3.0 * length * mu[0, 0]
    by_hand += 2 * vmf_log_normalizer(2.0, 4) + 2.0 * length**2 * (mu[1] + mu[2]) @ mu[0]
    divergence = 2 * 0.5 * np.log(2 * np.pi)  # of two leaves with log(kappa) = 0 and no entropy
    value = tree_extra(arrays, model._inference("node_concentration"), q._replace(nodes=nodes))
    assert value == pytest.approx(by_hand + entropy - divergence, rel=1e-10)


def test_the_tree_is_recovered(data):
    model = HierarchicalVMFMixture((2, 3), n_init=2, random_state=0).fit(data.X_train)
    leaves = model.predict(data.X_train)
    assert adjusted_rand_score(data.y_train, leaves) > 0.95
    above = [path[1] for path in model.predict_path(data.X_train)]
    assert adjusted_rand_score([name[0] for name in data.y_train], above) > 0.95
    leaf = {name: data.truth.means[data.hierarchy.id_of(name)] for name in data.hierarchy.leaves()}
    cosines = np.array(list(leaf.values())) @ model.means_[model.leaf_ids_].T
    assert np.all(cosines.max(axis=1) > 0.98)


def test_similar_clusters_are_arranged_under_one_node():
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges(
        [("r", "a"), ("r", "b"), *(("a", i) for i in range(4)), *(("b", i) for i in (4, 5))]
    )
    centres = np.repeat(np.eye(6)[:2], [2, 4], axis=0)
    order = rng.permutation(6)
    items = sample_vmf(centres[order], 200.0, random_state=rng)
    seeds = Seeds(np.array([tree.id_of(4)]), items[[4]])  # cluster 4 stays in leaf 4, which is under b
    for pins, pinned in ((Seeds(np.empty(0, int), np.empty((0, 6))), False), (seeds, True)):
        clusters = arrange(tree, items, pins, np.random.default_rng(3))
        assert sorted(clusters) == list(range(6))
        place = dict(zip(tree.leaf_ids.tolist(), clusters, strict=True))
        if pinned:
            assert place[tree.id_of(4)] == 4
        else:
            under_b = {int(order[place[tree.id_of(i)]] < 2) for i in (4, 5)}
            assert under_b == {1}


def test_the_best_of_several_arrangements_is_kept():
    """One start of k-means with given sizes does not find the groups of all 20 sets of items."""
    tree = Hierarchy.from_paths([f"r/{a}/{b}" for a in range(4) for b in range(4)])
    nothing = Seeds(np.empty(0, int), np.empty((0, 4)))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        items = 1 + 0.6 * np.repeat(np.eye(4), 4, axis=0) + 0.18 * rng.standard_normal((16, 4))
        items /= np.linalg.norm(items, axis=1, keepdims=True)
        order = rng.permutation(16)
        groups = order[arrange(tree, items[order], nothing, rng)].reshape(4, 4) // 4
        assert (groups == groups[:, :1]).all()


def test_seeds_determine_the_content_of_nodes(data):
    """Words, rows, vectors and labels: the node gets what is like its seed, whatever the start."""
    names = [f"w{j}" for j in range(8)]
    wanted = data.truth.means[data.hierarchy.id_of("1")]
    word = names[int(np.argmax(np.abs(wanted)))]
    rows = np.flatnonzero(np.char.startswith(data.y_train.astype(str), "1"))
    labels = np.full(len(data.y_train), None)
    labels[rows[:10]] = "0"
    for seeds in ({"0": rows[:10]}, {"0": wanted}, labels):
        model = HierarchicalVMFMixture((2, 3), seeds=seeds, prior={"seed_weight": 20.0}, random_state=3)
        above = np.array([path[1] for path in model.fit(data.X_train).predict_path(data.X_train)])
        assert np.mean(above[rows] == "0") > 0.9
    model = HierarchicalVMFMixture(
        (2, 3), seeds={"1/2": [word]}, feature_names=names, prior={"seed_weight": 1e6}
    )
    model.set_params(random_state=0, max_iter=20).fit(data.X_train)
    assert dict(zip(model.nodes_, model.top_features(n=1), strict=True))["1/2"][0][0] == word


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": {"nowhere": [0]}}, "nowhere"),
        ({"seeds": {"0": ["w1"]}}, "feature_names"),
        ({"seeds": {"0": ["w1"]}, "feature_names": ["a"] * 8}, "not in feature_names"),
        ({"seeds": {"0": ["w9"]}, "feature_names": [f"w{j}" for j in range(10)]}, "10 names, but X has 8"),
        ({"seeds": {"0": [1000]}}, "row numbers"),
        ({"seeds": {"0": np.zeros(8)}}, "zero"),
        ({"seeds": {"0": np.ones(5)}}, "vectors of 8 features"),
        ({"seeds": ["0"]}, "labels"),
        ({"structure": (2, 0)}, "numbers of children"),
        ({"structure": Hierarchy.from_edges([("a", "c"), ("b", "c")])}, "tree"),
        ({"structure": (30, 30)}, "rows cannot fill"),
    ],
    ids=str,
)
def test_bad_input_is_refused(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalVMFMixture(**{"structure": (2, 3), **arguments}).fit(data.X_train)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rotation_changes_nothing(data):
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    make = {**EXACT, "structure": (2, 3), "max_iter": 10, "tol": 0.0}
    model = HierarchicalVMFMixture(**make).fit(data.X_train)
    turned = HierarchicalVMFMixture(**make).fit(data.X_train @ rotation)
    np.testing.assert_allclose(model.means_ @ rotation, turned.means_, atol=1e-6)
    np.testing.assert_allclose(model.lower_bounds_, turned.lower_bounds_, rtol=1e-8)


def test_predictions_and_descriptions_by_node(data):
    forest = Hierarchy.from_paths(["a/x", "a/y", "b/x", "b/y", "b/z"])
    model = HierarchicalVMFMixture(forest, random_state=0, tol=0.01).fit(data.X_train)
    proba = model.predict_node_proba(data.X_train)
    for node in model.hierarchy_.order.tolist():
        children = np.flatnonzero(model.hierarchy_.parent == node)
        if len(children):
            np.testing.assert_allclose(proba[:, node], proba[:, children].sum(axis=1), atol=1e-12)
            assert model.weights_[node] == pytest.approx(model.weights_[children].sum())
    leaves = model.predict_proba(data.X_train)
    np.testing.assert_allclose(leaves, proba[:, model.leaf_ids_], atol=1e-12)
    np.testing.assert_array_equal(
        model.nodes_[model.leaf_ids_[leaves.argmax(axis=1)]], model.predict(data.X_train)
    )
    assert [top[0][0] for top in model.top_features(n=2)] == model.means_.argmax(axis=1).tolist()
    shown = model.representatives(data.X_train, n=3)
    assert all(
        model.predict(data.X_train[ids]).tolist() == [leaf] * len(ids)
        for leaf, ids in zip(model.nodes_, shown, strict=True)
        if "/" in leaf
    )
    X, names = model.sample(50)
    assert np.mean(model.predict(X) == names) > 0.8
    assert model.is_novel(X).mean() < 0.3
    assert model.is_novel(-data.truth.means[:1]).all()


def test_many_dimensions_and_sparse_rows():
    """Documents over 20,000 words: no collapse, and a cluster for each group of words."""
    rng = np.random.default_rng(0)
    n, n_words = 120, 20_000
    group = np.arange(n) % 4
    words = rng.integers(0, 300, (n, 40)) + 400 * group[:, None]
    noise = rng.integers(0, n_words, (n, 40))
    columns = np.concatenate([words, noise], axis=1).ravel()
    X = sp.csr_array((np.ones(len(columns)), (np.repeat(np.arange(n), 80), columns)), shape=(n, n_words))
    model = HierarchicalVMFMixture((2, 2), random_state=0).fit(X)
    assert adjusted_rand_score(group, model.predict(X)) > 0.95
    assert model.means_.shape == (7, n_words)
