#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The lint scripts themselves: each rule is broken in a copy of the sources and has to be named, for a check that says
# nothing looks like a clean tree. What the scripts say of the copy as it is, they may say: that is make lint's matter.
#   tests/lint/test_layers.sh [WORD...]    tests by substring
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lint/files.sh
root=$PWD
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0

fail() { why=$*; return 1; }

# The copy of a test: the sources, and the scripts so that their tables can be changed.
fresh() {
    rm -rf -- "$work/tree"
    mkdir -p -- "$work/tree"
    { tree_files c h; echo tests/lint/layers.sh; echo tests/lint/functions.sh; echo tests/lint/files.sh; } |
        tar -cf - -T - | tar -xf - -C "$work/tree"
    "$work/tree/tests/lint/layers.sh" >"$work/before" 2>&1
}

# refuses TEXT: layers.sh fails on the copy, with a line that holds TEXT and that it did not say before.
refuses() {
    if "$work/tree/tests/lint/layers.sh" >"$work/after" 2>&1; then fail "layers.sh passes where it has to say: $1"; return 1; fi
    grep -vxFf "$work/before" "$work/after" | grep -qF -- "$1" || fail "layers.sh does not say: $1"
}

rows() { sed -n '/^TABLE$/,/^END$/{//!p}' tests/lint/layers.sh; }
says_the_same() { cmp -s "$work/before" "$work/after"; }

