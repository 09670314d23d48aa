"""Data files that are not in the repository: where tests find them, and what happens without them."""

import os
from pathlib import Path

import pytest


def folder_with(*names: str) -> Path:
    """The folder `$CORESETVI_DATA`, if it has these files; otherwise the test is skipped.

    Where `CORESETVI_REQUIRE_DATA=1` promises that all files are there, a missing one is a failure.
    """
    folder = Path(os.environ.get("CORESETVI_DATA") or "/nowhere")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        stop = pytest.fail if os.environ.get("CORESETVI_REQUIRE_DATA") == "1" else pytest.skip
        stop(f"$CORESETVI_DATA ({folder}) lacks {', '.join(missing)}")
    return folder
