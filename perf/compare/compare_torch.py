#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures torch.cuda.comm and tutti on the same GPUs, sizes and tensor lists in one run, and joins both.

usage: perf/compare/compare_torch.py [-b SIZE] [-e SIZE] [-f FACTOR] [-g GPUS] [--tensors LIST]... [-J FILE] [--program PATH]

Prints a Markdown table; -J also writes every figure as JSON. Both sides are measured alike: warm-up; back to back (a batch
is enqueued, waited for once, divided by its length; median of several batches); and from the call to completion on all
GPUs. tutti is measured first; PyTorch gets as many batches, as long, and as many sets of buffers as tutti's eager calls of
that size had. Inputs rotate over these sets, beyond the caches. Every element of every result is checked. Both sides return
new tensors, which their caching allocators provide, or, of what is on its device already, the input itself. Beside them
stand tutti's forms that torch.cuda.comm does not have: with given outputs, and persistent.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

from command import ResultFile, fail, run
from programs import document_of, find_program

# tutti uses no NVLink multicast; it is not to be had on every machine, so the peer is measured without it as well.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

WARM_UP = 5  # batches of one launch, as tutti-perf's
TENSORS_OF_A_SWEEP = 16  # as tutti-perf splits a size for a coalesced operation


def parse_size(text):
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 64M")
    return int(digits) << shift


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", type=parse_size, default=1024, metavar="SIZE", help="smallest payload (default 1K)")
    parser.add_argument("-e", type=parse_size, default=256 << 20, metavar="SIZE", help="largest payload (default 256M)")
    parser.add_argument("-f", type=int, default=4, metavar="FACTOR", help="from one size to the next (default 4)")
    parser.add_argument("-g", type=int, metavar="GPUS", help="GPUs that take part (default: all)")
    parser.add_argument(
        "--tensors",
        action="append",
        metavar="LIST",
        help="for coalesced operations, repeatable (default: resnet50, gpt2, 1000x1K)",
    )
    parser.add_argument("-J", metavar="FILE", help="write all figures as JSON")
    parser.add_argument(
        "--program", metavar="PATH", help="tutti-perf (default: the newest under build/, or that on the PATH)"
    )
    given = parser.parse_args()
    if given.b < 4 or given.e < given.b or given.f < 2:
        parser.error("expected 4 <= -b <= -e and -f of 2 or more")
    return given


# --- What is measured -------------------------------------------------------------------------------------------------


def pattern(torch, count, salt, device):
    """Small integers, exact in float32 whatever the order of a sum."""
    position = torch.arange(count, dtype=torch.int64, device=device)
    return ((position * 40503 + salt * 7919) % 1021).to(torch.float32)


class Case:
    """One torch.cuda.comm call: inputs of one set, the call, and what must come out."""

    def __init__(self, torch, operation, shapes, gpus):
        self.torch, self.operation, self.shapes, self.gpus = torch, operation, shapes, gpus
        self.devices = list(range(gpus))

    def tensor(self, index, source, device):
        shape = self.shapes[index]
        count = 1
        for size in shape:
            count *= size
        return pattern(self.torch, count, index * 131 + source, device).reshape(shape)

    def list_of(self, source, device):
        return [self.tensor(index, source, device) for index in range(len(self.shapes))]

    def make_inputs(self):
        if self.operation == "broadcast" or self.operation == "scatter":
            return self.tensor(0, 0, 0)
        if self.operation == "broadcast_coalesced":
            return self.list_of(0, 0)
        if self.operation == "reduce_add":
            return [self.tensor(0, device, device) for device in self.devices]
        if self.operation == "reduce_add_coalesced":
            return [self.list_of(device, device) for device in self.devices]
        whole = self.tensor(0, 0, "cpu")
        return [chunk.to(device) for device, chunk in enumerate(whole.chunk(self.gpus))]

    def call(self, inputs):
        comm = self.torch.cuda.comm
        if self.operation == "broadcast":
            return comm.broadcast(inputs, self.devices)
        if self.operation == "broadcast_coalesced":
            return comm.broadcast_coalesced(inputs, self.devices)
        if self.operation == "reduce_add":
            return comm.reduce_add(inputs, 0)
        if self.operation == "reduce_add_coalesced":
            return comm.reduce_add_coalesced(inputs, 0)
        if self.operation == "scatter":
            return comm.scatter(inputs, self.devices)
        return comm.gather(inputs, destination=0)

    def wrong_elements(self, outputs):
        def wrong(got, expected):
            if got.shape != expected.shape:
                return max(expected.numel(), 1)
            return int((got != expected.to(got.device)).sum())

        def total(index):
            return sum(self.tensor(index, device, 0) for device in self.devices)

        if self.operation == "broadcast":
            return sum(wrong(out, self.tensor(0, 0, out.device)) for out in outputs)
        if self.operation == "broadcast_coalesced":
            return sum(
                wrong(out, expected)
                for outs in outputs
                for out, expected in zip(outs, self.list_of(0, outs[0].device), strict=True)
            )
        if self.operation == "reduce_add":
            return wrong(outputs, total(0))
        if self.operation == "reduce_add_coalesced":
            return sum(wrong(out, total(index)) for index, out in enumerate(outputs))
        if self.operation == "scatter":
            return sum(
                wrong(out, chunk) for out, chunk in zip(outputs, self.tensor(0, 0, 0).chunk(self.gpus), strict=True)
            )
        return wrong(outputs, self.tensor(0, 0, 0))

    def payload(self):
        elements = 0
        for shape in self.shapes:
            count = 1
            for size in shape:
                count *= size
            elements += count
        return 4 * elements


