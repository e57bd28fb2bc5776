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

ENOUGH = 15  # of the 20 blocks of classes


def train(checkpoint: Path | None = None) -> OneVsRestSVC:
    data = make_hierarchical_text(1500, 3000, n_leaves=640, random_state=0)
    X = LtcTransformer().fit_transform(data.X_train)
    # Probabilities are not needed here, and only finished blocks of classes are kept.
    model = OneVsRestSVC(C=10.0, calibration=None, checkpoint=checkpoint, random_state=0, verbose=1)
    start = time.perf_counter()
    model.fit(X, data.y_train)
    print(f"trained in {time.perf_counter() - start:.1f} s")
    return model


def train_and_die(checkpoint: Path) -> int:
    """Train in a process of its own and kill it, as a power cut would; count the blocks that survive."""
    process = multiprocessing.get_context("spawn").Process(target=train, args=(checkpoint,))
    process.start()
    while process.is_alive() and len(list(checkpoint.glob("*.piece"))) < ENOUGH:
        time.sleep(0.005)
    process.kill()
    process.join()
    return len(list(checkpoint.glob("*.piece")))


def main() -> None:
    print("without interruption: ", end="", flush=True)
    whole = train()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "checkpoint")
        print(f"killed; {train_and_die(checkpoint)} blocks of classes survive")
        print("resumed: ", end="", flush=True)
        resumed = train(checkpoint)
    print("same weights to the last bit:", np.array_equal(resumed.coef_, whole.coef_))


if __name__ == "__main__":
    main()
