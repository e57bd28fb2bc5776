"""Benchmarks, run by hand or by `make bench`.

Importing this package sets ``$ARBORA_DATA`` to ``shared/data`` beside the repository when the variable is unset
and the folder exists: the library itself reads real data sets from ``$ARBORA_DATA`` only.
"""

import os
from pathlib import Path

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if not os.environ.get("ARBORA_DATA") and _BESIDE.is_dir():
    os.environ["ARBORA_DATA"] = str(_BESIDE)
