"""The base image: what people and programs expect to find in a box made of it."""


def test_the_tools_of_daily_work_are_there(box):
    box.sh("pip --version && nano --version && strace -V && ping -V && python3 -m venv /tmp/v && /tmp/v/bin/pip --version")


def test_packages_that_link_their_manuals_can_be_installed(box):
    # openjdk's scripts call update-alternatives for pages in man1, which fails without the folder.
    box.sh("touch /usr/bin/try /tmp/page && update-alternatives --install /usr/bin/tried tried /usr/bin/try 1 "
           "--slave /usr/share/man/man1/tried.1.gz tried.1.gz /tmp/page")


def test_ping_reaches_the_box_itself_and_is_told_that_the_rest_is_filtered(box):
    box.sh("ping -c 1 -W 2 127.0.0.1")
    outside = box.sh("ping -c 1 -W 2 192.0.2.1", check=False)
    assert outside.returncode != 0 and "filtered" in (outside.stdout + outside.stderr).lower()


def test_a_debugger_works(box):
    assert "exited with 0" in box.sh("strace -f true 2>&1").stdout
