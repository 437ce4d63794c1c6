"""The built program, which some tests run: `LIVETIME_PROGRAM`, or that of the source tree."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("LIVETIME_PROGRAM", ROOT / "target" / "release" / "livetime"))

#: Marks a test that is skipped where the program is not built.
needs_program = pytest.mark.skipif(
    not PROGRAM.exists(), reason=f"{PROGRAM} is not built: cargo build --release"
)
