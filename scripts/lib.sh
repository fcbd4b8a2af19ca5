# shellcheck shell=bash
# What the scripts share. Source it after `set -euo pipefail`; it leaves the shell in the root of the project.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# Debian packages unpacked for machines without network or root (see scripts/fetch-offline-deps).
deps_prefix=$PWD/.deps/prefix/usr

say() { printf '\n=== %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 2
}

jobs() { nproc; }

# The comment at the head of a script is its help.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# What a person running the script with or without GPUs needs to know: how many there are.
gpu_count() {
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l
  elif command -v nvidia-smi >/dev/null 2>&1; then
    timeout 60 nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true
  else
    echo 0
  fi
}

# configure PRESET [CMAKE_ARGUMENT...]
configure() {
  local arguments=(--preset "$@")
  if [[ -d $deps_prefix ]]; then
    arguments+=("-DCMAKE_PREFIX_PATH=$deps_prefix")
  fi
  if command -v ccache >/dev/null 2>&1; then
    arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  cmake "${arguments[@]}"
}

# build PRESET [CMAKE_BUILD_ARGUMENT...]
build() { cmake --build --preset "$@" -j "$(jobs)"; }
