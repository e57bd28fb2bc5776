"""Joint fits that are taken up again from checkpoints that are not whole: they say so, and end with the same bits."""

import re
import warnings

import numpy as np
import pytest

from arbora.core.checkpoint import Checkpoint
from support.coupled_problems import WIDE, JointProblem

SETTINGS = {"tol": 1e-9, "max_iter": 6, "seed": 3}


class Cut(Exception):
    pass


class Cutting:
    """Progress that ends the fit after some rounds."""

    def __init__(self, after):
        self.left = after

    def update(self, **shown):
        self.left -= 1
        if not self.left:
            raise Cut


@pytest.fixture
def problem():
    return JointProblem(*WIDE["tree"], "hinge")


@pytest.fixture
def folder(problem, tmp_path):
    """Pieces of a fit that was cut off when four rounds were done, and the fifth not begun."""
    path = tmp_path / "fit"
    with pytest.raises(Cut):
        problem.joint().solve(**SETTINGS, checkpoint=Checkpoint(path, "a fit"), progress=Cutting(4))
    return path


def piece(folder, key):
    (path,) = folder.glob(f"{key}-????????.piece")
    return path


def assert_same(solution, other):
    np.testing.assert_array_equal(solution.shared, other.shared)
    assert solution.certificate == other.certificate
    for left, right in zip(solution.multipliers, other.multipliers, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)


def resume(problem, folder):
    return problem.joint().solve(**SETTINGS, checkpoint=Checkpoint(folder, "a fit"))


def test_a_complete_checkpoint_resumes_without_a_warning(problem, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = resume(problem, folder)
    assert_same(resumed, problem.joint().solve(**SETTINGS))


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"?"), lambda path: path.unlink()])
@pytest.mark.filterwarnings("ignore:piece .* is damaged:UserWarning")
def test_missing_blocks_are_reported(problem, folder, damage):
    # The round with index 3, the last one begun, is odd: it began with the blocks of the even round before.
    for key in ("block-1-0", "block-2-0"):
        damage(piece(folder, key))
    message = f"{re.escape(str(folder))} is incomplete: cannot read 'block-1-0' and .* more.*starts again"
    with pytest.warns(UserWarning, match=message):
        resumed = resume(problem, folder)
    assert_same(resumed, problem.joint().solve(**SETTINGS))


def test_missing_shared_parts_are_reported(problem, folder):
    piece(folder, "shared-1").unlink()
    with pytest.warns(UserWarning, match="cannot read 'shared-1'"):
        resumed = resume(problem, folder)
    assert_same(resumed, problem.joint().solve(**SETTINGS))
