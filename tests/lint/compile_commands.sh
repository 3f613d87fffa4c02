#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads what `make -Bn V=1` would do and writes a compilation database (compile_commands.json) of its compile commands.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD LC_ALL=C awk '
function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
match($0, / -c -o [^ ]+ [^ ]+\.c$/) {
    split(substr($0, RSTART + 7), word, " ")
    printf "%s  {\"directory\": %s, \"file\": %s, \"output\": %s, \"command\": %s}", count++ ? ",\n" : "[\n", \
        quoted(ENVIRON["here"]), quoted(word[2]), quoted(word[1]), quoted($0)
}
END { if (!count) { print "compile_commands.sh: no compile command was read" >"/dev/stderr"; exit 1 } print "\n]" }'
