"""Real programs go through every operation: each answers afterwards, has lost nothing, and what was
in flight arrives.

All run in one box together, as in the box of somebody who works. BOX_TEST_ALONE=redis,bash takes
some of them only.
"""
import os

import pytest

import software
import states
from boxtest import Yard

ALONE = os.environ.get("BOX_TEST_ALONE", "")


class Workshop:
    def __init__(self, yard):
        def wanted(kinds):
            return [kind() for kind in kinds if ALONE in ("", "1") or kind.name in ALONE.split(",")]

        self.box = yard.new(image=software.IMAGE, memory="3G", pids=1024)
        self.software, self.jobs = wanted(software.SOFTWARE), wanted(software.JOBS)
        assert self.box.put("/root/get.py", software.GET.encode()).status < 300
        for job in self.jobs:
            if hasattr(job, "serve"):
                job.serve(self.box)
        for one in self.software:
            one.start(self.box)
        self.check(self.box)

    def start_jobs(self):
        for job in self.jobs:
            job.start(self.box)

    def check(self, box, jobs=False):
        """{name: number}; every problem is told, not only the first."""
        numbers, bad = {}, []
        for one in [*self.software, *(self.jobs if jobs else [])]:
            try:
                numbers[one.name] = one.check(box)
            except (AssertionError, ValueError) as why:
                bad.append(f"{one.name}: {why}")
        assert not bad, "\n".join(bad)
        return {name: number for name, number in numbers.items() if number is not None}


@pytest.fixture(scope="module")
def workshop():
    software.ensure_states_image()
    yard = Yard(images=software.IMAGES)
    try:
        yard.start_daemon()
        yield Workshop(yard)
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_software_goes_on_after_suspend(workshop):
    workshop.start_jobs()
    states.suspend(workshop.box)
    states.resume(workshop.box)
    workshop.check(workshop.box, jobs=True)


@pytest.mark.slow
def test_software_works_in_parent_and_fork(workshop):
    before = workshop.check(workshop.box)
    workshop.start_jobs()
    [child] = states.fork(workshop.box)
    with states.removed_afterwards(child):
        theirs, ours = workshop.check(child, jobs=True), workshop.check(workshop.box, jobs=True)
        assert theirs == ours == {name: number + 1 for name, number in before.items()}


@pytest.mark.slow
def test_software_goes_on_after_hibernation(workshop):
    before = workshop.check(workshop.box)
    workshop.start_jobs()
    states.hibernate(workshop.box)
    states.wake(workshop.box)
    assert workshop.check(workshop.box, jobs=True) == {name: number + 1 for name, number in before.items()}


@pytest.mark.slow
def test_software_goes_back_with_its_box(workshop):
    before = workshop.check(workshop.box)
    workshop.start_jobs()
    made = states.snapshot(workshop.box)
    workshop.check(workshop.box, jobs=True)
    workshop.check(workshop.box)
    states.rollback(workshop.box, made["id"])
    # The jobs are in flight again and must arrive a second time.
    assert workshop.check(workshop.box, jobs=True) == {name: number + 1 for name, number in before.items()}
