"""What every engine keeps: order, ordered sums, local shards; and what a remote one is refused for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbora.core.chunks import split, split_nonzeros
from arbora.core.engine import SerialEngine, add, check_needs
from arbora.engine import RayEngine, ThreadEngine


class Count:
    n = 0

    def update(self, n=1):
        self.n += n


@pytest.mark.parametrize(
    "engine", [SerialEngine(), ThreadEngine(2), RayEngine(n_jobs=2)], ids=["serial", "threads", "ray"]
)
def test_engines_agree_on_map_and_sum(engine):
    count = Count()
    with engine as opened:
        assert opened is engine
        assert engine.map(abs, [-3, 2, -1], progress=count) == [3, 2, 1]
        assert list(engine.imap(abs, [-3, 2, -1])) == [3, 2, 1]
        assert engine.sum(float, ["0.5", "0.25"]) == 0.75
        with pytest.raises(ValueError, match="no item"):
            engine.sum(abs, [])
    assert count.n == 3
    np.testing.assert_array_equal(engine.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    assert not engine.keeps_weights_in_files


def test_options_that_need_one_process_are_refused_on_a_cluster():
    for engine in (SerialEngine(), ThreadEngine(2)):
        check_needs("batch_size=10", engine, ["shares_memory"], "use threads")
    with pytest.raises(ValueError, match=r"batch_size=10 .*RayEngine\(n_shards=2\).*: use threads\."):
        check_needs("batch_size=10", RayEngine(n_shards=2), ["shares_memory"], "use threads")


def test_statistics_of_different_form_are_refused():
    with pytest.raises(ValueError, match="different keys"):
        add({"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="zip"):
        add((1, 2), (1,))


@given(st.integers(0, 300), st.integers(1, 40))
def test_chunks_cover_the_range_once_and_are_balanced(n, size):
    for cut in (split(n, size), split(n, size=size)):
        assert [i for chunk in cut for i in range(chunk.start, chunk.stop)] == list(range(n))
        lengths = [chunk.stop - chunk.start for chunk in cut]
        assert not lengths or (min(lengths) >= 1 and max(lengths) - min(lengths) <= 1)
    assert len(split(n, size)) == min(n, size)
    assert all(chunk.stop - chunk.start <= size for chunk in split(n, size=size))
    assert [chunk.start for chunk in split(n, size=size, even=False)] == list(range(0, n, size))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 9))
def test_chunks_of_non_zeros_cover_all_rows_once(lengths, n_chunks):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    cut = split_nonzeros(indptr, n_chunks)
    assert [i for chunk in cut for i in range(chunk.start, chunk.stop)] == list(range(len(lengths)))
    assert len(cut) <= n_chunks
    for chunk in cut:  # a chunk exceeds its share by less than one row
        assert indptr[chunk.stop] - indptr[chunk.start] <= indptr[-1] / n_chunks + 2 * max(lengths)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"n_chunks": 2, "size": 2}, {"n_chunks": 0}, {"size": 0}],
    ids=["none", "both", "0", "size0"],
)
def test_split_refuses_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=r"n_chunks|size"):
        split(5, **arguments)
    with pytest.raises(ValueError, match="negative"):
        split(-1, 2)
