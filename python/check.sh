#!/usr/bin/env bash
# Builds and installs the Python package into `.venv` at the root of the repository and runs its
# tests; arguments go to pytest.
#
# What is there is used: the first time it fetches packages from PyPI and compiles (about a minute
# on two cores), later only what changed is built. The last line is pytest's.
set -euo pipefail
cd "$(dirname "$0")"

python=${PYTHON:-python3}
venv=$(cd .. && pwd)/.venv
packages=(awkward boost-histogram h5py hist ipykernel matplotlib mplhep nbclient nbformat numpy pyarrow pytest
    "uhi[schema]" uproot)
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

# The extension builds beside the fetching; an older maturin cannot build it.
if [ ! -x "$venv/bin/maturin" ]; then pip install "maturin>=1.9.4,<2"; fi
wanted="${packages[*]} $("$venv/bin/python" --version)"
if [ "$(cat "$venv/livetime-packages" 2>/dev/null)" != "$wanted" ]; then
    pip install "${packages[@]}" &
    fetching=$!
fi

# Built and installed as `pip install ./python` does, but with the tools that are there.
sources=(Cargo.toml Cargo.lock pyproject.toml native src ../Cargo.toml ../crates/livetime-wire
    ../crates/livetime-store ../crates/livetime-shm ../crates/livetime-client ../crates/livetime-timing)
built="$venv/livetime-built"
if [ ! -e "$built" ] || [ -n "$(find "${sources[@]}" -newer "$built" -type f -print -quit)" ]; then
    touch "$built.new"
    cargo=${CARGO:-cargo}
    "$cargo" fmt --package livetime-python --package sample_run --check
    # A wheel of another version would be one too many for pip.
    rm -rf "$venv/livetime-wheels"
    "$venv/bin/maturin" build --release --quiet --interpreter "$venv/bin/python" \
        --out "$venv/livetime-wheels" >"$venv/livetime-build.log" 2>&1 ||
        { cat "$venv/livetime-build.log" >&2; exit 1; }
    if [ -n "${fetching:-}" ]; then wait "$fetching"; fi
    "$cargo" clippy --release --quiet --workspace -- -D warnings
    pip install --force-reinstall --no-deps "$venv"/livetime-wheels/livetime-*.whl
    mv "$built.new" "$built"
elif [ -n "${fetching:-}" ]; then
    wait "$fetching"
fi
echo "$wanted" > "$venv/livetime-packages"

exec "$venv/bin/python" -m pytest "$@"
