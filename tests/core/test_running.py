"""Blocks ``with arbora.running(...)``: what a fit sees in nested blocks, and which block warns."""

import numpy as np
import pytest

import arbora
from arbora.classify import OneVsRestSVC
from arbora.core.running import outside_blocks, running_checkpoint, running_engine
from arbora.engine import ThreadEngine


def visible():
    return running_engine(), running_checkpoint()


def test_an_inner_block_adds_to_the_outer_one_and_leaves_it_as_it_was(tmp_path):
    engine, folder = ThreadEngine(1), tmp_path / "fit"
    assert visible() == (None, None)
    with arbora.running(checkpoint=folder):
        with arbora.running(engine=engine):
            assert visible() == (engine, folder)
            with arbora.running():
                assert visible() == (engine, folder)
        assert visible() == (None, folder)
    assert visible() == (None, None)


def test_what_the_inner_block_gives_hides_the_outer_value(tmp_path):
    with arbora.running(engine=ThreadEngine(1), checkpoint=tmp_path / "outer"):
        with arbora.running(engine="threads", checkpoint=tmp_path / "inner"):
            assert visible() == ("threads", tmp_path / "inner")
        assert visible()[1] == tmp_path / "outer"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"engine": "bogus"}, "engine='bogus': give None, 'threads', 'ray'"),
        ({"engine": ThreadEngine}, "or an engine of arbora.engine"),
        ({"checkpoint": 3}, "checkpoint=3: give the path of a folder"),
        ({"checkpoint": ""}, "checkpoint='': give the path"),
    ],
)
def test_a_value_that_means_nothing_is_refused_at_the_start(params, message):
    with pytest.raises(ValueError, match=message), arbora.running(**params):
        raise AssertionError("the block has begun")


def test_the_warning_names_the_line_of_the_block(tmp_path):
    with (
        pytest.warns(UserWarning, match="no fit of this block") as caught,
        arbora.running(checkpoint=tmp_path),
    ):
        pass
    assert caught[0].filename == __file__


def test_an_error_ends_all_blocks(tmp_path):
    with (
        pytest.raises(KeyError),
        arbora.running(engine=ThreadEngine(1)),
        arbora.running(checkpoint=tmp_path),
    ):
        raise KeyError
    assert visible() == (None, None)


def test_the_block_whose_value_no_fit_used_warns(tmp_path):
    # Warnings are errors: the outer engine counts as used, by the fit of the inner block.
    with (
        arbora.running(engine=ThreadEngine(1)),
        pytest.warns(UserWarning, match="no fit of this block uses a checkpoint"),
        arbora.running(checkpoint=tmp_path),
    ):
        running_engine()
    with (
        pytest.warns(UserWarning, match="no fit of this block uses an engine"),
        arbora.running(engine=ThreadEngine(1)),
        arbora.running(engine="threads"),
    ):
        running_engine()


def test_a_step_of_a_fit_sees_no_block(tmp_path):
    with arbora.running(engine=ThreadEngine(1), checkpoint=tmp_path):
        with outside_blocks():
            assert visible() == (None, None)
        assert visible()[1] == tmp_path


def test_a_fit_in_an_inner_block_uses_the_checkpoint_of_the_outer_one(tmp_path):
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    model = OneVsRestSVC(calibration=None, random_state=0)
    expected = model.fit(X, y).coef_
    with arbora.running(checkpoint=tmp_path / "fit"), arbora.running():  # unused, it would warn
        np.testing.assert_array_equal(model.fit(X, y).coef_, expected)
