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


# Commands, servers and pages print warnings, and their examples are small. All other tests assert what they expect.
_WARN = ("app", "cli", "datasets", "docs", "explore", "fuzz")


def family(item: pytest.Item) -> str:
    """Tests that share what is fitted, or compiled by numba: a file, or in the contract a family of models."""
    row = item.callspec.params.get("row") if hasattr(item, "callspec") else None
    if not hasattr(row, "cls"):
        return item.path.stem
    _, package, module, *_ = row.cls.__module__.split(".")
    return module if package == "discover" else package


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest files to the front, name families for `make quick`, and let commands and examples warn."""
    here = Path(__file__).parent
    for item in items:
        item.add_marker(pytest.mark.xdist_group(family(item)))
        is_test = item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] not in _WARN
        if not is_test or isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.filterwarnings("always::UserWarning"))
    order = {here / name: number for number, name in enumerate(_SLOWEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data sets; tests that use it are skipped when there is none."""
    folder = os.environ.get("ARBORA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("the real data sets are not available: set ARBORA_DATA to their folder")
    return Path(folder)
