"""Hungarian accuracy against all assignments of clusters to classes."""

from itertools import permutations

import numpy as np
import pytest

from arbora.metrics import expansion_accuracy, hungarian_accuracy


@pytest.mark.parametrize(("n_classes", "n_clusters"), [(3, 3), (3, 4), (4, 3)])
def test_accuracy_by_enumeration(n_classes, n_clusters):
    rng = np.random.default_rng(0)
    truth, clusters = rng.integers(n_classes, size=60), rng.integers(n_clusters, size=60)
    clusters[:40] = (truth[:40] + 1) % n_clusters
    names = [*range(n_classes), *[-1] * n_clusters]  # -1: a cluster without a class
    right = max(
        (np.array(classes)[clusters] == truth for classes in set(permutations(names, n_clusters))), key=np.sum
    )
    scores = expansion_accuracy(truth, clusters, known=[0, 1])
    assert scores.all == hungarian_accuracy(truth, clusters) == right.mean()
    n_known = np.isin(truth, [0, 1]).sum()
    assert scores.known * n_known + scores.new * (60 - n_known) == pytest.approx(60 * scores.all)


def test_a_part_without_rows_has_no_accuracy():
    scores = expansion_accuracy(["a", "b"], [1, 0], known=["a", "b"])
    assert scores[:2] == (1.0, 1.0)
    assert np.isnan(scores.new)
