"""Set-up and fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

# Test processes share the cores, and matrices are small: one BLAS thread each. Must be set before numpy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# The library reads the real data sets from $ARBORA_DATA only. The tests also look beside the repository. The
# variable is set here, at import, so that subprocesses inherit it.
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if not os.environ.get("ARBORA_DATA") and _BESIDE.is_dir():
    os.environ["ARBORA_DATA"] = str(_BESIDE)

# `make test` gives whole files to its processes, so that a fixture of a module is made once. The slowest files begin
# first: the processes end at about the same time.
_SLOWEST = (
    "engine/test_ray.py", "test_contract.py", "docs/test_pages.py", "discover/gaussian/test_gaussian_mixture.py",
    "explore/test_explore_server.py", "docs/test_examples.py", "datasets/test_datasets_load.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of the slowest files to the front."""
    order = {Path(__file__).parent / name: number for number, name in enumerate(_SLOWEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data sets; tests that use it are skipped when there is none."""
    folder = os.environ.get("ARBORA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("the real data sets are not available: set ARBORA_DATA to their folder")
    return Path(folder)
