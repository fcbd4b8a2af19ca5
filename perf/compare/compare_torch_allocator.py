#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a hit in the caching allocator costs with PyTorch and with tutti, on the same GPUs in one run.

usage: perf/compare/compare_torch_allocator.py [--backend cuda|host] [-r RUNS] [-J FILE] [--out DIR] [--program PATH]

Prints a Markdown table of nanoseconds that a thread needs for raw memory taken and given back
(`torch.cuda.caching_allocator_alloc` and `_delete`, `tutti::caching_allocator_alloc` and `_delete`), and for an empty tensor
made and dropped: of one thread, and of two, four and eight at once, each on a device of its own, as far as there are so
many. PyTorch is called from C++, which is compiled for this with the compiler that is there; where that does not work, the
reason is said and only its Python functions are measured, whose own cost stands beside the rest in any case. tutti's figures
are those of tutti-micro-benchmarks. Both sides take turns, run by run; what is told is the median of all runs.

With --backend host tutti is measured on virtual devices, alone. -J writes all figures as JSON; with --out,
DIR/<date>-<devices>-allocator.md has the table with machine, versions and commit, and .json.gz beside it every figure. Exits
with 1 if a hit of one thread in raw memory takes tutti longer than PyTorch.
"""

import argparse
import ctypes
import datetime
import glob
import gzip
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from command import ResultFile, fail, must_take_files, run, write_files
from compare_builds import base_of
from compare_mpi import format_size, number, output_of, processor, share_of_others, warning_of

SIZES = (256, 64 << 10, 4 << 20, 64 << 20)
THREADS = (1, 2, 4, 8)
RAW, TENSOR, PYTHON = "raw memory", "empty tensor", "raw memory, from Python"
BENCHMARKS = {"raw_allocator_hit": RAW, "allocator_hit": TENSOR}
ITERATIONS = 200_000
SLOWER = 1

# Each thread on the device of its number; what the slowest took for a hit, in nanoseconds.
CPP_SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

template <class Hit>
double slowest(int threads, std::int64_t iterations, Hit hit) {
  std::atomic<int> missing = threads;
  std::vector<double> took(static_cast<std::size_t>(threads));
  const auto work = [&](int thread) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(thread));
    hit(thread);
    --missing;
    while (missing > 0) {
    }
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < iterations; ++i) hit(thread);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    took[static_cast<std::size_t>(thread)] = time.count() / static_cast<double>(iterations);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(took.begin(), took.end());
}

}  // namespace

extern "C" double raw_hit(std::int64_t bytes, int threads, std::int64_t iterations) {
  return slowest(threads, iterations, [&](int) {
    c10::cuda::CUDACachingAllocator::raw_delete(
        c10::cuda::CUDACachingAllocator::raw_alloc(static_cast<std::size_t>(bytes)));
  });
}

extern "C" double empty_hit(std::int64_t bytes, int threads, std::int64_t iterations) {
  return slowest(threads, iterations, [&](int thread) {
    torch::empty({bytes / 4}, torch::dtype(torch::kFloat32).device(torch::kCUDA, static_cast<c10::DeviceIndex>(thread)));
  });
}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "host"), help="default cuda")
    parser.add_argument("-r", type=number, default=5, metavar="RUNS", help="of each side, in turns (default 5)")
    parser.add_argument("-J", metavar="FILE", help="write all figures as JSON")
    parser.add_argument("--out", metavar="DIR", help="where results go (default: nowhere)")
    parser.add_argument("--program", metavar="PATH", help="tutti-micro-benchmarks (default: the newest under build/)")
    return parser.parse_args()


def find_benchmarks(path):
    if path is None:
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        built = glob.glob(os.path.join(root, "build", "*", "perf", "tutti-micro-benchmarks"))
        if not built:
            fail("no build/*/perf/tutti-micro-benchmarks: build it first, or name it with --program")
        path = max(built, key=os.path.getmtime)
    if not os.access(path, os.X_OK):
        fail(f"'{path}' is not a program")
    return path


# --- PyTorch's side ---------------------------------------------------------------------------------------------------


def cuda_folders(torch):
    """Where CUDA's headers are: of packages beside PyTorch, of a toolkit, or nowhere that has to be told."""
    site = os.path.dirname(os.path.dirname(torch.__file__))
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = glob.glob(os.path.join(site, "nvidia", "*", "include"))
    folders += [os.path.join(toolkit, "include") for toolkit in toolkits if toolkit]
    # Packages may lack what a compiler is to find beside the headers that are named.
    headers = ("cuda_runtime_api.h", os.path.join("crt", "host_config.h"))
    return [folder for folder in folders if all(os.path.exists(os.path.join(folder, header)) for header in headers)]