def split_evenly(count):
    tensors = max(1, min(count, TENSORS_OF_A_SWEEP))
    return [[count // tensors + (index < count % tensors)] for index in range(tensors)]


# --- How it is measured -----------------------------------------------------------------------------------------------


def synchronize(torch, gpus):
    for device in range(gpus):
        torch.cuda.synchronize(device)


def plan_of(row, place):
    """How tutti-perf measured a row's calls: what it is compared with is measured as often."""
    figures = row[place]
    return {
        "buffer_sets": row["buffer_sets"],
        "iterations": figures["iterations"],
        "repetitions": figures["back_to_back_us"]["samples"],
        "latencies": figures["latency_us"]["samples"],
    }


def measure_torch(torch, case, plan):
    sets = [case.make_inputs() for _ in range(plan["buffer_sets"])]
    synchronize(torch, case.gpus)

    def batch(count, first=0):
        start = time.perf_counter()
        for index in range(first, first + count):
            case.call(sets[index % len(sets)])
        synchronize(torch, case.gpus)
        return time.perf_counter() - start

    batch(len(sets))
    for _ in range(WARM_UP):
        batch(1)
    iterations = plan["iterations"]
    batches = sorted(batch(iterations) / iterations for _ in range(plan["repetitions"]))
    latencies = sorted(batch(1, sample) for sample in range(plan["latencies"]))  # over all sets, as tutti-perf does it
    wrong = case.wrong_elements(case.call(sets[0]))
    return {
        "back_to_back_us": statistics.median(batches) * 1e6,
        "min_us": batches[0] * 1e6,
        "max_us": batches[-1] * 1e6,
        "latency_us": statistics.median(latencies) * 1e6,
        "latency_p99_us": latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))] * 1e6,
        "iterations": iterations,
        "buffer_sets": len(sets),
        "wrong": wrong,
    }


def tutti_figures(row):
    # A broadcast hands the root its own tensor back: of given outputs, that is the in-place form.
    in_place = row["operation"].startswith("broadcast") and row["in_place"] is not None
    figures = row["in_place" if in_place else "out_of_place"]
    return {
        "back_to_back_us": figures["back_to_back_us"]["median"],
        "latency_us": figures["latency_us"]["median"],
        "latency_p99_us": figures["latency_us"]["p99"],
        "in_place": in_place,
        "transport": row["transport"],
        "algorithm": row["algorithm"],
    }


# --- The comparison ---------------------------------------------------------------------------------------------------

OPERATIONS = ["broadcast", "reduce_add", "scatter", "gather", "broadcast_coalesced", "reduce_add_coalesced"]


def sizes_of(given):
    size = given.b
    while size <= given.e:
        yield size
        size *= given.f


def shapes_of_list(program, name):
    listed = subprocess.run([program, "tensors", name], capture_output=True, text=True)
    if listed.returncode != 0:
        fail(listed.stderr.strip().removeprefix("tutti-perf: "))
    shapes = []
    for line in listed.stdout.splitlines():
        words = line.split()
        if len(words) > 1 and words[1] != "float32":
            fail(f"{name}: only float32 is compared, not {words[1]}")
        shapes.append([] if words[0] == "scalar" else [int(size) for size in words[0].split("x")])
    return shapes


def plans_of(documents):
    """How each case was measured of which the documents have a row."""
    return {
        (row["operation"], row["size"], row["tensor_list"]): plan_of(row, "out_of_place")
        for document in documents
        for row in document["rows"]
    }


