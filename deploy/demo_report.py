#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The account of the demo: a table from `trainctl status --json`, and whether it adds up.

usage: demo_report.py STATUS.json CLUSTER.json KILLED_PID
Exit 1, with one line a reason, when the accuracy is under 0.89, anything was lost, repeated or abandoned, a shard's
count differs from the ledger's, or the killed worker was not replaced by another process.
"""
import json
import sys

ACCURACY_WANTED = 0.89


def table(status):
    steps = status["steps"]
    rows = [("steps in the job", steps["total"]), ("issued", steps["issued"]), ("acknowledged", steps["acknowledged"])]
    rows += [(f"applied on {s['server']} shard {s['shard']}", s["applied"]) for s in status["shards"]]
    rows += [("re-issued", steps["reissued"]), ("duplicates refused", status["duplicates_refused"]),
             ("abandoned", steps["abandoned"]), ("lost", status["lost"]), ("repeated", status["repeated"])]
    return rows


def faults(status, cluster, killed_pid):
    """One sentence for everything that does not add up."""
    steps = status["steps"]
    found = []

    def want(ok, text):
        if not ok:
            found.append(text)

    want(status["state"] == "succeeded", f"the job {status['state']}: {status.get('reason', '')}")
    want(status["evaluations"], "nothing was evaluated")
    if status["evaluations"]:
        accuracy = status["evaluations"][-1]["accuracy"]
        want(accuracy is not None and accuracy >= ACCURACY_WANTED, f"accuracy {accuracy}, want {ACCURACY_WANTED}")
    for name in ("lost", "repeated"):
        want(status[name] == 0, f"{status[name]} steps {name}")
    want(status["accounting_final"], "lost and repeated were not computed from the shards' marks")
    want(steps["abandoned"] == 0, f"{steps['abandoned']} steps abandoned")
    want(steps["acknowledged"] == steps["total"], f"{steps['acknowledged']} of {steps['total']} steps acknowledged")
    want(steps["issued"] == steps["acknowledged"], f"{steps['issued']} issued, {steps['acknowledged']} acknowledged")
    want(len({s["server"] for s in status["shards"]}) == 2, "not both parameter servers hold variables")
    for s in status["shards"]:
        want(s["applied"] == steps["acknowledged"],
             f"{s['server']} shard {s['shard']} applied {s['applied']}, acknowledged are {steps['acknowledged']}")
    want(killed_pid, "the job ended before a worker could be killed")
    back = [m for m in cluster["members"] if m["name"] == "worker:1" and m["state"] == "attached"]
    want(back and str(back[0]["pid"]) != killed_pid, "worker:1 did not come back as a new process")
    want(steps["reissued"] > 0 or not killed_pid, "a worker died, and no step was issued again")
    return found


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        status = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        cluster = json.load(f)
    print()
    for evaluation in status["evaluations"]:
        print(f"  test accuracy after epoch {evaluation['epoch']:<3} {evaluation['accuracy']:>12.4f}")
    for name, value in table(status):
        print(f"  {name:<29}{value:>12}")
    print()
    found = faults(status, cluster, sys.argv[3])
    for text in found:
        print(f"demo: {text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
