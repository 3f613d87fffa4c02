#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every example in the documents does what it says.

A block of a document is fenced (```LANGUAGE) or indented by four spaces. What it is follows from its language and
content; where that is not enough, a comment on the line before says it, invisible in a rendered page:

    <!-- example: part of optimizer -->      json: members of that object of a job
    <!-- example: errors of a job -->        text: each line is the .expect of an invalid job in tests/golden/job
    <!-- example: synopsis of trainctl -->   every command and option, and no other
    <!-- example: drawing -->                nothing to run
    <!-- example: not run: WHY -->           the way out; WHY is for the reader of the source

A block for which there is no check fails the first test, so a new kind of example brings its check with it.
"""
import glob
import json
import os
import re
import shlex
import subprocess

from cluster import (BIN, BUILD, MNIST, OK, ROOT, SCRIPT, USAGE, Cluster, Skip, assert_exact, main, test, wait_until)

PROGRAMS = ("coordinatord", "psd", "workerd", "trainctl")
SHELL_WORDS = {"export", ".", "cd", "kill", "cat", "ls", "mkdir", "rm", "git", "journalctl"}
EXAMPLE = os.path.join(ROOT, "docs", "examples", "fashion-lenet.json")


# ---- documents into blocks ---------------------------------------------------------------------
class Block:
    def __init__(self, path, line, section):
        self.path, self.line, self.section = path, line, section
        self.language = None  # of a fence, maybe ""; None: indented
        self.marker = ""
        self.lines = []

    def where(self):
        return f"{self.path}:{self.line}"

    def text(self):
        return "\n".join(self.lines)


def blocks_of(path, text):
    """All blocks of one document."""
    found, block, marker, section, was_blank = [], None, "", "", True
    for number, line in enumerate(text.splitlines(), 1):
        if block and block.language is not None:  # inside a fence
            if line.startswith("```"):
                block = None
            else:
                block.lines.append(line)
            continue
        if block and (line.startswith("    ") or (not line.strip() and block.lines)):
            block.lines.append(line[4:])
            was_blank = not line.strip()
            continue
        block = None
        if line.startswith("```") or (line.startswith("    ") and line.strip() and was_blank):
            block = Block(path, number, section)
            block.marker, marker = marker, ""
            found.append(block)
            if line.startswith("```"):
                block.language = line[3:].strip()
            else:
                block.lines.append(line[4:])
        elif line.strip():
            match = re.fullmatch(r"<!-- example: (.*?) *-->", line.strip())
            marker = match[1] if match else ""
            if line.startswith("#"):
                section = line.lstrip("# ")
        was_blank = not line.strip() or bool(marker)
    for block in found:
        while block.lines and not block.lines[-1].strip():
            block.lines.pop()
    return found


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def documents():
    skipped = (".git", "build", "node_modules")
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in skipped and not f.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files if f.endswith(".md")]
    return sorted(found)


def all_blocks():
    return [block for path in documents() for block in blocks_of(path, read(path))]


# ---- commands ----------------------------------------------------------------------------------
HELP = {}


def help_of(program):
    if program not in HELP:
        done = subprocess.run([os.path.join(BIN, program), "--help"], stdout=subprocess.PIPE, text=True, check=True)
        options = set(re.findall(r"^  (--[a-z_-]+)", done.stdout, re.M))
        commands = set()
        if "commands:" in done.stdout:
            commands = set(re.findall(r"^  ([a-z]+) ", done.stdout.split("commands:")[1].split("JOB is")[0], re.M))
        HELP[program] = (commands, options)
    return HELP[program]