def torch_rows(torch, given, program, gpus, plans):
    """Every case measured with torch, keyed as tutti's rows are."""
    rows = {}

    def measure(case, tensor_list):
        key = case.operation, case.payload(), tensor_list
        if key not in plans:
            fail(f"tutti-perf measured no {case.operation} of {case.payload()} bytes (eager)")
        rows[key] = measure_torch(torch, case, plans[key])
        torch.cuda.empty_cache()

    for operation in OPERATIONS:
        for size in sizes_of(given):
            count = size // 4
            shapes = split_evenly(count) if operation.endswith("coalesced") else [[count]]
            measure(Case(torch, operation, shapes, gpus), None)
    for name in given.tensors:
        shapes = shapes_of_list(program, name)
        for operation in OPERATIONS[4:]:
            measure(Case(torch, operation, shapes, gpus), name)
    return rows


# tutti's forms and how tutti-perf is asked for them.
FORMS = {"eager": ["--results", "new"], "out": ["--results", "out"], "persistent": ["--persistent"]}


def tutti_documents(given, program, gpus, form):
    common = ["-g", str(gpus), *FORMS[form], "--backend", "cuda"]
    sweep = ["-b", str(given.b), "-e", str(given.e), "-f", str(given.f)]
    documents = [document_of([program, *OPERATIONS, *sweep, *common])]
    for name in given.tensors:
        documents.append(document_of([program, *OPERATIONS[4:], "--tensors", name, *common]))
    return documents


def join(torch_figures, documents):
    joined = []
    tutti = {
        form: {
            (row["operation"], row["size"], row["tensor_list"]): tutti_figures(row)
            for document in documents[form]
            for row in document["rows"]
        }
        for form in documents
    }
    for key, torch_side in torch_figures.items():
        operation, size, tensor_list = key
        row = {"operation": operation, "size": size, "tensor_list": tensor_list, "torch": torch_side}
        for form, figures in tutti.items():
            if key not in figures:
                fail(f"tutti-perf measured no {operation} of {size} bytes ({form})")
            row[form] = figures[key]
            row[f"torch_over_{form}"] = torch_side["back_to_back_us"] / figures[key]["back_to_back_us"]
            row[f"torch_over_{form}_latency"] = torch_side["latency_us"] / figures[key]["latency_us"]
        joined.append(row)
    return joined


def print_table(rows, torch_version, gpus, name):
    print(f"tutti and torch.cuda.comm (PyTorch {torch_version}) on {gpus} x {name}, float32; µs per operation.")
    print(
        "b2b: back to back. done: from the call to completion. out: into given outputs. The ratios are torch's time "
        "over tutti's.\n"
    )
    print(
        "| operation | payload | torch b2b | tutti b2b | ratio | out b2b | ratio | persistent b2b | ratio "
        "| torch done | tutti done | ratio | chosen |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for row in rows:
        payload = row["tensor_list"] or row["size"]
        eager, out, persistent, torch_side = row["eager"], row["out"], row["persistent"], row["torch"]
        print(
            f"| {row['operation']} | {payload} | {torch_side['back_to_back_us']:.1f} "
            f"| {eager['back_to_back_us']:.1f} | {row['torch_over_eager']:.2f}x "
            f"| {out['back_to_back_us']:.1f} | {row['torch_over_out']:.2f}x "
            f"| {persistent['back_to_back_us']:.1f} | {row['torch_over_persistent']:.2f}x "
            f"| {torch_side['latency_us']:.1f} | {eager['latency_us']:.1f} | {row['torch_over_eager_latency']:.2f}x "
            f"| {eager['transport']}: {eager['algorithm']} |"
        )


def count_of_gpus(torch, given):
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = given.g or available
    if gpus < 2 or gpus > available:
        fail(f"{gpus} GPUs asked for, {available} there; two or more are needed")
    return gpus


def main():
    given = arguments()
    file = ResultFile("-J", given.J)
    given.tensors = given.tensors or ["resnet50", "gpt2", "1000x1K"]
    try:
        import torch
        import torch.cuda.comm
    except ImportError:
        fail("PyTorch is not installed for this Python")
    gpus = count_of_gpus(torch, given)
    program = find_program(given.program)

    for device in range(gpus):
        torch.cuda.set_stream(torch.cuda.Stream(device))  # as tutti-perf: no legacy default stream
    torch.cuda.set_device(0)
    documents = {form: tutti_documents(given, program, gpus, form) for form in FORMS}
    torch_figures = torch_rows(torch, given, program, gpus, plans_of(documents["eager"]))
    rows = join(torch_figures, documents)
    print_table(rows, torch.__version__, gpus, torch.cuda.get_device_name(0))
    wrong = sum(row["torch"]["wrong"] for row in rows)
    document = {
        "schema": "tutti-compare-torch/1",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": gpus,
        "gpu": torch.cuda.get_device_name(0),
        "rows": rows,
        "tutti_perf": documents,
    }
    file.write(json.dumps(document, indent=2))
    print(f"\nWrong elements: tutti 0, torch {wrong}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