# Every room includes every other one; what no row allows has to be refused, and nothing else.
test_every_row_refuses_every_room_that_it_does_not_name() {
    fresh
    rows | awk '
        { row[NR] = $0; room[NR] = $1 }
        END {
            for (i = 1; i <= NR; i++) {
                n = split(row[i], may, " ")
                for (j = 1; j <= NR; j++) {
                    if (i == j) continue
                    verdict = "forbidden"
                    for (k = 2; k <= n; k++) if (may[k] == room[j] || index(room[j], may[k] "/") == 1) verdict = "allowed"
                    print verdict, room[i], room[j]
                }
            }
        }' >"$work/pairs"
    local verdict from to probe
    while read -r verdict from to; do
        probe=$from/probe_${from//\//_}.c
        mkdir -p -- "$work/tree/$from"
        echo "#include \"$to/door.h\"" >>"$work/tree/$probe"
    done <"$work/pairs"
    "$work/tree/tests/lint/layers.sh" >"$work/after" 2>&1 && { fail "layers.sh passes"; return 1; }
    while read -r verdict from to; do
        local line="$from/probe_${from//\//_}.c: $from may not include $to ($to/door.h)"
        if grep -qxF -- "$line" "$work/after"; then
            [ "$verdict" = forbidden ] || { fail "the row of $from names $to, and it is refused"; return 1; }
        elif [ "$verdict" = forbidden ]; then
            fail "$from includes $to, and nothing is said"
            return 1
        fi
    done <"$work/pairs"
    [ "$(cut -d' ' -f2 "$work/pairs" | sort -u | wc -l)" -eq "$(awk '$1 == "forbidden" { print $2 }' "$work/pairs" | sort -u | wc -l)" ] ||
        fail "a row allows everything"
}

# The directions that the design stands on, whatever the table says.
test_the_table_keeps_the_great_directions() {
    fresh
    local pair from to
    local pairs=(common/base:common/loop common/rpc:proto models/graph:kernels/device psd/shard:models/graph psd/shell:models/graph
        psd/shell:coordinatord/shell workerd/shell:psd/shell coordinatord/shell:workerd/shell coordinatord/core:coordinatord/ledger
        coordinatord/core:common/loop client:coordinatord/shell client:trainctl trainctl:coordinatord/core)
    for pair in "${pairs[@]}"; do
        from=${pair%%:*} to=${pair#*:}
        echo "#include \"$to/door.h\"" >>"$work/tree/$from/probe_${from//\//_}.c"
    done
    "$work/tree/tests/lint/layers.sh" >"$work/after" 2>&1
    for pair in "${pairs[@]}"; do
        from=${pair%%:*} to=${pair#*:}
        grep -qxF -- "$from/probe_${from//\//_}.c: $from may not include $to ($to/door.h)" "$work/after" ||
            { fail "$from may include $to"; return 1; }
    done
}

test_a_circle_in_the_table_is_refused() {
    fresh
    sed -i 's|^common/loop  .*|& common/daemon|' "$work/tree/tests/lint/layers.sh" # which includes common/loop
    refuses "the table has a circle through"
}

test_a_circle_of_three_rows_is_refused() {
    fresh
    sed -i 's|^common/base$|common/base common/ckpt|' "$work/tree/tests/lint/layers.sh" # -> formats -> base
    refuses "the table has a circle through"
}

test_a_header_of_a_room_is_not_included_from_outside() {
    fresh
    printf '/* inside */\n' >"$work/tree/workerd/step/probe_int.h"
    printf '#include "workerd/step/probe_int.h"\n' >"$work/tree/workerd/step/probe_step.c"
    "$work/tree/tests/lint/layers.sh" >"$work/after" 2>&1
    says_the_same || { fail "its own room is refused: $(diff "$work/before" "$work/after" | tail -1)"; return 1; }
    printf '#include "workerd/step/probe_int.h"\n' >"$work/tree/workerd/shell/probe_shell.c"
    refuses "workerd/shell/probe_shell.c: workerd/step/probe_int.h is for its own room only"
}

test_a_folder_without_a_row_is_refused() {
    fresh
    mkdir -p "$work/tree/psd/attic" "$work/tree/warehouse"
    printf 'int probe_attic;\n' >"$work/tree/psd/attic/probe_attic.c"
    refuses "psd/attic/probe_attic.c: room psd/attic has no row in tests/lint/layers.sh" || return 1
    printf 'int probe_warehouse;\n' >"$work/tree/warehouse/probe_warehouse.c"
    refuses "warehouse/probe_warehouse.c: room warehouse has no row"
}

test_an_include_of_an_unknown_room_is_refused() {
    fresh
    printf '#include "attic/door.h"\n' >"$work/tree/client/probe_client.c"
    refuses "client/probe_client.c: client may not include attic (attic/door.h)"
}

test_two_files_of_one_name_are_refused() {
    fresh
    local first
    first=$(cd "$work/tree" && ls common/base/*.c | head -1)
    cp "$work/tree/$first" "$work/tree/client/"
    refuses "file names are not unique: client/$(basename "$first") and $first" || return 1
    fresh
    first=$(cd "$work/tree" && ls common/base/*.h | head -1)
    cp "$work/tree/$first" "$work/tree/client/"
    refuses "file names are not unique: client/$(basename "$first") and $first"
}

test_a_tree_without_sources_is_not_clean() {
    mkdir -p "$work/empty"
    ! tests/lint/layers.sh "$work/empty" >/dev/null 2>&1 || { fail "layers.sh passes"; return 1; }
    ! tests/lint/functions.sh "$work/empty" >/dev/null 2>&1 || fail "functions.sh passes"
}

# long_function NAME LINES
long_function() {
    printf 'int %s(void)\n{\n' "$1"
    local i
    for ((i = 0; i < $2 - 4; i++)); do echo '    step();'; done
    printf '    return 0;\n}\n\n'
}

test_a_function_of_151_lines_is_refused_and_one_of_150_is_not() {
    fresh
    long_function probe_long 150 >"$work/tree/client/probe_client.c"
    "$work/tree/tests/lint/functions.sh" >"$work/after" 2>&1 || { fail "150 lines: $(tail -1 "$work/after")"; return 1; }
    grep -qE '^ +150 +probe_long +client/probe_client.c:1$' "$work/after" || { fail "the table lacks it: $(head -2 "$work/after")"; return 1; }
    { long_function probe_short 20; long_function probe_long 151; } >"$work/tree/client/probe_client.c"
    ! "$work/tree/tests/lint/functions.sh" >"$work/after" 2>&1 || { fail "151 lines pass"; return 1; }
    grep -qE '^ +151 +probe_long +client/probe_client.c:22$' "$work/after" && grep -qF 'over 150 lines' "$work/after" ||
        fail "not said: $(tail -1 "$work/after")"
}

test_nine_of_ten_functions_have_to_fit_a_screen() {
    rm -rf "$work/few"
    mkdir -p "$work/few"
    local i
    for i in 1 2 3 4 5 6 7 8 9; do long_function "probe_$i" 70; done >"$work/few/probe.c"
    long_function probe_10 71 >>"$work/few/probe.c"
    tests/lint/functions.sh "$work/few" >"$work/after" 2>&1 || { fail "90 %: $(tail -1 "$work/after")"; return 1; }
    long_function probe_11 71 >>"$work/few/probe.c"
    ! tests/lint/functions.sh "$work/few" >"$work/after" 2>&1 || { fail "9 of 11 pass"; return 1; }
    grep -qF 'only 81.8 %' "$work/after" || fail "not said: $(tail -1 "$work/after")"
}

# Attributes, results on a line of their own, tests and what is not a function.
test_lengths_are_counted_from_the_signature() {
    rm -rf "$work/forms"
    mkdir -p "$work/forms"
    cat >"$work/forms/probe.c" <<'C'
static const int table[] = {
    1,
    2,
};
struct pair {
    int a;
};
int declared(int a,
             int b);
__attribute__((format(printf, 1, 2))) static void
with_attribute(const char *fmt,
               ...)
{
    if (fmt) {
        return;
    }
}
TEST(a_sentence)
{
}
C
    tests/lint/functions.sh "$work/forms" >"$work/after" 2>&1
    grep -qE '^functions: 2 in 1 files' "$work/after" || { fail "$(head -1 "$work/after")"; return 1; }
    grep -qE '^ +8 +with_attribute +probe.c:10$' "$work/after" && grep -qE '^ +3 +TEST\(a_sentence\) +probe.c:18$' "$work/after" ||
        fail "$(tr '\n' '|' <"$work/after")"
}

for name in $(declare -F | sed -n 's/^declare -f test_//p'); do
    want=$([ $# -eq 0 ] && echo 1)
    for word; do case $name in *"$word"*) want=1 ;; esac; done
    [ -n "$want" ] || continue
    why=
    cd "$root" || exit 2
    if "test_$name"; then echo "PASS test_layers.$name"; else echo "FAIL test_layers.$name: $why"; failed=1; fi
done
exit $failed
