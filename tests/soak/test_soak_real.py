"""Real programs through random forks, rollbacks, hibernations and kills, with their data looked at
after each: nothing is lost.

Each has a box of its own. BOX_TEST_REAL operations each (4; 50 in `make soak-real`, which adds
those of real.LONG and
the coding agents of agents.py); BOX_TEST_SEED repeats a run, BOX_TEST_ALONE=redis,go takes some of
them only. A failure
tells the seed and what was done; a program that went through it tells its row: operations, refusals
with their words.

A capture may be refused where the message names the process that stands in its way; then the box
goes on as it was.
"""
import collections
import contextlib
import os
import random
import re
import signal
import threading
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
REFUSED = re.compile(r"process \d+ \([^)]+\) [^\\]+")  # says who


class Soak:
    def __init__(self, yard, program, dice):
        self.yard, self.program, self.dice, self.done = yard, program, dice, []
        self.refusals, self.killed = [], collections.Counter()
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
        self.count = now = self.expect(self.box, self.count)
        back = states.rollback(self.box, made["id"])
        self.count = self.expect(self.box, then)
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
        """The daemon, at rest or in the middle of something; what was not answered for may have
        been done or not."""
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

    def kill_criu(self):
        """CRIU, while it restores: the verb may fail with a word, and the box has what it had
        before. (One that is killed
        while it captures may take a process along: src/engine/ns/criu/criu.h, and
        crash/test_crash_states.py.)"""
        verb = self.dice.choice(["fork", "rollback", "wake"])
        then, words = None, [verb, self.box.name]
        if verb == "rollback":
            words, then = [*words, states.snapshot(self.box)["id"]], self.count
            self.count = self.expect(self.box, self.count)
        elif verb == "wake":
            states.hibernate(self.box, 300)
        boxes = {one["id"] for one in self.yard.boxes()}
        asked, over = self.yard.spawn(*words), threading.Event()
        killer = threading.Thread(target=self.kill_one_criu, args=(verb, self.dice.random() * 0.03, over), daemon=True)
        killer.start()
        _, said = asked.communicate(timeout=300)
        over.set()
        killer.join(10)
        assert asked.returncode == 0 or said.strip(), f"{verb} failed without a word"
        eventually(lambda: states.state(self.box) in ("running", "hibernated"), 60, lambda: (self.box.show(), said))
        for child in [one for one in self.yard.boxes() if one["id"] not in boxes]:
            states.of(self.yard, child).remove()
        self.count = self.expect(self.box, then if then is not None and asked.returncode == 0 else self.count)

    def kill_one_criu(self, verb, after, over):
        while not over.is_set():
            for pid in states.criu_processes(self.yard):
                if not over.wait(after):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.killed[verb] += 1
                    return

    OPERATIONS = ["fork", "fork_and_promote", "rollback", "rollback_and_undo", "hibernate", "suspend", "kill", "kill_criu"]

    def step(self):
        name = self.dice.choice(self.OPERATIONS)
        self.done.append(name)
        if self.dice.random() < 0.7:
            self.stir()
        try:
            getattr(self, name)()
        except AssertionError as why:
            refused = REFUSED.search(str(why))
            if not refused:
                raise
            self.refusals.append(refused[0])
            self.done[-1] += " (refused)"
            assert states.state(self.box) == "running", "a refusal leaves the box as it was"
            self.count = self.expect(self.box, self.count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_is_lost(kind, capsys):
    program, dice, before = kind(), random.Random(f"{SEED} {kind.name}"), time.monotonic()
    program.prepare()
    yard, soak = Yard(images=real.SHORT_IMAGES if program.image == real.software.IMAGE else real.IMAGES), None
    try:
        yard.start_daemon()
        soak = Soak(yard, program, dice)
        for _ in range(ROUNDS):
            soak.step()
        with capsys.disabled():
            print(f"\n{program.name}: {len(soak.done)} operations {dict(collections.Counter(soak.done))}, "
                  f"CRIU killed in {dict(soak.killed)}, {len(soak.refusals)} refused {soak.refusals}, "
                  f"{time.monotonic() - before:.0f} s")
    except AssertionError as why:
        raise AssertionError(f"BOX_TEST_SEED={SEED}, {program.name} after {soak.done if soak else 'nothing'}: {why}\n"
                             f"{yard.log_tail()[-1500:]}") from why
    finally:
        with contextlib.suppress(AssertionError):
            if soak:
                soak.box.remove()
        problems = yard.destroy()
    assert not problems, "\n".join(problems)
