#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian 12 packages that building, testing and the demo need, and only those that are missing.
#   deploy/deps.sh         for make, make test, make demo, make interop
#   deploy/deps.sh lint    the above and what make lint needs
# Asks for nothing. Says what it installs. Touches neither the network nor the package lists when all is there.
# As a normal user it installs through "sudo -n"; without that right it prints the command for an administrator.
set -euo pipefail

packages=(
    build-essential pkg-config                        # gcc, make
    libgrpc-dev libuv1-dev                            # RPC, event loop
    libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
    libjansson-dev libsqlite3-dev zlib1g-dev          # job files, ledger, .gz data
    libdnnl-dev                                       # oneDNN: the cpu device
    dataset-fashion-mnist                             # what the demo trains on
    python3 python3-venv python3-grpcio python3-protobuf # cluster tests, make interop
    procps git
)
lint_packages=(clang clang-format clang-tidy shellcheck)
test_packages=(systemd gdb)                           # systemd-analyze, for the unit files; a daemon under gdb

case ${1:-} in
    '') wanted=("${packages[@]}" "${test_packages[@]}") ;;
    lint) wanted=("${packages[@]}" "${test_packages[@]}" "${lint_packages[@]}") ;;
    *) echo "usage: deploy/deps.sh [lint]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deploy/deps.sh: this is not a Debian system; install what these Debian 12 packages hold:" >&2
    echo "  ${wanted[*]}" >&2
    exit 1
fi

# dpkg-query says nothing on stdout about a package it never heard of.
declare -A have=()
while read -r name status; do
    [ "$status" = installed ] && have[$name]=1
done < <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for name in "${wanted[@]}"; do
    [ -n "${have[$name]:-}" ] || missing+=("$name")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "deploy/deps.sh: these packages are missing and only root may install them: ${missing[*]}" >&2
        echo "Run this once, then start again:" >&2
        echo "  sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
fi

# Another apt may be at work (a fresh machine updates itself): wait for its lock, but not for ever.
apt_get() {
    "${as_root[@]}" apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}
echo "deploy/deps.sh: installing ${missing[*]}"
apt_get update
if ! apt_get install --no-install-recommends "${missing[@]}"; then
    echo "deploy/deps.sh: apt-get could not install all of: ${missing[*]}" >&2
    echo "The names are those of Debian 12 (bookworm)." >&2
    exit 1
fi
echo "deploy/deps.sh: done"
