#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which room (folder) may include which. Reads the #include "folder/file.h" lines of every source file and fails
#   * on an include that the table below does not allow,
#   * on a folder with sources that has no row,
#   * on a circle of rows, so that the table itself cannot grow one,
#   * on an x_int.h that is included outside its own room,
#   * on two source files of one name.
#   tests/lint/layers.sh [TREE]    TREE: another checkout or plain folder (tests/lint/test_layers.sh)
. "$(dirname "$0")/files.sh" || exit 2
cd "${1:-$(dirname "$0")/../..}" || exit 2

# A row: room, then what it may include; itself always. A name without "/" stands for all of its rooms.
table=$(sed -n '/^TABLE$/,/^END$/{//!p}' <<'ROWS'
TABLE
common/base
common/loop         common/base
common/rpc          common/base
common/formats      common/base
common/ckpt         common/base common/formats
common/spec         common/base common/formats
common/daemon       common/base common/loop common/rpc common/spec
proto               common/base common/rpc
models/graph        common/base
models/zoo          common/base common/spec models/graph
kernels/device      common/base models/graph
kernels/cpu         common/base models/graph kernels/device
kernels/fake        common/base models/graph kernels/device
kernels/ref         common/base models/graph kernels/device
kernels/program     common/base models/graph kernels/device kernels/cpu kernels/fake kernels/ref
coordinatord/rule   common/base common/spec
coordinatord/core   common/base common/spec coordinatord/rule
coordinatord/ledger common/base common/loop common/spec coordinatord/core
coordinatord/plan   common/base common/spec models proto
coordinatord/shell  common models proto coordinatord/core coordinatord/ledger coordinatord/plan
coordinatord        common coordinatord/shell
psd/optim           common/base common/spec
psd/values          common/base common/ckpt common/spec proto psd/optim
psd/rule            common/base common/spec psd/values
psd/shard           common/base common/loop psd/values psd/rule
psd/ckpt            common/base common/ckpt common/formats psd/values
psd/exchange        common/base common/loop common/rpc proto psd/values psd/shard
psd/order           common/base common/rpc common/spec proto psd/values psd/shard psd/ckpt
psd/shell           common proto psd/values psd/exchange psd/order psd/shard
psd                 common psd/shell
workerd/input       common/base common/formats common/loop common/spec
workerd/exchange    common/base common/loop common/rpc proto
workerd/step        common/base common/loop common/rpc common/spec models proto kernels workerd/exchange workerd/input
workerd/shell       common proto workerd/exchange workerd/input workerd/step
workerd             common workerd/shell
client              common/base common/rpc common/spec proto
trainctl            common models proto client
END
ROWS
)
files=$(tree_files c h)
[ -n "$files" ] || { echo "layers.sh: no sources in $PWD" >&2; exit 1; }
LC_ALL=C awk -v files="$files" -v table="$table" '
function room(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
function top(r) { return r ~ /\// ? substr(r, 1, index(r, "/") - 1) : r }
function bad(text) { print text; failed = 1 }
function visit(r,    i, n, a) {
    if (state[r] == 2) return
    if (state[r] == 1) { bad("layers.sh: the table has a circle through " r); return }
    state[r] = 1
    n = split(direct[r], a, " ")
    for (i = 1; i <= n; i++) visit(a[i])
    state[r] = 2
}
BEGIN {
    rows = split(table, row, "\n")
    for (i = 1; i <= rows; i++) {
        n = split(row[i], word, " ")
        if (!n) continue
        known[word[1]] = 1
        for (j = 2; j <= n; j++) may[word[1], word[j]] = 1
    }
    for (r in known)
        for (s in known)
            if (r != s && ((r, s) in may || (top(s) != s && (r, top(s)) in may && top(s) != top(r))))
                { allowed[r, s] = 1; direct[r] = direct[r] " " s }
    for (r in known) visit(r)
    count = split(files, file, "\n")
    for (i = 1; i <= count; i++) {
        f = file[i]; r = room(f)
        base = f; sub(/.*\//, "", base)
        if (base != "main.c") { if (base in seen) bad("file names are not unique: " seen[base] " and " f); seen[base] = f }
        if (top(r) == "tests" || top(r) == "bench") continue
        if (!(r in known)) { if (!(r in said)) bad(f ": room " r " has no row in tests/lint/layers.sh"); said[r] = 1; continue }
        while ((getline line < f) > 0) {
            if (line !~ /^#include "[a-z0-9_\/]+\//) continue
            split(line, part, "\""); used = room(part[2])
            if (used == r || part[2] ~ /\.pb-c\.h$/ && (r, "proto") in may) continue
            if (!((r, used) in allowed)) bad(f ": " r " may not include " used " (" part[2] ")")
            else if (part[2] ~ /_int\.h$/) bad(f ": " part[2] " is for its own room only")
        }
        close(f)
    }
    exit failed
}'
