#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The six things that people add: an optimizer, an operator, a data source, a job field, an RPC, a trainctl command.

Each tests/additions/NAME.patch adds a toy one, as CONTRIBUTING.md shows it. Here all of them are applied to a copy of the
tree, built with the flags of the build under test, and the tests that they bring are run. A patch may touch nothing but its
room, its table and tests: ADDITIONS says which, and a change of the tree that makes an addition touch more shows here.

    tests/run.sh build/release test_additions
    tests/additions/test_additions.py --tree DIR    the patched copy stays in DIR, to look at or to make patches from

After a change that a patch no longer fits: apply it to a branch by hand (git apply -3), and write it again (git diff >).
"""
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.relpath(os.environ.get("STEADFAST_BUILD") or os.path.join(ROOT, "build", "release"), ROOT)
MAKE_S = 300
TEST_S = 60

# What each may touch beside tests/ and docs/: files that it adds to its room, and the table that it adds a row to.
ADDITIONS = {
    "optimizer": {"new": ["psd/optim/optim_*.c"], "table": ["common/spec/optimizer.h"]},
    "operator": {"new": ["models/graph/*", "kernels/ref/*"], "table": ["models/graph/*", "kernels/*/*"]},
    "data_source": {"new": ["workerd/input/input_*.c"],
                    "table": ["workerd/input/input.[ch]", "common/spec/data_source.c", "common/spec/job_fields.c", "common/spec/job_spec.h"]},
    "job_field": {"new": [], "table": ["common/spec/job_fields.c", "common/spec/job_spec.h"]},
    "rpc": {"new": [], "table": ["proto/coord.proto", "proto/methods.h", "coordinatord/shell/coord_api.c"]},
    "trainctl_command": {"new": ["trainctl/cmd_*.c"], "table": ["trainctl/ctl.h"]},
}
ANYWHERE = ["tests/unit/*", "tests/parity/*", "tests/cluster/*", "tests/golden/*", "docs/*"]


def fits(path, patterns):
    """Unlike a shell's, fnmatch's star crosses folders: count them."""
    return any(fnmatch.fnmatchcase(path, p) and (p.count("/") == path.count("/") or p.startswith(("tests/", "docs/")))
               for p in patterns)


class Patch:
    """One diff: the files it adds and those it changes."""

    def __init__(self, name):
        self.name = name
        self.file = os.path.join(ROOT, "tests", "additions", name + ".patch")
        self.added, self.changed, self.gone = [], [], []
        with open(self.file, encoding="utf-8") as f:
            text = f.read()
        for part in re.split(r"^diff --git ", text, flags=re.M)[1:]:
            path = re.match(r"a/(\S+) b/(\S+)\n", part)
            if not path or path[1] != path[2]:
                raise AssertionError(f"{self.file}: a rename, or not what git diff writes: {part.splitlines()[0]}")
            head = part.split("\n@@", 1)[0]
            kind = self.added if "\nnew file mode" in head else self.gone if "\ndeleted file" in head else self.changed
            kind.append(path[1])
        if not self.added + self.changed:
            raise AssertionError(f"{self.file}: no file is named in it; want the output of git diff")

    def strays(self):
        """What it touches and should not."""
        may = ADDITIONS[self.name]
        return (self.gone + [p for p in self.added if not fits(p, may["new"] + ANYWHERE)] +
                [p for p in self.changed if not fits(p, may["table"] + ANYWHERE)])

    def programs(self):
        """The test programs that it brings or extends, as paths below the build or of the tree."""
        touched = self.added + self.changed
        found = [os.path.join(BUILD, p[:-2]) for p in touched if re.fullmatch(r"tests/(unit|parity)/test_\w+\.c", p)]
        found += [p for p in touched if re.fullmatch(r"tests/cluster/test_\w+\.py", p)]
        if any(p.startswith("tests/golden/") for p in touched):
            found.append(os.path.join(BUILD, "tests/unit/test_golden"))
        return found


def tool(*argv, cwd, limit_s=60, **more_env):
    """What it said. A failure carries its last lines."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("GIT_") and k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    env |= {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.abspath(cwd))} | more_env
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        lines = [x for x in done.stdout.splitlines() if "error" in x or "FAIL" in x] or done.stdout.splitlines()
        raise AssertionError(f"{' '.join(argv)[:120]}: exit {done.returncode}: {' | '.join(lines[:3])[:500]}")
    return done.stdout


