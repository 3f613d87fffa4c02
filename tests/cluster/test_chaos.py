#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Everything at once: daemons of all kinds killed, frozen, told to leave and started again at random moments, while two jobs with
checkpoints and evaluations train. At the end every count is exact. A seed draws the schedule; CHAOS_SEEDS="1 2 3" runs others."""
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    Cluster, assert_exact, lease_args, main, send, synthetic, test)

SPAN_S = 12
NAMES = ("coordinatord", "psd-0", "psd-1", "workerd-0", "workerd-1", "workerd-2")
nap = threading.Event()  # never set: a wait on it is the schedule's own pause between two blows


def there(c, name):
    """The running daemon of this name, or None."""
    try:
        daemon = c.daemon(name)
    except (FileNotFoundError, KeyError):
        return None
    return None if daemon.has_ended() else daemon


def blow(c, draw, frozen):
    """One thing that happens to one daemon."""
    name = draw.choice(NAMES)
    what = draw.choice(("kill", "kill", "freeze", "leave"))
    daemon = there(c, name)
    if daemon is None:
        frozen.pop(name, None)
        c.script("start", name, rc=None)
    elif what == "kill":
        frozen.pop(name, None)
        c.kill(name)
        if draw.random() < 0.6:
            c.script("start", name, rc=None)
    elif daemon.may_die:
        return  # it leaves: a second SIGTERM means at once, and a process that is gone cannot be frozen
    elif what == "leave" and name not in frozen:
        daemon.may_die = True
        send(daemon.pid, signal.SIGTERM)
    elif what == "freeze" and name not in frozen:
        c.pause(name)
        frozen[name] = time.monotonic() + draw.choice((0.2, 0.5, 1.0, 2.0))


def thaw(c, frozen, now):
    for name in [name for name, until in frozen.items() if until <= now]:
        del frozen[name]
        if there(c, name):
            c.go_on(name)


def chaos(seed):
    draw = random.Random(seed)
    with Cluster(ps=2, workers=3, device="fake", shards=draw.choice((1, 2, 3)),
                 coordinator_args=lease_args(600, 100)) as c:
        jobs = [c.submit(synthetic(draw.choice(("mlp", "softmax")), name=f"job-{k}", steps=2000, epochs=3, evaluate=True,
                                   checkpoint={"directory": c.path(f"ckpt-{k}"), "every_steps": draw.choice((100, 300, 1000)),
                                               "max_to_keep": 2})) for k in range(2)]
        if seed % 2:  # one whose values are large enough to be read in place by those who may
            wide = synthetic("mlp", name="wide", side=28, steps=500, epochs=3, evaluate=True,
                             checkpoint={"directory": c.path("ckpt-wide"), "every_steps": 200})
            wide["model"]["hidden"] = [128]
            jobs.append(c.submit(wide))
        frozen = {}
        end = time.monotonic() + SPAN_S
        while time.monotonic() < end:
            thaw(c, frozen, time.monotonic())
            blow(c, draw, frozen)
            nap.wait(draw.random() * 0.5)
        thaw(c, frozen, float("inf"))
        for name in NAMES:
            daemon = there(c, name)
            if daemon:
                daemon.may_die = True  # one that was told to leave may still be about to
            else:
                c.script("start", name, rc=None)
        for job in jobs:
            status = c.wait_status(job, lambda s: s["state"] in ("succeeded", "failed", "cancelled") or revive(c), 90,
                                   "the job ends")
            assert_exact(status)
            assert [e["epoch"] for e in status["evaluations"]] == [1, 2, 3], status["evaluations"]
        for daemon in c.daemons.values():
            assert daemon.status in (None, 0, -signal.SIGKILL), f"seed {seed}: {daemon.name} {daemon.said()}"


def revive(c):
    """Starts again what left after the last blow; never says that the wait is over."""
    for name in NAMES:
        if there(c, name) is None:
            c.script("start", name, rc=None)
    return False


SEEDS = os.environ.get("CHAOS_SEEDS", "201 202").split()


@test(limit_s=120 * len(SEEDS))
def daemons_of_every_kind_dying_at_random_leave_exact_counts():
    for seed in SEEDS:
        chaos(int(seed))


if __name__ == "__main__":
    sys.exit(main())