def check_program(program, words):
    """What is wrong with a command line of one of our programs, or None."""
    commands, options = help_of(program)
    for word in words:
        option = word.split("=")[0]
        if word.startswith("--") and option not in options:
            return f"{program} has no option {option}"
    if program == "trainctl":
        values = {"--coordinator", "--timeout", "--log-level", "--interval-ms", "--reconnect", "--wait"}
        plain = [w for i, w in enumerate(words) if not w.startswith("-") and (i == 0 or words[i - 1] not in values)]
        if plain and plain[0] not in commands:
            return f"trainctl has no command {plain[0]}"
        return None
    done = subprocess.run([os.path.join(BIN, program), *words, "--help"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    return None if done.returncode == OK else f"{program}: {done.stderr.strip()}"


def check_make(words):
    makefile = read("Makefile")
    for word in words:
        if "=" in word or word.startswith("-") or word.startswith("build/"):
            continue
        if not re.search(rf"^[^\t#\n=]*\b{re.escape(word)}\b[^=\n]*:(?!=)", makefile, re.M):
            return f"the Makefile has no target {word}"
    return None


def check_path(path, words):
    """A script or a built program of the tree."""
    name = os.path.basename(path)
    if path.startswith("build/"):
        if "/bin/" in path:
            return check_program(name, words) if name in PROGRAMS else f"no program {name}"
        sources = glob.glob(os.path.join(ROOT, "tests", "*", name + ".c")) + \
            glob.glob(os.path.join(ROOT, "bench", name + ".c"))
        return None if sources else f"no source makes {path}"
    if not os.access(os.path.join(ROOT, path), os.X_OK):
        return f"{path} is not there, or cannot be run"
    if name == "local_cluster.sh":
        done = subprocess.run([SCRIPT, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if words and not re.search(rf"^  {re.escape(words[0])} DIR", done.stdout, re.M):
            return f"local_cluster.sh has no command {words[0]}"
        for word in words:
            if word.startswith("--") and word not in done.stdout:
                return f"local_cluster.sh has no option {word}"
    return None


def check_systemd(words):
    units = [w for w in words if not w.startswith("-")][1:]
    for unit in units:
        name = re.sub(r"@.*", "@", unit).removesuffix(".service")
        if not glob.glob(os.path.join(ROOT, "systemd", name + ".*")):
            return f"there is no unit {unit}"
    return None


def check_command(command):
    try:
        words = shlex.split(command, comments=True)
    except ValueError as e:
        return f"not a command line: {e}"
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words or words[0] in SHELL_WORDS or words[0] in ("systemd-sysusers", "systemd-tmpfiles"):
        return None
    if words[0] in PROGRAMS:
        return check_program(words[0], words[1:])
    if words[0] == "make":
        return check_make(words[1:])
    if words[0] == "systemctl":
        return check_systemd(words[1:])
    if "/" in words[0]:
        return check_path(words[0], words[1:])
    return f"no check knows the command {words[0]}"


def check_shell(block):
    problems = []
    for line in block.lines:
        bare = re.sub(r"\$\([^)]*\)", "X", re.sub(r"(^|\s)#.*", "", line))
        for command in re.split(r"&&|\|\||[;|&]", bare):
            problem = check_command(command)
            if problem:
                problems.append(f"{problem}: {line.strip()}")
    return problems


# ---- blocks of other kinds ---------------------------------------------------------------------
def load_json(block):
    return json.loads(block.text())


def is_job(value):
    return isinstance(value, dict) and "model" in value and "cluster" not in value


def check_job_text(text):
    """By the real parser: a valid job finds nobody at this address, an invalid one is never sent."""
    done = subprocess.run([os.path.join(BIN, "trainctl"), "--coordinator", "127.0.0.1:1", "--timeout", "1", "submit",
                           "-"], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr.strip() if done.returncode in (OK, USAGE) else None


def check_json(block):
    try:
        value = load_json(block)
    except ValueError as e:
        return [f"not JSON: {e}"]
    if isinstance(value, dict) and ("cluster" in value or "task" in value):
        done = subprocess.run([os.path.join(BIN, "workerd"), "--task_index", "4000"], stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, TF_CONFIG=block.text()), check=False)
        is_read = "cluster.worker: no task 4000" in done.stderr and "tf_config.ignored" not in done.stderr
        return [] if is_read else [done.stderr.strip()]
    if is_job(value):
        problem = check_job_text(block.text())
        return [problem] if problem else []
    return ["JSON that is neither a job nor a cluster; a part of a job says which: <!-- example: part of OBJECT -->"]


def check_part(block, name):
    with open(EXAMPLE, encoding="utf-8") as f:
        job = json.load(f)
    text = block.text().strip()
    try:
        part = json.loads(text if text.startswith("{") else "{" + text + "}")
    except ValueError as e:
        return [f"not members of an object: {e}"]
    job[name] = {**job.get(name, {}), **part} if name != "job" else None
    if name == "job":
        del job[name]
        job.update(part)
    problem = check_job_text(json.dumps(job))
    return [problem] if problem else []


def check_errors(block):
    wanted = set()
    for path in glob.glob(os.path.join(ROOT, "tests", "golden", "job", "invalid", "*.expect")):
        wanted.add(read(path).strip())
    return [f"no golden input is refused with: {line}" for line in block.lines if line and line not in wanted]


def check_synopsis(block):
    commands, options = help_of("trainctl")
    problems, seen = [], set()
    for part in re.split(r"(?=\btrainctl )", block.text()):
        words = part.split()
        if not words:
            continue
        seen.add(words[1])
        if words[1] not in commands:
            problems.append(f"trainctl has no command {words[1]}")
        problems += [f"trainctl has no option {o}" for o in re.findall(r"--[a-z-]+", part) if o not in options]
    return problems + [f"the command {c} is missing" for c in sorted(commands - seen)]


def check_diff(block):
    """What a hunk finds in a file is there, in one piece."""
    problems, source, hunk = [], None, []

    def end_of_hunk():
        if source is not None and hunk and "\n".join(hunk) + "\n" not in source:
            problems.append("these lines are not in the file: " + " / ".join(hunk)[:300])
        hunk.clear()

    for line in block.lines + ["@@"]:
        if line.startswith(("diff ", "index ", "new file", "+++ ")):
            continue
        if line.startswith("--- ") or line.startswith("@@"):
            end_of_hunk()
            if line.startswith("--- "):
                path = line[4:].split("\t")[0].removeprefix("a/")
                source = None if path == "/dev/null" else ""
                if source == "" and os.path.exists(os.path.join(ROOT, path)):
                    source = read(path)
                elif source == "":
                    problems.append(f"there is no file {path}")
            continue
        if not line.startswith("+"):
            hunk.append(line[1:])
    return problems


def check_block(block):
    """What is wrong with it; [] when all is well."""
    marker = block.marker
    if marker == "drawing" or re.fullmatch(r"not run: \S.*", marker):
        return []
    if marker.startswith("part of ") and block.language == "json":
        return check_part(block, marker.removeprefix("part of "))
    if marker == "errors of a job" and block.language == "text":
        return check_errors(block)
    if marker == "synopsis of trainctl":
        return check_synopsis(block)
    if marker:
        return [f"no check knows the marker \"{marker}\" on a block of kind \"{block.language}\""]
    if block.language == "json":
        return check_json(block)
    if block.language in (None, "sh", "bash"):
        return check_shell(block)
    if block.language == "diff":
        return check_diff(block)
    return [f"no check knows a block of kind \"{block.language}\"; the head of {os.path.basename(__file__)} says what "
            f"it may be marked as"]


# ---- the tests ---------------------------------------------------------------------------------
@test(limit_s=120)
def every_block_of_every_document_is_known_and_right():
    blocks = all_blocks()
    problems = [f"{b.where()}: {p}" for b in blocks for p in check_block(b)]
    assert not problems, "\n".join(problems)
    kinds = [b.language for b in blocks]
    assert kinds.count("json") >= 4 and kinds.count(None) >= 8, kinds
    return f"{len(blocks)} blocks in {len({b.path for b in blocks})} documents"


@test()
def a_block_that_is_wrong_or_unknown_is_found():
    wrong = {
        "```yaml\na: 1\n```": "no check knows a block of kind",
        "```\nboxes\n```": "no check knows a block of kind",
        "    frobnicate --all": "no check knows the command frobnicate",
        "    trainctl submti JOB.json": "no command submti",
        "    trainctl submit JOB.json --wach": "no option --wach",
        "    workerd --nme x": "--nme",
        "    make everything": "no target everything",
        "    deploy/local_cluster.sh climb /tmp/sf": "no command climb",
        "    deploy/nothing.sh": "is not there",
        "    systemctl enable psx@0": "no unit psx@0",
        "    . /tmp/sf/env; trainctl statsu x": "no command statsu",
        "```json\n{\"a\": 1}\n```": "neither a job nor a cluster",
        "```json\n{\"a\": }\n```": "not JSON",
        "```json\n{\"name\": \"x\", \"model\": {\"name\": \"noop\"}, \"maxsteps\": 3}\n```": "max_steps",
        "```json\n{\"cluster\": {\"chief\": [\"c0\"]}}\n```": "want a port",
        "```json\n{\"cluster\": {\"chief\": [\"c0:1\"]}, \"jobb\": 1}\n```": "tf_config.ignored",
        "<!-- example: part of optimizer -->\n```json\n\"learning_rate\": {\"name\": \"cosine\"}\n```": "not available",
        "<!-- example: part of optimiser -->\n```json\n\"momentum\": 0.5\n```": "optimizer",
        "<!-- example: errors of a job -->\n```text\nbatchsize: 1: no\n```": "no golden input",
        "<!-- example: synopsis of trainctl -->\n```\ntrainctl submit J\n```": "the command status is missing",
        "<!-- example: not run: -->\n```sh\nx\n```": "no check knows the marker",
        "<!-- example: magic -->\n```sh\nx\n```": "no check knows the marker",
        "```diff\n--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-no such line\n+x\n```": "not in the file",
    }
    for text, words in wrong.items():
        found = blocks_of("X.md", "words\n\n" + text + "\n\nwords\n")
        assert len(found) == 1, (text, found)
        problems = check_block(found[0])
        assert problems and any(words in p for p in problems), f"{text!r}: want \"{words}\", got {problems}"
    right = "words\n\n<!-- example: drawing -->\n```\nboxes\n```\nwords\n* a list\n    that goes on\n\n    make check\n"
    assert [check_block(b) for b in blocks_of("X.md", right)] == [[], []]


@test()
def commands_inside_sentences_and_units_are_known():
    problems, count = [], 0
    for path in documents():
        begin = r"trainctl|coordinatord|psd|workerd|make|(?:tests|deploy|build)/[\w./-]+"
        for span in re.findall(rf"`((?:{begin}) [^`\n]*)`", read(path)):
            count += 1
            block = Block(path, 0, "")
            block.lines = [span]
            problems += [f"{path}: {problem}" for problem in check_shell(block)]
    for path in glob.glob(os.path.join(ROOT, "systemd", "*.service")):
        line = re.search(r"^ExecStart=@PREFIX@/bin/(.*)$", read(path), re.M)
        assert line, path
        count += 1
        problem = check_command(re.sub(r" \$[A-Z_]+$", "", line[1]).replace("%i", "0"))
        if problem:
            problems.append(f"{path}: {problem}")
        for flag in re.findall(r"--[a-z_-]+", " ".join(re.findall(r"^#.*$", read(path), re.M))):
            program = line[1].split()[0]
            if flag not in help_of(program)[1]:
                problems.append(f"{path}: {program} has no option {flag}")
    assert not problems, "\n".join(problems)
    assert count >= 20, count


def complete_jobs():
    """(where, job) of every complete job that somebody might copy."""
    jobs = [(os.path.relpath(p, ROOT), json.loads(read(p)))
            for p in sorted(glob.glob(os.path.join(ROOT, "docs", "examples", "*.json")))]
    for block in all_blocks():
        if block.language == "json" and not block.marker and is_job(load_json(block)):
            jobs.append((block.where(), load_json(block)))
    return jobs


@test()
def what_one_job_is_shown_with_is_what_all_are_shown_with():
    """One job, one set of rates: those that were found to learn with late gradients (docs/benchmarks.md)."""
    example = json.loads(read(EXAMPLE))
    jobs = complete_jobs()
    assert len(jobs) >= 3, jobs
    for where, job in jobs:
        if job["name"] == example["name"]:
            for field in ("model", "dataset", "optimizer"):
                assert job[field] == example[field], f"{where}: {field}: {job[field]}, want {example[field]}"


@test(limit_s=90)
def every_complete_job_runs():
    with Cluster(ps=2, workers=2) as c:
        for number, (where, job) in enumerate(complete_jobs()):
            job = dict(job, epochs=1, max_steps=12)
            if "checkpoint" in job:
                job["checkpoint"] = dict(job["checkpoint"], directory=c.path(f"ckpt-{number}"))
            if job.get("dataset", {}).get("source") == "idx" and not os.path.exists(job["dataset"]["images"]):
                raise Skip(f"{where} wants the data in {MNIST}")
            assert_exact(c.wait_end(c.submit(job)), total=12)


def small_example(directory):
    """The job of the walk, on data that every machine has, long enough to be disturbed."""
    job = json.loads(read(EXAMPLE))
    for field, records in (("dataset", 64 * 250), ("eval_dataset", 500)):
        job[field] = {"source": "synthetic", "records": records, "batch_size": job[field]["batch_size"]}
    job["checkpoint"] = {"directory": directory, "every_steps": 100, "max_to_keep": 2}
    return job


def run_lines(c, folder, lines, deadline_s=60):
    """Runs a script of the document while we collect the daemons that it kills."""
    text = "set -e\n" + "\n".join(lines).replace("/tmp/sf", c.dir)
    with open(c.path("walk.log"), "ab") as log:
        proc = subprocess.Popen(["bash", "-c", text], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, env=dict(os.environ, STEADFAST_BIN=BIN))
    c.side.append(proc)

    def has_ended():
        c.note_daemons()
        for daemon in c.daemons.values():
            daemon.may_die = True  # the document says so
            daemon.has_ended()
        return proc.poll() is not None

    wait_until(has_ended, deadline_s, lambda: f"ends: {text}\n{c.log('walk')[-1500:]}")
    assert proc.returncode == 0, f"exit {proc.returncode}: {text}\n{c.log('walk')[-1500:]}"


@test(limit_s=150)
def the_first_job_of_the_readme_goes_as_it_says():
    blocks = [b for b in all_blocks() if b.path == "README.md" and b.section == "A first job" and b.language is None]
    start, look, submit, disturb, end = blocks
    with Cluster(start=False) as c:
        folder = c.path("tree")
        os.makedirs(os.path.join(folder, "docs", "examples"))
        os.makedirs(os.path.join(folder, "build"))
        os.symlink(os.path.join(ROOT, "deploy"), os.path.join(folder, "deploy"))
        os.symlink(BUILD, os.path.join(folder, "build", "release"))
        with open(os.path.join(folder, "docs", "examples", os.path.basename(EXAMPLE)), "w", encoding="utf-8") as f:
            json.dump(small_example(c.path("ckpt")), f)
        # Not built again, and on the device that needs no time of this machine.
        up = [line + " --device fake --worker-args \"--fake-script step_us=4000\"" if " up /tmp/sf" in line else line
              for line in start.lines if not line.startswith("make ")]
        assert len(up) == len(start.lines) - 1, start.lines
        exports = [line for line in up if line.startswith((".", "export "))]
        assert len(exports) == 2, start.lines
        run_lines(c, folder, up + look.lines)
        assert "fashion-lenet" in c.log("walk") or "conv" in c.log("walk"), c.log("walk")
        with open(c.path("watch.log"), "wb") as log:
            text = "set -e\n" + "\n".join(exports + ["exec " + line for line in submit.lines]).replace("/tmp/sf", c.dir)
            watch = subprocess.Popen(["bash", "-c", text], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                     stderr=subprocess.STDOUT)
        c.side.append(watch)
        wait_until(lambda: any(j["name"] == "fashion-lenet" for j in c.ctl("list")["jobs"]), 20, "the job is there")
        c.wait_acked("fashion-lenet", 120)
        run_lines(c, folder, exports + disturb.lines)
        status = assert_exact(c.wait_end("fashion-lenet", 80), total=750)
        wait_until(lambda: watch.poll() is not None, 20, "the watch ends")
        assert watch.returncode == 0, c.log("watch")[-1500:]
        assert status["generation"] > 1, status  # the server's memory was gone
        run_lines(c, folder, exports + end.lines)
        assert os.path.getsize(os.path.join(folder, "lenet.safetensors")) > 1000
        assert all(d.has_ended() for d in c.daemons.values()), "down stops them all"


if __name__ == "__main__":
    main()
