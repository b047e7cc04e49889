"""Fixtures come from the end-to-end tests; see ../e2e/fixtures.py."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
from fixtures import *  # noqa: E402,F401,F403
