#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo's account: a sound one passes, and each way of not adding up is found and named."""
import copy
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "deploy"))
import demo_report  # noqa: E402  pylint: disable=wrong-import-position,import-error

STATUS = {"state": "succeeded", "reason": "",
          "steps": {"total": 2814, "issued": 2814, "acknowledged": 2814, "reissued": 3, "abandoned": 0},
          "duplicates_refused": 1, "lost": 0, "repeated": 0, "accounting_final": True,
          "shards": [{"server": "ps:0", "shard": 0, "applied": 2814, "bytes": 1},
                     {"server": "ps:1", "shard": 0, "applied": 2814, "bytes": 1}],
          "evaluations": [{"epoch": 1, "step": 938, "loss": 0.5, "accuracy": 0.8},
                          {"epoch": 3, "step": 2814, "loss": 0.3, "accuracy": 0.9}]}
CLUSTER = {"members": [{"name": "worker:1", "state": "lost", "pid": 11},
                       {"name": "worker:1", "state": "attached", "pid": 12}]}

# What is changed (path of keys, new value), and words of the sentence that has to name it.
BROKEN = [
    (["state"], "failed", "the job failed"),
    (["evaluations"], [], "nothing was evaluated"),
    (["evaluations", 1, "accuracy"], 0.8899, "accuracy 0.8899, want 0.89"),
    (["evaluations", 1, "accuracy"], None, "accuracy None"),
    (["lost"], 1, "1 steps lost"),
    (["repeated"], 2, "2 steps repeated"),
    (["accounting_final"], False, "not computed from the shards' marks"),
    (["steps", "abandoned"], 1, "1 steps abandoned"),
    (["steps", "acknowledged"], 2813, "2813 of 2814 steps acknowledged"),
    (["steps", "issued"], 2815, "2815 issued"),
    (["steps", "reissued"], 0, "no step was issued again"),
    (["shards", 1, "applied"], 2815, "ps:1 shard 0 applied 2815"),
    (["shards", 1, "server"], "ps:0", "not both parameter servers"),
]


def a_sound_account_has_no_fault():
    assert demo_report.faults(STATUS, CLUSTER, "11") == []


def every_count_that_does_not_agree_is_named():
    for path, value, words in BROKEN:
        status = copy.deepcopy(STATUS)
        at = status
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        found = demo_report.faults(status, CLUSTER, "11")
        assert any(words in text for text in found), (path, value, found)


def a_worker_that_was_not_killed_or_did_not_return_is_named():
    assert any("could be killed" in t for t in demo_report.faults(STATUS, CLUSTER, ""))
    gone = {"members": CLUSTER["members"][:1]}
    assert any("did not come back" in t for t in demo_report.faults(STATUS, gone, "11"))
    assert any("did not come back" in t for t in demo_report.faults(STATUS, CLUSTER, "12"))


def the_table_shows_every_shard():
    rows = dict(demo_report.table(STATUS))
    assert rows["applied on ps:1 shard 0"] == 2814 and rows["lost"] == 0 and rows["re-issued"] == 3, rows


def main():
    failed = 0
    for test in (a_sound_account_has_no_fault, every_count_that_does_not_agree_is_named,
                 a_worker_that_was_not_killed_or_did_not_return_is_named, the_table_shows_every_shard):
        try:
            test()
            print(f"PASS test_demo_report.{test.__name__}")
        except Exception as e:  # pylint: disable=broad-except
            failed = 1
            print(f"FAIL test_demo_report.{test.__name__}: {type(e).__name__}: {e}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
