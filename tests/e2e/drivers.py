"""drivers.py - which tests a driver cannot pass, and why

    BOX_TEST_DRIVER=vm pytest tests/e2e

runs the tests with boxes of that driver. What it cannot do stands here, in one table, with the reason that
docs/drivers.md gives to users; everything else must pass. A name is "file", "file::test" or a beginning of either.
"""
import os

CANNOT = {
    "vm": {
    },
}


def reason(nodeid):
    """Why this test is not for the driver under test, or None."""
    name = nodeid.split("/")[-1].replace(".py", "", 1)
    for beginning, why in CANNOT.get(os.environ.get("BOX_TEST_DRIVER", ""), {}).items():
        if name.startswith(beginning):
            return why
    return None
