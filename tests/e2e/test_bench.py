"""`box bench` of the network: figures from a network and a daemon of its own, and nothing left of
them."""
import json
import os
import signal
import subprocess
import time

import pytest

from boxtest import BOX_BIN, eventually, instance_cgroups, instance_name, leftovers


@pytest.fixture
def place(tmp_path_factory):
    """Where the measured daemon keeps its things: must be empty afterwards."""
    folder = tmp_path_factory.mktemp("b")
    yield folder
    assert not list(folder.iterdir())


def bench_env(place):
    # No daemon here: the rows of the network bring their own.
    return {**os.environ, "TMPDIR": str(place), "BOX_HOME": str(place / "none"), "BOX_RUN": str(place / "none")}


def start(place, *args):
    return subprocess.Popen([str(BOX_BIN), "bench", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, env=bench_env(place))


def test_network_rows_are_measured_without_a_daemon(place):
    run = start(place, "net_teardown", "net_connect_added", "net_first", "net_flows_100", "net_ingress", "net_answers", "net_ping_flat",
                "--runs", "2", "--boxes", "3", "--json", "--quiet")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    rows = {row["name"]: row for row in json.loads(out)}
    assert {"net_connect", "net_connect_direct", "net_connect_added", "net_first_direct", "net_flows_100_fair", "net_ingress_core",
            "net_ingress_direct", "net_answers_core", "net_many_ping", "net_ping"} <= set(rows)
    for name, row in rows.items():
        assert row["runs"] == 2 and "failed" not in row, row
        assert name.endswith("_added") or row["p50"] > 0, row
    assert 0.5 < rows["net_flows_100_fair"]["p50"] <= 1.0


def test_an_interrupted_run_leaves_nothing(place):
    run = start(place, "net", "--boxes", "50", "--quiet")
    [home] = eventually(lambda: list(place.glob("*/home/audit")), 20, "the measured daemon runs")
    time.sleep(0.5)
    base, name = home.parents[1], instance_name(home.parent)
    assert instance_cgroups(name)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "NAME" in out, err
    eventually(lambda: not leftovers(name, base), 5, lambda: leftovers(name, base))


def test_rows_of_states(yard):
    rows = {row["name"]: row for row in json.loads(yard.box(
        "bench", "suspend", "resume_first_byte", "fork_small", "fork_ten", "snapshot_small", "rollback_small", "hibernate_small",
        "new_golden", "--runs", "2", "--no-peers", "--json", "--quiet", timeout=120).stdout)}
    assert {"resume", "resume_answer", "fork_small_paused", "fork_ten_paused", "snapshot_small_paused", "rollback_small_forget",
            "wake_small"} <= set(rows)
    for row in rows.values():
        assert row["runs"] == 2 and row["p50"] > 0 and "failed" not in row, row
    for name in ("fork_small", "fork_ten", "snapshot_small"):
        assert rows[name + "_paused"]["p50"] < rows[name]["p50"], name
    assert not yard.boxes()
    assert not [image["name"] for image in yard.api("GET", "/v1/images", expect=200).json["images"] if image["name"].startswith("golden-")]


def test_rows_of_boxes_with_their_own_kernel(yard):
    """Measured where the driver is; told aloud where it is not."""
    driver = yard.api("GET", "/v1/info", expect=200).json["drivers"].get("vm", {})
    rows = {row["name"]: row for row in json.loads(yard.box(
        "bench", "vm_suspend", "vm_private_memory", "--runs", "1", "--no-peers", "--json", "--quiet", timeout=240).stdout)}
    assert set(rows) == {"vm_suspend", "vm_resume", "vm_private_memory"}
    for row in rows.values():
        assert "failed" not in row, row
        if driver.get("available"):
            assert row["runs"] == 1 and row["p50"] > 0, row
        else:
            assert row["runs"] == 0 and "there is no driver vm" in row["note"], row
    assert not yard.boxes()
