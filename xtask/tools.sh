#!/usr/bin/env bash
# Checks the tools that building and testing need; installs what it can, and says so.
#
# Quiet where everything is there. A C compiler and Python are installed through apt-get, only by
# root and only where missing; a Rust toolchain is never installed behind the user's back. With the
# argument `test` it also wants git and cargo's formatter and linter, and a C++ compiler for the fuzz
# targets, which are skipped where there is none and none can be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "error: $1" >&2
    echo "help: $2" >&2
    exit 1
}

install() {
    local tool=$1 package=$2
    command -v "$tool" >/dev/null && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "$tool is missing" "install it, on Debian and Ubuntu with: sudo apt-get install $package"
    fi
    echo "installing $package, because $tool is missing" >&2
    apt-get update -qq && apt-get install -y -qq "$package" >&2
    command -v "$tool" >/dev/null || fail "$tool is still missing" "install $package by hand"
}

cargo=${CARGO:-cargo}
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
command -v "$cargo" >/dev/null ||
    fail "cargo is missing" "install Rust $needed or newer, see https://rustup.rs"
found=$("$cargo" --version | cut -d ' ' -f 2)
oldest=$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)
[ "$oldest" = "$needed" ] ||
    fail "cargo $found is too old, $needed or newer is needed" "run: rustup update stable"

install cc gcc
install "${PYTHON:-python3}" python3

if [ "${1:-}" = test ]; then
    "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python is too old, 3.11 or newer is needed for the oracle" "install a newer python3"
    install git git
    if ! command -v c++ >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install c++ g++
    fi
    for component in rustfmt clippy; do
        "cargo-${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        command -v rustup >/dev/null || fail "$component is missing" "install it with your Rust toolchain"
        echo "installing the Rust component $component" >&2
        rustup component add "$component"
    done
fi
