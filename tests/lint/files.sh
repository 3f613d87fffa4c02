# SPDX-License-Identifier: Apache-2.0
# To be sourced by the lint scripts. tree_files EXTENSION...: the files of the tree in the current folder, one a line:
# tracked ones and new ones that git does not ignore, where the folder is the top of a checkout, else all of them.
# shellcheck shell=bash
tree_files() {
    local globs=() names=() extension
    for extension; do
        globs+=("*.$extension")
        names+=(${names[@]:+-o} -name "*.$extension")
    done
    if [ "$(git rev-parse --show-cdup 2>/dev/null || echo no)" = "" ]; then
        git ls-files --cached --others --exclude-standard -- "${globs[@]}" | while IFS= read -r file; do
            [ -f "$file" ] && printf '%s\n' "$file"
        done
    else
        find . -type f \( "${names[@]}" \) -not -path './build/*' | sed 's|^\./||'
    fi | sort
}
