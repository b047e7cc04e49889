"""drivers.py - which tests a driver cannot pass, and why

    BOX_TEST_DRIVER=vm pytest tests/e2e

runs the tests with boxes of that driver. What it cannot do stands here, in one table, with the reason that
docs/drivers.md gives to users; everything else must pass. A name is "file", "file::test" or a beginning of either.
"""
import os

CAPTURED_WHOLE = "vm captures a machine whole: there is no program that it has to refuse"
MOUNTS = "vm has no folders of the host: QEMU is confined"
INIT_SOCKET = "vm: only the daemon reaches box-init"
SIZE = "vm: a machine has the RAM it was started with, so no spare becomes a box of another size"
KERNEL = "vm: a box has its own kernel: its users are not the host's, and root may do all in every profile"
MEMORY = "vm: memory runs out in the guest's kernel, not in the box's cgroup"

CANNOT = {
    "vm": {
        "test_states::test_what_cannot_be_captured": CAPTURED_WHOLE,
        "test_states::test_down_names_the_boxes_it_could_not_hibernate": CAPTURED_WHOLE,
        "test_states::test_why_a_box_was_not_hibernated": CAPTURED_WHOLE,
        "test_states_forked::test_unusual_state_that_cannot_be_restored": CAPTURED_WHOLE,
        "test_states_forked::test_what_cannot_come_back_is_refused": CAPTURED_WHOLE,
        "test_sftp": INIT_SOCKET,
        "test_states::test_a_file_and_a_folder_of_the_host": MOUNTS,
        "test_spares::test_a_spare_becomes_the_box_that_was_asked_for": SIZE,
        "test_spares::test_more_boxes_than_spares_at_once": KERNEL,
        "test_spares::test_another_profile_is_never_served_by_a_spare": KERNEL,
        "test_limits::test_memory": MEMORY,
        "test_limits::test_what_waits_for_memory": MEMORY,
        "test_limits::test_a_box_resumed_without_more_memory": MEMORY,
        "test_limits::test_notify_kills_as_ever": MEMORY,
        "test_limits::test_a_paused_box_survives_its_daemon": MEMORY,
        "test_limits::test_the_limit_of_a_tree_pauses": MEMORY,
    },
}


def reason(nodeid):
    """Why this test is not for the driver under test, or None."""
    name = nodeid.split("/")[-1].replace(".py", "", 1)
    for beginning, why in CANNOT.get(os.environ.get("BOX_TEST_DRIVER", ""), {}).items():
        if name.startswith(beginning):
            return why
    return None
