"""Kill a training in the middle, go on from there, and get the same model.

``python examples/resume_training.py``
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from arbora.classify import OneVsRestSVC
from arbora.datasets import make_hierarchical_text
from arbora.text import LtcTransformer


def train(checkpoint: Path | None) -> OneVsRestSVC:
    data = make_hierarchical_text(4000, 8000, n_leaves=600, random_state=0)
    X = LtcTransformer().fit_transform(data.X_train)
    model = OneVsRestSVC(C=10.0, structure=data.hierarchy, checkpoint=checkpoint, random_state=0)
    return model.fit(X, data.y_train)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "checkpoint")
        worker = multiprocessing.get_context("spawn").Process(target=train, args=(checkpoint,))
        worker.start()
        while worker.is_alive() and len(list(checkpoint.glob("*.piece"))) < 3:
            time.sleep(0.01)
        worker.kill()  # as a power cut would: no chance to tidy up
        worker.join()
        print(f"killed; blocks of classes that survived: {len(list(checkpoint.glob('*.piece')))}")

        start = time.perf_counter()
        resumed = train(checkpoint)
        print(f"resumed and finished in {time.perf_counter() - start:.1f} s")

    start = time.perf_counter()
    whole = train(None)
    print(f"trained from the beginning in {time.perf_counter() - start:.1f} s")
    print("same weights to the last bit:", np.array_equal(resumed.coef_, whole.coef_))


if __name__ == "__main__":
    main()
