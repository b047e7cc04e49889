"""Real programs through random forks, rollbacks, hibernations and kills, with their data looked at after each: nothing is lost.

Each has a box of its own. BOX_TEST_REAL operations each (4; 50 in `make soak-real`, which adds those of real.LONG and the coding agents of agents.py);
BOX_TEST_SEED repeats a run, BOX_TEST_ALONE=redis,go takes some of them only. A failure tells the seed and what was done.
"""
import contextlib
import os
import random
import time

import pytest

import agents
import real
import states
from boxtest import Yard, eventually

ROUNDS = int(os.environ.get("BOX_TEST_REAL", "4"))
SEED = int(os.environ.get("BOX_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
ALONE = [name for name in os.environ.get("BOX_TEST_ALONE", "").split(",") if name not in ("", "1")]
KINDS = [kind for kind in real.SHORT + (real.LONG + agents.AGENTS if os.environ.get("BOX_TEST_REAL") else []) if not ALONE or kind.name in ALONE]


class Soak:
    def __init__(self, yard, program, dice):
        self.yard, self.program, self.dice, self.done = yard, program, dice, []
        self.box = yard.new(image=program.image, memory=program.memory, pids=1024, idle={"suspend": "off"})
        program.start(self.box)
        self.count = program.check(self.box)

    def expect(self, box, count):
        """One more than it was; it counts on from what it had, and no other number."""
        got = self.program.check(box)
        assert got == count + 1, f"{self.program.name} has {got}, not {count + 1}"
        return got

    def stir(self):
        self.program.count = self.count
        self.program.stir(self.box)
        self.count = self.program.count

    def fork(self):
        [child] = states.fork(self.box)
        with states.removed_afterwards(child):
            self.expect(child, self.count)
            self.count = self.expect(self.box, self.count)

    def fork_and_promote(self):
        [child] = states.fork(self.box)
        theirs = self.expect(child, self.count)
        self.yard.box("promote", child.name, timeout=180)
        self.box = states.of(self.yard, child.show())
        self.count = self.expect(self.box, theirs)

    def rollback(self):
        made, then = states.snapshot(self.box), self.count
        for _ in range(self.dice.randint(1, 3)):
            self.count = self.expect(self.box, self.count)
        states.rollback(self.box, made["id"])
        self.count = self.expect(self.box, then)

    def rollback_and_undo(self):
        made, then = states.snapshot(self.box), self.count
        now = self.expect(self.box, self.count)
        back = states.rollback(self.box, made["id"])
        self.expect(self.box, then)
        states.rollback(self.box, back["from"]["id"])
        self.count = self.expect(self.box, now)

    def hibernate(self):
        states.hibernate(self.box, 300)
        if self.dice.random() < 0.5:
            states.wake(self.box, 300)
        self.count = self.expect(self.box, self.count)

    def suspend(self):
        states.suspend(self.box)
        self.count = self.expect(self.box, self.count)

    def kill(self):
        """The daemon, at rest or in the middle of something; what was not answered for may have been done or not."""
        asked = None
        if self.dice.random() < 0.5:
            asked = self.yard.spawn(*self.dice.choice([("snapshot", self.box.name), ("hibernate", self.box.name)]))
            time.sleep(self.dice.random() * 0.3)
        self.yard.kill_daemon()
        if asked:
            asked.communicate(timeout=60)
        self.yard.start_daemon()
        eventually(lambda: states.state(self.box) in ("running", "hibernated"), 60, lambda: states.state(self.box))
        self.count = self.expect(self.box, self.count)

    OPERATIONS = ["fork", "fork_and_promote", "rollback", "rollback_and_undo", "hibernate", "suspend", "kill"]

    def step(self):
        name = self.dice.choice(self.OPERATIONS)
        self.done.append(name)
        if self.dice.random() < 0.7:
            self.stir()
        getattr(self, name)()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_is_lost(kind):
    program, dice = kind(), random.Random(f"{SEED} {kind.name}")
    program.prepare()
    yard, soak = Yard(images=real.SHORT_IMAGES if program.image == real.software.IMAGE else real.IMAGES), None
    try:
        yard.start_daemon()
        soak = Soak(yard, program, dice)
        for _ in range(ROUNDS):
            soak.step()
    except AssertionError as why:
        raise AssertionError(f"BOX_TEST_SEED={SEED}, {program.name} after {soak.done if soak else 'nothing'}: {why}\n"
                             f"{yard.log_tail()[-1500:]}") from why
    finally:
        with contextlib.suppress(AssertionError):
            if soak:
                soak.box.remove()
        problems = yard.destroy()
    assert not problems, "\n".join(problems)
