"""fixtures.py - what tests ask for by name

    yard         one daemon for the whole run; tests share it and must leave it as they found it
    box          a fresh running box of that daemon, removed afterwards
    fresh_yard   a daemon of the test's own, for tests that kill or stop it; purged and checked afterwards
    make_box     makes boxes with options, removed afterwards
"""
import contextlib
import signal

import pytest

import drivers
from boxtest import BOX_BIN, SANITIZED, Yard, ensure_image

MARKERS = {
    "asan": "also run against the sanitizer build",
    "slow": "takes longer than two seconds",
}


def pytest_configure(config):
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    # A terminated run cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """Tests that the driver under test cannot pass are left out, aloud, by the table of drivers.py."""
    left_out = {item: drivers.reason(item.nodeid) for item in items}
    if gone := [item for item in items if left_out[item]]:
        items[:] = [item for item in items if not left_out[item]]
        config.hook.pytest_deselected(items=gone)
        for why in sorted({left_out[item] for item in gone}):
            count = sum(left_out[item] == why for item in gone)
            print(f"not for this driver: {count} tests: {why}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Whatever the fixtures did not get to (Ctrl-C in the middle of a set-up) goes here, aloud."""
    problems = [problem for yard in list(Yard.alive) for problem in yard.destroy()]
    if problems:
        print("\n" + "\n".join(problems))
        session.exitstatus = 1


@pytest.fixture(scope="session")
def image():
    if not BOX_BIN.exists():
        pytest.exit(f"{BOX_BIN} is not built; run make", returncode=1)
    ensure_image()


@contextlib.contextmanager
def running_yard_with(**env):
    yard = Yard()
    yard.env.update(env)
    try:
        yard.start_daemon()
        yield yard
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def yard(image):
    with running_yard_with() as one:
        yield one


@pytest.fixture
def fresh_yard(image):
    with running_yard_with() as one:
        yield one


@pytest.fixture
def make_box(yard):
    made = []

    def make(**body):
        made.append(yard.new(**body))
        return made[-1]

    yield make
    for one in made:
        assert one.remove().status in (204, 404)


@pytest.fixture
def box(make_box):
    return make_box()


@pytest.fixture
def quick():
    """Skips promises about time and memory under the sanitizers."""
    if SANITIZED:
        pytest.skip("figures mean nothing under the sanitizers")
