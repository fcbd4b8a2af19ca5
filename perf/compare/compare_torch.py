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
import math
import os
import statistics
import subprocess
import time

from command import ResultFile, document_of, fail, find_program, run
from reporting.markdown import row as line_of

# tutti uses no NVLink multicast; it is not to be had on every machine, so the peer is measured without it as well.
os.environ["NCCL_NVLS_ENABLE"] = "0"

WARM_UP = 5  # batches of one launch, as tutti-perf's
TENSORS_OF_A_SWEEP = 16  # as tutti-perf splits a size for a coalesced operation
OPERATIONS = ["broadcast", "reduce_add", "scatter", "gather", "broadcast_coalesced", "reduce_add_coalesced"]
COALESCED = OPERATIONS[4:]
# tutti's forms and how tutti-perf is asked for them.
FORMS = {"eager": ["--results", "new"], "out": ["--results", "out"], "persistent": ["--persistent"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", default="1K", metavar="SIZE", help="smallest payload (default 1K)")
    parser.add_argument("-e", default="256M", metavar="SIZE", help="largest payload (default 256M)")
    parser.add_argument("-f", default="4", metavar="FACTOR", help="from one size to the next (default 4)")
    parser.add_argument("-g", type=int, metavar="GPUS", help="GPUs that take part (default: all)")
    lists = "for coalesced operations, repeatable (default: resnet50, gpt2, 1000x1K)"
    parser.add_argument("--tensors", action="append", metavar="LIST", help=lists)
    parser.add_argument("-J", metavar="FILE", help="write all figures as JSON")
    program = "tutti-perf (default: the newest under build/, or that on the PATH)"
    parser.add_argument("--program", metavar="PATH", help=program)
    given = parser.parse_args()
    given.tensors = given.tensors or ["resnet50", "gpt2", "1000x1K"]
    return given


class Case:
    """One call of torch.cuda.comm: inputs of one set, the call, and what must come out."""

    def __init__(self, torch, operation, shapes, gpus):
        self.torch, self.operation, self.shapes, self.gpus = torch, operation, shapes, gpus

    def tensor(self, index, source, device):
        """Small integers, exact in float32 whatever the order of a sum."""
        shape = self.shapes[index]
        position = self.torch.arange(math.prod(shape), dtype=self.torch.int64, device=device)
        salt = index * 131 + source
        return ((position * 40503 + salt * 7919) % 1021).to(self.torch.float32).reshape(shape)

    def tensors(self, source, device):
        return [self.tensor(index, source, device) for index in range(len(self.shapes))]

    def inputs(self):
        if self.operation == "broadcast" or self.operation == "scatter":
            return self.tensor(0, 0, 0)
        if self.operation == "broadcast_coalesced":
            return self.tensors(0, 0)
        if self.operation == "gather":
            return [part.to(device) for device, part in enumerate(self.tensor(0, 0, "cpu").chunk(self.gpus))]
        lists = [self.tensors(device, device) for device in range(self.gpus)]
        return lists if self.operation in COALESCED else [tensors[0] for tensors in lists]

    def call(self, inputs):
        function = getattr(self.torch.cuda.comm, self.operation)
        if self.operation.startswith(("broadcast", "scatter")):
            return function(inputs, list(range(self.gpus)))
        return function(inputs, destination=0)

    def expected(self):
        """The tensors that come out, one device after another."""
        if self.operation.startswith("reduce_add"):
            lists = [self.tensors(device, 0) for device in range(self.gpus)]
            return [sum(tensors) for tensors in zip(*lists, strict=True)]
        whole = self.tensors(0, 0)
        if self.operation == "scatter":
            return whole[0].chunk(self.gpus)
        return whole if self.operation == "gather" else whole * self.gpus

    def wrong_elements(self, outputs):
        def wrong(got, expected):
            if got.shape != expected.shape:
                return max(expected.numel(), 1)
            return int((got != expected.to(got.device)).sum())

        return sum(wrong(got, expected) for got, expected in zip(flat(outputs), self.expected(), strict=True))


def flat(outputs):
    """The tensors in a tensor, a list of them or a list of lists."""
    return [outputs] if hasattr(outputs, "shape") else [tensor for own in outputs for tensor in flat(own)]


def split_evenly(count):
    tensors = max(1, min(count, TENSORS_OF_A_SWEEP))
    return [[count // tensors + (index < count % tensors)] for index in range(tensors)]


def synchronize(torch, gpus):
    for device in range(gpus):
        torch.cuda.synchronize(device)


def measure_torch(torch, case, row):
    """Times of a case, measured as often as tutti-perf measured the row that it is compared with."""
    plan = row["out_of_place"]
    sets = [case.inputs() for _ in range(row["buffer_sets"])]
    synchronize(torch, case.gpus)

    def batch(count, first=0):
        start = time.perf_counter()
        for index in range(first, first + count):
            case.call(sets[index % len(sets)])
        synchronize(torch, case.gpus)
        return (time.perf_counter() - start) / count * 1e6

    batch(len(sets))
    for _ in range(WARM_UP):
        batch(1)
    batches = [batch(plan["iterations"]) for _ in range(plan["back_to_back_us"]["samples"])]
    latencies = sorted(batch(1, sample) for sample in range(plan["latency_us"]["samples"]))  # over all sets
    return {
        "back_to_back_us": statistics.median(batches),
        "max_us": max(batches),
        "latency_us": statistics.median(latencies),
        "latency_p99_us": latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))],
        "iterations": plan["iterations"],
        "buffer_sets": len(sets),
        "wrong": case.wrong_elements(case.call(sets[0])),
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


def tutti_documents(given, program, gpus, form):
    common = ["-g", str(gpus), *FORMS[form], "--backend", "cuda"]
    sweep = ["-b", given.b, "-e", given.e, "-f", given.f]
    lists = [document_of([program, *COALESCED, "--tensors", name, *common]) for name in given.tensors]
    documents = [document_of([program, *OPERATIONS, *sweep, *common]), *lists]
    for left_out in (left_out for document in documents for left_out in document["not_measured"]):
        fail(f"tutti-perf measured no {left_out['case']} ({form}): {left_out['reason']}")
    return documents


def rows_of(documents):
    """{(operation, size, tensor list): row}"""
    rows = [row for document in documents for row in document["rows"]]
    return {(row["operation"], row["size"], row["tensor_list"]): row for row in rows}


def shapes_of_list(program, name):
    listed = subprocess.run([program, "tensors", name], capture_output=True, text=True)
    if listed.returncode != 0:
        fail(listed.stderr.strip().removeprefix("tutti-perf: "))
    shapes = []
    for shape, *types in (line.split() for line in listed.stdout.splitlines()):
        if types and types[0] != "float32":
            fail(f"{name}: only float32 is compared, not {types[0]}")
        shapes.append([] if shape == "scalar" else [int(size) for size in shape.split("x")])
    return shapes


def compared(torch, program, gpus, key, forms):
    """The row of a case: PyTorch's figures, and those of each form of tutti, {form: row}, with the ratios."""
    operation, size, tensor_list = key
    if tensor_list:
        shapes = shapes_of_list(program, tensor_list)
    else:
        shapes = split_evenly(size // 4) if operation in COALESCED else [[size // 4]]
    theirs = measure_torch(torch, Case(torch, operation, shapes, gpus), forms["eager"])
    torch.cuda.empty_cache()
    row = {"operation": operation, "size": size, "tensor_list": tensor_list, "torch": theirs}
    for form, measured in forms.items():
        own = row[form] = tutti_figures(measured)
        row[f"torch_over_{form}"] = theirs["back_to_back_us"] / own["back_to_back_us"]
        row[f"torch_over_{form}_latency"] = theirs["latency_us"] / own["latency_us"]
    return row


def table_of(rows):
    heads = ["operation", "payload", "torch b2b", "tutti b2b", "ratio", "out b2b", "ratio", "persistent b2b", "ratio"]
    text = line_of([*heads, "torch done", "tutti done", "ratio", "chosen"]) + f"|---|{'--:|' * 11}---|\n"
    for row in rows:
        cells = [row["operation"], str(row["tensor_list"] or row["size"]), f"{row['torch']['back_to_back_us']:.1f}"]
        for form in FORMS:
            cells += [f"{row[form]['back_to_back_us']:.1f}", f"{row[f'torch_over_{form}']:.2f}x"]
        cells += [f"{row[side]['latency_us']:.1f}" for side in ("torch", "eager")]
        chosen = f"{row['eager']['transport']}: {row['eager']['algorithm']}"
        cells += [f"{row['torch_over_eager_latency']:.2f}x", chosen]
        text += line_of(cells)
    return text


def count_of_gpus(torch, given):
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = given.g or available
    if gpus < 2 or gpus > available:
        fail(f"{gpus} GPUs asked for, {available} there; two or more are needed")
    return gpus


def main():
    given = arguments()
    file = ResultFile("-J", given.J)
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
    tutti = {form: rows_of(own) for form, own in documents.items()}
    rows = [
        compared(torch, program, gpus, key, {form: own[key] for form, own in tutti.items()}) for key in tutti["eager"]
    ]
    gpu = torch.cuda.get_device_name(0)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus, "gpu": gpu}
    print(
        f"tutti and torch.cuda.comm (PyTorch {torch.__version__}) on {gpus} x {gpu}, float32; µs per operation.\n"
        "b2b: back to back. done: from the call to completion. out: into given outputs. The ratios are torch's time over "
        "tutti's.\n"
    )
    print(table_of(rows))
    document = {"schema": "tutti-compare-torch/1", **versions, "rows": rows, "tutti_perf": documents}
    file.write(json.dumps(document, indent=2))
    wrong = sum(row["torch"]["wrong"] for row in rows)
    print(f"Wrong elements: tutti 0, torch {wrong}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
