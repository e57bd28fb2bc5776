"""The demonstration on a small corpus, for tests: the same way from texts to the page, in seconds."""

import contextlib
import io

import numpy as np
import pytest

from arbora.cli import main
from arbora.cli.demo import demonstration as demo
from arbora.cli.demo import topics as demo_topics
from arbora.datasets import Dataset
from arbora.structure import Hierarchy


def run_small(arguments):
    """Run ``arbora demo`` with these arguments on the small corpus; return what it printed."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(demo, "load_python_docs", small_corpus)
        patch.setattr(demo_topics, "N_NOTES", 600)
        patch.setattr(demo_topics, "N_TOPICS", 4)
        patch.setattr(demo_topics, "N_STARTS", 1)
        assert main(["demo", *arguments]) == 0
    return printed.getvalue()


def small_corpus():
    """A small corpus in a tree: each class has words of its own, each branch words that its classes share."""
    rng = np.random.default_rng(0)
    shared = {"sea": ["water", "waves", "salt"], "land": ["soil", "grass", "stone"]}
    own = {
        "sea/fish": ["fins", "scales", "gills"],
        "sea/ships": ["sails", "anchor", "captain"],
        "land/trees": ["leaves", "bark", "roots"],
        "land/roads": ["asphalt", "traffic", "bridge"],
    }
    own["land"] = ["horizon", "border", "map"]  # documents on an internal node

    def draw(n):
        y = rng.choice(list(own), n)
        texts = [
            " ".join([*rng.choice(own[label], 3), *rng.choice(shared[label.partition("/")[0]], 2)])
            for label in y
        ]
        return texts, y.astype(object)

    texts_train, y_train = draw(120)
    texts_test, y_test = draw(40)
    hierarchy = Hierarchy.from_paths([name for name in own if "/" in name]).join_roots("root")
    return Dataset(
        "small",
        y_train=y_train,
        y_test=y_test,
        hierarchy=hierarchy,
        texts_train=texts_train,
        texts_test=texts_test,
    )
