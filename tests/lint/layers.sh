#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which folder may include which. Reads the #include "folder/..." lines and fails on any other direction.
cd "$(dirname "$0")/../.." || exit 2
bad=0
while read -r folder allowed; do
    for file in $(git ls-files "$folder" 2>/dev/null | grep -E '\.[ch]$'); do
        for used in $(sed -nE 's|^#include "([a-z]+)/.*|\1|p' "$file" | sort -u); do
            case " $allowed " in *" $used "*) ;; *) echo "$file: $folder may not include $used"; bad=1 ;; esac
        done
    done
done <<'TABLE'
common common
proto common proto
models common models
kernels common models kernels
coordinatord common proto models coordinatord
psd common proto kernels psd
workerd common proto models kernels workerd
client common proto client
trainctl common proto models client trainctl
TABLE
dup=$(git ls-files '*.c' | grep -v '/main\.c$' | xargs -n1 basename | sort | uniq -d)
[ -n "$dup" ] && { echo "file names are not unique: $dup"; bad=1; }
exit $bad
