"""Candidates of a search: what their scores are means of, and when they say little."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from arbora.classify import RecursiveSVC
from arbora.classify.recursive import search as trials
from arbora.classify.recursive.search import Plan
from arbora.metrics import macro_f1
from arbora.structure import Hierarchy


def test_macro_scores_are_means_over_the_classes_of_the_fold():
    truth = sp.csr_array(np.eye(10)[[0, 0, 1]])
    scores = np.eye(10)[[0, 1, 5]]  # class 5 is not in the fold
    plan = Plan([1.0], [0.1], [], None, [], "macro_f1", None, None)
    judged = trials._judge(scores, truth, plan)
    assert judged.score == pytest.approx(macro_f1([0, 0, 1], [0, 1, 5], labels=[0, 1]))
    assert judged.values.shape == (2,)
    assert judged.values.mean() == pytest.approx(judged.score)


@pytest.mark.filterwarnings("ignore:training stopped:sklearn.exceptions.ConvergenceWarning")
def test_a_search_among_rough_fits_warns():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 9
    X = 1e-3 * (rng.normal(size=(200, 20)) + rng.normal(size=(9, 20))[y])
    tree = Hierarchy.from_paths([f"{k // 3}/{k}" for k in range(9)])
    labels = [f"{k // 3}/{k}" for k in y]
    with pytest.warns(ConvergenceWarning, match="far from their optimum after 30 rounds"):
        RecursiveSVC("cv", coupling="cv", structure=tree, random_state=0).fit(X, labels)
