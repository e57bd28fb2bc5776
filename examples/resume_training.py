"""Kill a training process, resume from its checkpoint, and get the same model.

``python examples/resume_training.py``
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

import arbora
from arbora.classify import OneVsRestSVC
from arbora.datasets import make_hierarchical_text
from arbora.text import LtcTransformer

ENOUGH = 7  # of the 10 blocks of classes


def train(checkpoint: Path | None = None) -> OneVsRestSVC:
    data = make_hierarchical_text(1000, 3000, n_leaves=320, random_state=0)
    X = LtcTransformer().fit_transform(data.X_train)
    # The checkpoint keeps finished blocks of classes. Calibration is off, since probabilities are not needed.
    model = OneVsRestSVC(C=10.0, calibration=None, random_state=0, verbose=1)
    start = time.perf_counter()
    with arbora.running(checkpoint=checkpoint):
        model.fit(X, data.y_train)
    print(f"trained in {time.perf_counter() - start:.1f} s")
    return model


def train_and_die(checkpoint: Path) -> int:
    """Train in another process and kill it; return the number of blocks in the checkpoint."""
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
        print(f"killed; {train_and_die(checkpoint)} blocks of classes are in the checkpoint")
        print("resumed: ", end="", flush=True)
        resumed = train(checkpoint)
    print("same weights to the last bit:", np.array_equal(resumed.coef_, whole.coef_))


if __name__ == "__main__":
    main()
