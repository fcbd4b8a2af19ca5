#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a hit in the caching allocator costs with PyTorch and with tutti, on one GPU in one run.

usage: perf/compare_torch_allocator.py [-J FILE] [--program PATH]

Prints a Markdown table of nanoseconds of one thread: raw memory taken and given back
(`torch.cuda.caching_allocator_alloc` and `_delete`, `tutti::caching_allocator_alloc` and `_delete`), and an empty tensor
made and dropped. PyTorch is called from C++, which it compiles for this with the compiler that is there; where that does
not work, the reason is said and only its Python functions are measured, whose own cost stands beside the rest in any case.
tutti's figures are those of tutti-micro-benchmarks. Both repeat a loop and report the median.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import time

from command import fail, must_take_a_file, run

SIZES = {"256 B": 256, "4 MiB": 4 << 20}
REPETITIONS = 9
ITERATIONS = 200_000

CPP_SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/extension.h>
#include <chrono>

using Clock = std::chrono::steady_clock;

static double per_iteration(Clock::time_point begin, int64_t iterations) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / static_cast<double>(iterations);
}

double raw_hit(int64_t bytes, int64_t iterations) {
  c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc(bytes));
  const auto begin = Clock::now();
  for (int64_t i = 0; i < iterations; ++i)
    c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc(bytes));
  return per_iteration(begin, iterations);
}

double empty_hit(int64_t bytes, int64_t iterations) {
  const auto options = torch::dtype(torch::kFloat32).device(torch::kCUDA);
  torch::empty({bytes / 4}, options);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < iterations; ++i) torch::empty({bytes / 4}, options);
  return per_iteration(begin, iterations);
}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-J", metavar="FILE", help="write all figures as JSON")
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


def median_of(measure):
    measure()
    return statistics.median(measure() for _ in range(REPETITIONS))


def python_hit(torch, size):
    def measure():
        start = time.perf_counter_ns()
        for _ in range(ITERATIONS // 10):
            torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))
        return (time.perf_counter_ns() - start) / (ITERATIONS // 10)

    return median_of(measure)


def torch_figures(torch):
    """By operation and size, in nanoseconds; and why C++ could not be measured, if so."""
    figures = {("raw, from Python", name): python_hit(torch, size) for name, size in SIZES.items()}
    try:
        from torch.utils.cpp_extension import load_inline

        compiled = load_inline(
            name="tutti_compare_allocator",
            cpp_sources=CPP_SOURCE,
            functions=["raw_hit", "empty_hit"],
            extra_cflags=["-O3"],
            with_cuda=True,
        )
    except Exception as error:  # whatever a compiler, a linker or an importer may say
        return figures, str(error).strip().splitlines()[-1]
    for name, size in SIZES.items():
        figures["raw", name] = median_of(lambda size=size: compiled.raw_hit(size, ITERATIONS))
    figures["empty tensor", "256 B"] = median_of(lambda: compiled.empty_hit(256, ITERATIONS))
    return figures, None


def tutti_figures(program):
    words = [
        program,
        "--benchmark_filter=^(raw_allocator_hit/[0-9]+|allocator_hit)/real_time/threads:1$",
        f"--benchmark_repetitions={REPETITIONS}",
        "--benchmark_report_aggregates_only=true",
        "--benchmark_format=json",
    ]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "TUTTI_BACKEND": "cuda"})
    if done.returncode != 0:
        fail(f"{program}: exit status {done.returncode}: {done.stderr.strip()}")
    figures = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row["aggregate_name"] != "median":
            continue
        words = row["run_name"].split("/")
        if words[0] == "allocator_hit":
            figures["empty tensor", "256 B"] = row["real_time"]
        else:
            name = next(name for name, size in SIZES.items() if size == int(words[1]))
            figures["raw", name] = row["real_time"]
    if len(figures) != len(SIZES) + 1:
        fail(f"{program} measured {sorted(figures)}, expected {len(SIZES) + 1} figures")
    return figures


def main():
    given = arguments()
    must_take_a_file("-J", given.J)
    program = find_benchmarks(given.program)
    try:
        import torch
    except ImportError:
        fail("PyTorch is not installed for this Python")
    if not torch.cuda.is_available():
        fail("PyTorch finds no GPU")
    of_torch, why_not_compiled = torch_figures(torch)
    of_tutti = tutti_figures(program)
    print(f"A hit of one thread on {torch.cuda.get_device_name(0)} (PyTorch {torch.__version__}), in ns.\n")
    print("| operation | size | torch | tutti | ratio |\n|---|--:|--:|--:|--:|")
    rows = []
    for operation, size in sorted({*of_torch, *of_tutti}):
        torch_ns, tutti_ns = of_torch.get((operation, size)), of_tutti.get((operation, size))
        rows.append({"operation": operation, "size": size, "torch_ns": torch_ns, "tutti_ns": tutti_ns})
        shown = [f"{ns:.0f}" if ns is not None else "-" for ns in (torch_ns, tutti_ns)]
        ratio = f"{torch_ns / tutti_ns:.2f}x" if torch_ns and tutti_ns else "-"
        print(f"| {operation} | {size} | {shown[0]} | {shown[1]} | {ratio} |")
    if why_not_compiled:
        print(f"\nPyTorch could not be measured from C++: {why_not_compiled}")
    if given.J:
        with open(given.J, "w", encoding="utf-8") as stream:
            json.dump(
                {"schema": "tutti-compare-torch-allocator/1", "torch": torch.__version__, "rows": rows},
                stream,
                indent=2,
            )
    return 0


if __name__ == "__main__":
    run(main)