def sources():
    """What git knows or would add; of a tree without git, all but what was built."""
    if os.path.exists(os.path.join(ROOT, ".git")):
        listed = tool("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
        return [path for path in listed.split("\0") if path]
    return [os.path.relpath(os.path.join(folder, name), ROOT) for folder, _, names in os.walk(ROOT)
            for name in names if not os.path.relpath(folder, ROOT).startswith("build")]


def copy_tree(tree):
    """The sources and what was built, with their times: make sees nothing to do."""
    for path in sources():
        source, target = os.path.join(ROOT, path), os.path.join(tree, path)
        if os.path.isfile(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(source, target)
    for part in ("gen", "obj"):
        shutil.copytree(os.path.join(ROOT, BUILD, part), os.path.join(tree, BUILD, part))
    shutil.copy2(os.path.join(ROOT, BUILD, "flags.stamp"), os.path.join(tree, BUILD))


def compiler():
    """The CC= of the build: the first words of its command line."""
    with open(os.path.join(ROOT, BUILD, "flags.stamp"), encoding="utf-8") as f:
        return f.read().split(" -D_GNU_SOURCE")[0]


def objects(tree):
    """Every object that has a source, and when it was made."""
    top = os.path.join(tree, BUILD, "obj")
    found = [os.path.relpath(p, top) for p in glob.glob(os.path.join(glob.escape(top), "**", "*.o"), recursive=True)]
    # a build keeps the objects of sources that were removed
    return {os.path.join(BUILD, "obj", p): os.stat(os.path.join(top, p)).st_mtime_ns for p in found
            if os.path.exists(os.path.join(tree, p[:-2] + ".c"))}


def apply_all(tree, patches):
    """One after another; the second of two that touch the same lines is told so."""
    for i, patch in enumerate(patches):
        try:
            tool("git", "apply", "--whitespace=error-all", "-C2", patch.file, cwd=tree)
        except AssertionError as e:
            before = ", ".join(p.name for p in patches[:i]) or "no other"
            raise AssertionError(f"tests/additions/{patch.name}.patch does not apply, after {before}; refresh it: git apply -3 "
                                 f"it on a clean tree, mend, git diff HEAD > it ({e})") from e


def check_rebuilt(tree, before, patches):
    """Nothing stale is left: whatever was made from a file of a patch is newer than that file."""
    touched = {p for patch in patches for p in patch.added + patch.changed if p.endswith((".c", ".h"))}
    now = objects(tree)
    for path, made in now.items():
        depends = os.path.join(tree, path[:-2] + ".d")
        if os.path.relpath(path, os.path.join(BUILD, "obj")).startswith("bench/"):
            continue  # make tests does not build what measures
        with open(depends, encoding="utf-8") as f:
            used = set(f.read().replace("\\\n", " ").replace(":", " ").split())
        for source in used & touched:
            assert made > os.stat(os.path.join(tree, source)).st_mtime_ns, f"{path} was not built again after {source}"
    for source in touched:
        if source.endswith(".c") and not source.startswith("tests/"):
            assert os.path.join(BUILD, "obj", source[:-2] + ".o") in now, f"{source} was not built"
    return sum(before.get(p) != made for p, made in now.items()), len(now)


def results_of(tree, program):
    """The PASS and SKIP lines of one test program; a failure raises."""
    said = tool(os.path.join(".", program), cwd=tree, limit_s=TEST_S, STEADFAST_BUILD=os.path.join(tree, BUILD))
    passed = re.findall(r"^PASS \S+", said, flags=re.M)
    assert passed, f"{program} ran no test"
    return len(passed)


def build_and_run(tree, patches):
    """Applies, builds, runs; returns a line for each test: (name, words)."""
    copy_tree(tree)
    before = objects(tree)
    make = ["make", f"-j{os.cpu_count()}", f"CC={compiler()}"]
    apply_all(tree, patches)
    programs = sorted({p for patch in patches for p in patch.programs()})
    tool(*make, "tests", cwd=tree, limit_s=MAKE_S)
    built, count = check_rebuilt(tree, before, patches)
    assert built < count, f"all {count} objects were built again: what make tests had built was not used"
    yield "all_patches_apply_together_and_build", f"{built} of {count} objects built"
    tool("tests/lint/layers.sh", cwd=tree)
    tool("tests/lint/functions.sh", cwd=tree)
    yield "the_patched_tree_keeps_the_rooms_apart", ""
    for program in programs:
        name = os.path.splitext(os.path.basename(program))[0]
        yield f"{name}_passes_in_the_patched_tree", f"{results_of(tree, program)} passed"


def main():
    keep = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--tree" else None
    failed = False

    def say(result, name, why=""):
        nonlocal failed
        failed = failed or result == "FAIL"
        print(f"{result} test_additions.{name}" + (f": {' '.join(why.split())[:900]}" if why else ""), flush=True)

    patches = []
    for name, may in ADDITIONS.items():
        title = f"{name}_touches_one_room_one_table_and_tests"
        try:
            patch = Patch(name)
            strays = patch.strays()
            assert not strays, f"it touches {', '.join(strays)}; may change {', '.join(may['table'])} and add {', '.join(may['new'])}"
            assert patch.programs(), f"it brings no test: want tests/unit/test_toy_{name}.c, or more in one that is there"
            patches.append(patch)
            say("PASS", title, ", ".join(patch.added + patch.changed))
        except FileNotFoundError:
            say("SKIP", title, f"tests/additions/{name}.patch is not there yet")
        except AssertionError as e:
            say("FAIL", title, str(e))
    tree = keep or tempfile.mkdtemp(prefix="steadfast additions-")  # the blank is meant
    try:
        if keep:
            os.makedirs(keep)
        for name, words in build_and_run(tree, patches):
            say("PASS", name, words)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as e:
        say("FAIL", "the_patched_tree", str(e))
    finally:
        if not keep:
            shutil.rmtree(tree, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