def compile_command(torch, source, library):
    """Against PyTorch's headers and libraries, without Python's."""
    root = os.path.dirname(torch.__file__)
    folders = [os.path.join(root, "include"), os.path.join(root, "include", "torch", "csrc", "api", "include")]
    libraries = os.path.join(root, "lib")
    return [
        *shlex.split(os.environ.get("CXX", "c++")),
        *("-std=c++20", "-O3", "-shared", "-fPIC", "-pthread", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{folder}" for folder in (*folders, *cuda_folders(torch)[:1])),
        *(source, "-o", library, f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed"),
        *("-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"),
    ]


def compiled_hits(torch, folder):
    """The functions of CPP_SOURCE; and why there are none, if so."""
    source, library = os.path.join(folder, "hits.cpp"), os.path.join(folder, "hits.so")
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(CPP_SOURCE)
    command = compile_command(torch, source, library)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = done.stderr.splitlines()
            return None, next((line for line in lines if "error" in line), lines[-1] if lines else "no words of it")
        hits = ctypes.CDLL(library)
    except OSError as error:
        return None, str(error)
    for hit in (hits.raw_hit, hits.empty_hit):
        hit.argtypes, hit.restype = [ctypes.c_int64, ctypes.c_int, ctypes.c_int64], ctypes.c_double
    return hits, None


def python_hit(torch, size):
    take, give_back = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    give_back(take(size))
    start = time.perf_counter_ns()
    for _ in range(ITERATIONS // 10):
        give_back(take(size))
    return (time.perf_counter_ns() - start) / (ITERATIONS // 10)


def torch_run(torch, hits, threads):
    """{(operation, size, threads): ns} of one run."""
    figures = {}
    for size in SIZES:
        figures[PYTHON, size, 1] = python_hit(torch, size)
        for count in threads if hits else ():
            figures[RAW, size, count] = hits.raw_hit(size, count, ITERATIONS)
            figures[TENSOR, size, count] = hits.empty_hit(size, count, ITERATIONS)
    torch.cuda.empty_cache()
    return figures


# --- tutti's side, and both -------------------------------------------------------------------------------------------


def tutti_run(program, backend, threads):
    """{(operation, size, threads): ns} of one run."""
    counts = "|".join(str(count) for count in threads)
    words = [
        program,
        f"--benchmark_filter=^({'|'.join(BENCHMARKS)})/[0-9]+/real_time/threads:({counts})$",
        "--benchmark_format=json",
    ]
    environment = {**os.environ, "TUTTI_BACKEND": backend, "TUTTI_VIRTUAL_TOPOLOGY": "island"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        fail(f"{program}: exit status {done.returncode}: {done.stderr.strip()}")
    figures = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        name, size, _, _ = row["name"].split("/")
        figures[BENCHMARKS[name], int(size), row["threads"]] = 1e9 * row["threads"] / row["items_per_second"]
    missing = {(operation, size, count) for operation in BENCHMARKS.values() for size in SIZES for count in threads}
    missing -= figures.keys()
    if missing:
        fail(f"{program} has not measured {sorted(missing)}")
    return figures


def rows_of(torch_runs, tutti_runs):
    """A row for each operation, size and number of threads: the figures of all runs of both sides, and their medians."""
    keys = {key for figures in (*torch_runs, *tutti_runs) for key in figures}
    rows = []
    for operation, size, threads in sorted(keys):
        row = {"operation": operation, "size": size, "threads": threads}
        for side, runs in (("torch", torch_runs), ("tutti", tutti_runs)):
            times = [figures[operation, size, threads] for figures in runs if (operation, size, threads) in figures]
            row[f"{side}_ns"] = statistics.median(times) if times else None
            row[f"{side}_runs_ns"] = times
        rows.append(row)
    return rows


def table_of(rows):
    text = "| operation | size | threads, each on its own device | torch, ns | tutti, ns | torch over tutti |\n"
    text += "|---|--:|--:|--:|--:|--:|\n"
    for row in rows:
        times = [row["torch_ns"], row["tutti_ns"]]
        shown = [f"{ns:.1f}" if ns is not None else "-" for ns in times]
        ratio = f"{times[0] / times[1]:.2f}x" if all(times) else "-"
        text += (
            f"| {row['operation']} | {format_size(row['size'])} | {row['threads']} | {' | '.join(shown)} | {ratio} |\n"
        )
    return text


def slower(rows):
    """What of raw memory takes one thread longer with tutti."""
    return [
        row
        for row in rows
        if row["operation"] == RAW and row["threads"] == 1 and row["torch_ns"] and row["tutti_ns"] > row["torch_ns"]
    ]


def facts_of(given, torch, devices, why_not_compiled):
    facts = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": os.environ.get("TUTTI_COMMIT") or output_of("git", "describe", "--always", "--dirty"),
        "devices": f"{devices} x {torch.cuda.get_device_name(0) if torch else 'virtual device'}",
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "compiler": output_of("c++", "--version").splitlines()[0],
        "system": f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, kernel {platform.release()}",
        "runs": f"{given.r} of each side, in turns",
    }
    if torch:
        driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0")
        facts |= {"driver": driver, "torch": torch.__version__, "cuda": torch.version.cuda}
    if why_not_compiled:
        facts["torch from C++"] = f"not measured: {why_not_compiled}"
    return facts


def write(folder, document, facts, table):
    os.makedirs(folder, exist_ok=True)
    base = base_of(folder, facts, "-allocator")
    text = "# A hit in the caching allocator\n\n" + "".join(f"- {key}: {value}\n" for key, value in facts.items())
    compressed = gzip.compress((json.dumps(document) + "\n").encode())
    write_files("--out", {base + ".json.gz": compressed, base + ".md": f"{text}\n{table}"})


def main():
    given = arguments()
    file = ResultFile("-J", given.J)
    must_take_files("--out", given.out)
    program = find_benchmarks(given.program)
    torch = None
    if given.backend == "cuda":
        try:
            import torch
        except ImportError:
            fail("PyTorch is not installed for this Python")
        if not torch.cuda.is_available():
            fail("PyTorch finds no GPU")
    # Virtual ones all have links, whatever the environment says: hits need none.
    devices = torch.cuda.device_count() if torch else int(os.environ.get("TUTTI_VIRTUAL_DEVICES", "8"))
    threads = [count for count in THREADS if count <= devices]
    share = share_of_others()
    if warning_of(share):
        print(warning_of(share), file=sys.stderr)
    torch_runs, tutti_runs = [], []
    with tempfile.TemporaryDirectory() as folder:
        hits, why_not_compiled = compiled_hits(torch, folder) if torch else (None, None)
        for done in range(given.r):
            print(f"run {done + 1} of {given.r}", file=sys.stderr)
            if torch:
                torch_runs.append(torch_run(torch, hits, threads))
            tutti_runs.append(tutti_run(program, given.backend, threads))
    rows = rows_of(torch_runs, tutti_runs)
    table = table_of(rows)
    facts = facts_of(given, torch, devices, why_not_compiled)
    print(table, end="")
    if why_not_compiled:
        print(f"\nPyTorch could not be measured from C++: {why_not_compiled}")
    document = {"schema": "tutti-compare-torch-allocator/2", **facts, "rows": rows}
    file.write(json.dumps(document, indent=2))
    if given.out:
        write(given.out, document, facts, table)
    return SLOWER if slower(rows) else 0


if __name__ == "__main__":
    run(main)
