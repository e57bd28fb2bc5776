"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data sets; tests that need it are skipped on a machine without it."""
    folder = Path(os.environ.get("ARBORA_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real data sets are not on this machine (set ARBORA_DATA)")
    return folder
