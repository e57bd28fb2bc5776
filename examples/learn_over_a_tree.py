"""Train a recursive model, inspect its nodes, and add a class later: ``python examples/learn_over_a_tree.py``.

`read_folder` reads text files; their sub-folders are the labels. The texts of this example are generated: each has
words of its branch, words of its class and general words. Pass the path of a folder to train on your own texts.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from arbora.classify import RecursiveSVC
from arbora.datasets import read_folder
from arbora.text import LtcVectorizer

BRANCHES = {
    "garden": "soil water sun leaf root bloom prune",
    "kitchen": "heat wash cook steel plate dinner taste",
}
CLASSES = {  # words, and how many texts there are
    "garden/roses": ("thorn petal scent", 30),
    "garden/lawn": ("mow grass edge", 25),
    "garden/pond": ("fish pump lily", 3),
    "kitchen/knives": ("blade sharp slice", 30),
    "kitchen/pans": ("iron fry lid", 25),
    "kitchen/kettles": ("boil steam spout", 3),
}
LATER = {  # a new class of the garden with words of the kitchen, and more texts of two old classes
    "garden/herbs": ("taste cook dinner", 4),
    "garden/roses": ("thorn petal scent", 4),
    "kitchen/pans": ("iron fry lid", 4),
}
ANY = ["house", "day", "good", "new", "old", "buy", "make", "use", "keep", "well"]


def write_texts(folder: Path, classes: dict[str, tuple[str, int]], seed: int) -> None:
    """Write texts of twelve words into a sub-folder for each class."""
    rng = np.random.default_rng(seed)
    for label, (own, n_texts) in classes.items():
        (folder / label).mkdir(parents=True, exist_ok=True)
        branch = BRANCHES[label.partition("/")[0]].split()
        for number in range(n_texts):
            words = [*rng.choice(branch, 2), rng.choice(own.split()), *rng.choice(ANY, 9)]
            (folder / label / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")


def show_heaviest_words(model: RecursiveSVC, words: np.ndarray, nodes: list[str]) -> None:
    """Print the words with the largest weights of some nodes, inner ones too."""
    coef, _ = model.node_weights(nodes)
    for node, weights in zip(nodes, coef, strict=True):
        print(f"  {node:13}", ", ".join(words[np.argsort(-weights, kind="stable")[:4]]))


def train(folder: Path) -> tuple[LtcVectorizer, RecursiveSVC]:
    texts, y, hierarchy, _ = read_folder(folder)
    print(f"{len(texts)} texts, {hierarchy!r}")
    vectorizer = LtcVectorizer()
    # coupling="cv" chooses the coupling too. It may choose 0; then inner nodes have zero weights.
    model = RecursiveSVC(C="cv", coupling=1.0, structure=hierarchy, n_jobs=-1, random_state=0)
    model.fit(vectorizer.fit_transform(texts), y)
    print(f"C = {model.C_:g}, the best of {', '.join(f'{C:g}' for C in model.cv_results_['C'])}")
    print(f"duality gap {model.duality_gap_:.1e} after {model.n_iter_} rounds")
    return vectorizer, model


def main(path: str | None = None) -> None:
    if path is not None:
        train(Path(path))
        return
    with tempfile.TemporaryDirectory() as parent:
        folder, later = Path(parent, "texts"), Path(parent, "later")
        write_texts(folder, CLASSES, seed=0)
        vectorizer, model = train(folder)
        words = vectorizer.get_feature_names_out()
        print("heaviest words:")
        show_heaviest_words(model, words, ["garden", "garden/roses", "garden/pond"])

        # Add a new class: one more node, and a few texts.
        write_texts(later, LATER, seed=1)
        texts, y, _, _ = read_folder(later)
        grown = model.structure_.with_edges([("garden", "garden/herbs")])
        model.partial_fit(vectorizer.transform(texts), y, structure=grown)
        print("classes now:", ", ".join(model.classes_))
        row = vectorizer.transform(["sun, soil and water, and a taste of it at dinner"])
        print("filed:", " > ".join(model.predict_path(row)[0]))


if __name__ == "__main__":
    main(*sys.argv[1:2])
