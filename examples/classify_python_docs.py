"""Train, evaluate, save and load a classifier of texts: ``python examples/classify_python_docs.py [FOLDER]``.

FOLDER holds text files; its sub-folders, at any depth, are the labels. Without it the built-in corpus is used: the
documentation of the installed Python packages, labelled by module.
"""

import sys
import tempfile
from pathlib import Path

from sklearn.pipeline import make_pipeline

from arbora.classify import TopDownSVC
from arbora.datasets import load_python_docs, read_folder
from arbora.io import load, save
from arbora.metrics import f1_by_level
from arbora.text import LtcVectorizer


def main(folder: str | None = None) -> None:
    if folder is None:
        data = load_python_docs()
        texts, y, hierarchy = data.texts_train, data.y_train, data.hierarchy
    else:
        texts, y, hierarchy, _ = read_folder(folder)
    print(f"{len(texts)} texts, {hierarchy!r}")

    classifier = TopDownSVC(C=3.0, structure=hierarchy, n_jobs=-1, random_state=0, verbose=1)
    model = make_pipeline(LtcVectorizer(), classifier).fit(texts, y)
    print(f"trained to a duality gap of {classifier.duality_gap_:.1e}")
    if folder is None:
        print(f1_by_level(data.y_test, model.predict(data.texts_test), hierarchy))

    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent, "model")
        save(model, path)
        size = sum(file.stat().st_size for file in path.iterdir())
        print(
            f"saved: {size / 1e6:.1f} MB in {', '.join(sorted(file.suffix for file in path.iterdir()))} files"
        )
        loaded = load(path)
    assert (loaded.predict(texts[:100]) == model.predict(texts[:100])).all()

    vectorizer, classifier = loaded[0], loaded[-1]
    text = texts[0] if folder else "Solve a system of linear equations with a sparse matrix"
    row = vectorizer.transform([text])
    print(f"filed: {' > '.join(classifier.predict_path(row)[0])}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
