"""The debug mode: an index out of range is an error, and the caches of the two modes are apart."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = """
    import numpy as np
    from arbora.kernels.products import csr_rows_times_dense
    wide, out = np.full((10, 2), 7.0), np.zeros((1, 2))
    W = wide[:3]  # the memory behind the three rows is valid: an unchecked kernel reads it and does not crash
    indptr, indices, data = np.array([0, 1], np.int32), np.array([5], np.int32), np.ones(1)
    try:
        csr_rows_times_dense(indptr, indices, data, W, 0, 1, out)
        print("no error", out.tolist())
    except IndexError as error:
        print("IndexError", error)
    import numba
    print(numba.config.CACHE_DIR)
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), **environment}
    given.pop("NUMBA_BOUNDSCHECK", None)  # set if the tests themselves run in the checked mode
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env=given,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_an_index_out_of_range_raises_in_the_checked_mode_only(tmp_path):
    checked, cache = run(tmp_path, ARBORA_CHECK="1")
    assert checked.startswith("IndexError")
    assert Path(cache) == tmp_path / "checked"
    # The other mode must not load what the checked one has compiled, nor the reverse.
    for value, found in (("0", "no error [[7.0, 7.0]]"), ("1", checked)):
        assert run(tmp_path, ARBORA_CHECK=value)[0] == found
