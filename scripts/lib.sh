# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share. Source it after `set -euo pipefail`; it leaves the shell in the root of the project.

script=$(realpath "$0")
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# Debian packages unpacked for machines without network or root (see scripts/fetch-offline-deps).
deps_prefix=$PWD/.deps/prefix/usr

# CMake finds only some of what is in a conda environment by itself.
if [[ -n ${CONDA_PREFIX:-} ]]; then
  export CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:+$CMAKE_PREFIX_PATH:}$CONDA_PREFIX
fi

# fetch_nvtx PREFIX: unpacks the headers of NVTX below PREFIX. No distribution has them but with all of CUDA; PyPI has.
fetch_nvtx() {
  local work status=0
  work=$(mktemp -d)
  {
    python3 -m venv "$work/venv" &&
      "$work/venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps \
        --target "$work/wheel" nvidia-nvtx==13.5.25 &&
      mkdir -p "$1/include" && rm -rf "$1/include/nvtx3" &&
      cp -r "$work"/wheel/nvidia/*/include/nvtx3 "$1/include/"
  } || status=1
  rm -rf "$work"
  return "$status"
}

# fetch_nanobind FOLDER: puts what Python packages of C++ are built with into FOLDER/nanobind.
fetch_nanobind() {
  local work status=0
  work=$(mktemp -d)
  {
    python3 -m venv "$work/venv" &&
      "$work/venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps --no-compile \
        --target "$work/wheel" nanobind==3.1.0 &&
      mkdir -p "$1" && rm -rf "$1/nanobind" &&
      cp -r "$work/wheel/nanobind" "$1/"
  } || status=1
  rm -rf "$work"
  return "$status"
}

say() { printf '\n=== %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 2
}

jobs() { nproc; }

# callers_path PATH: what the caller means by it, who may be elsewhere.
callers_path() {
  if [[ $1 == /* ]]; then echo "$1"; else echo "$caller/$1"; fi
}

# The comment at the head of a script is its help.
usage() { sed -n '2,/^[^#]/{/SPDX-/d;s/^# \{0,1\}//p}' "$script"; }

# What a person running the script with or without GPUs needs to know: how many a program will find. These are the ones
# nvidia-smi lists, of which CUDA_VISIBLE_DEVICES, if set, lets those through that it names by index or by the beginning
# of their UUID, up to the first name that is none: -1, for instance. Empty, it lets none through.
gpu_count() {
  local listed="" name uuid known count=0
  local -a uuids names
  if command -v nvidia-smi >/dev/null 2>&1; then
    listed=$(timeout 60 nvidia-smi -L 2>/dev/null || true)
  fi
  mapfile -t uuids < <(sed -n 's/^GPU [0-9]*:.*(UUID: \(.*\))$/\1/p' <<<"$listed")
  if [[ -z ${CUDA_VISIBLE_DEVICES+set} ]]; then
    echo "${#uuids[@]}"
    return
  fi
  IFS=, read -r -a names <<<"$CUDA_VISIBLE_DEVICES"
  for name in "${names[@]}"; do
    name=${name//[[:space:]]/}
    if [[ $name =~ ^[0-9]+$ ]]; then
      ((10#$name < ${#uuids[@]})) || break
    elif [[ $name == MIG-* ]]; then
      grep -qF "(UUID: $name" <<<"$listed" || break
    else
      known=no
      for uuid in "${uuids[@]}"; do
        if [[ -n $name && $uuid == "$name"* ]]; then known=yes; fi
      done
      [[ $known == yes ]] || break
    fi
    count=$((count + 1))
  done
  echo "$count"
}

# NCCL often comes with a Python package rather than with the system. Lets the build find its nccl.h and the programs its
# library, where the system has none and NCCL_HOME does not name another.
find_nccl() {
  local home
  [[ -z ${NCCL_HOME:-} ]] || return 0
  [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) != *libnccl.so.2* ]] || return 0
  home=$(timeout 60 python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
  [[ -n $home ]] || return 0
  export NCCL_HOME=$home LD_LIBRARY_PATH=$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# configure PRESET [CMAKE_ARGUMENT...]
configure() {
  local arguments=(--preset "$@")
  if [[ -d $deps_prefix ]]; then
    arguments+=("-DCMAKE_PREFIX_PATH=$deps_prefix")
  fi
  # A folder that is configured keeps its compiler launcher: another one would have everything built again.
  if [[ ! -e build/$1/CMakeCache.txt ]] && command -v ccache >/dev/null 2>&1; then
    arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  cmake "${arguments[@]}"
}

# configure_to_run PRESET [CMAKE_ARGUMENT...]: as configure, but in a new folder programs are linked by lld if it is there, and
# tests are compiled in fewer and larger pieces, and with precompiled headers, which clang's tools cannot read: faster for those
# who only run them.
configure_to_run() {
  local faster=()
  [[ -e build/$1/CMakeCache.txt ]] || faster=(-DTUTTI_TEST_PCH=ON -DTUTTI_TEST_UNITY=ON)
  if ((${#faster[@]} > 0)) && command -v ld.lld >/dev/null 2>&1; then faster+=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld); fi
  configure "$1" "${faster[@]}" "${@:2}"
}

# build PRESET [CMAKE_BUILD_ARGUMENT...]
build() { cmake --build --preset "$@" -j "$(jobs)"; }

# What docs/results is made of, in the order of its pages: the latest first. Comparisons of allocators, and
# micro-benchmarks, are no pages.
results_of_pages() {
  find perf/results -name '*.json.gz' -not -path '*/allocator/*' -not -path '*/stream-sanitizer/*' \
    -printf '%f %p\n' | sort -r | cut -d ' ' -f 2
}
