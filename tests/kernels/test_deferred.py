"""Kernels that import numba at their first call."""

import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np

import arbora.kernels
from arbora.kernels import put_block
from arbora.kernels.deferred import Kernel

PROGRAM = """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier
    import numpy as np
    from arbora.kernels.products import csr_rows_times_dense, put_block
    assert "numba" not in sys.modules
    W, together = np.arange(6.0).reshape(3, 2), Barrier(4)

    def copy(kernel):
        out = np.zeros((3, 2))
        together.wait()
        if kernel is put_block:
            put_block(W, np.arange(3), np.arange(2), out)
        else:  # it uses another kernel
            kernel(np.arange(4), np.arange(3), np.ones(3), W, 0, 3, out)
        return out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(copy, [put_block, csr_rows_times_dense] * 2))
    assert all(np.array_equal(out, W) for out in results)
    assert len(put_block.compiled.signatures) == len(csr_rows_times_dense.compiled.signatures) == 1
"""


def test_threads_may_make_the_first_call_together():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_kernel_can_be_pickled_before_and_after_its_first_call():
    W = np.arange(6.0).reshape(3, 2)
    assert isinstance(put_block, Kernel)
    for _ in range(2):
        out = np.zeros((3, 2))
        pickle.loads(pickle.dumps(put_block))(W, np.arange(3), np.arange(2), out)
        np.testing.assert_array_equal(out, W)
        put_block(W, np.arange(3), np.arange(2), out)


def test_all_kernel_modules_defer_numba():
    """A function of numba itself cannot call a kernel that was not called before."""
    folder = Path(arbora.kernels.__file__).parent
    direct = [
        path.name for path in folder.rglob("*.py") if re.search("^import numba", path.read_text(), re.M)
    ]
    assert direct == []
