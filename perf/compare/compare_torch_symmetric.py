#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's all-reduces of symmetric memory and tutti's between ranks on the same GPUs, and joins both.

usage: perf/compare/compare_torch_symmetric.py [-b SIZE] [-e SIZE] [-f FACTOR] [-g GPUS] [-J FILE] [--program PATH]

A process for each GPU, on both sides: of PyTorch `one_shot_all_reduce_out`, out of place, and `two_shot_all_reduce_`, in
place, on buffers that have met (`rendezvous`), without multicast; of tutti `tutti-perf all_reduce_add` under mpirun. Both
are measured eager, which has Python in it on their side, and replayed from graphs of 20 calls. On both sides ranks start a
batch, and each call whose latency is taken, in step, by a barrier of their processors; a batch is waited for once and
divided by its length; the slowest rank's time; the median of several batches. tutti is measured first; PyTorch gets as
many batches, as long, and as many sets of buffers, which rotate beyond the caches. Every element of a result is checked on
every rank.

Prints a Markdown table. -J writes tutti-perf's documents, in which PyTorch's figures are rows of a peer:
perf/compare/report.py draws them. Exits with 1 if an element was wrong.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import tempfile
import time

from command import ResultFile, fail, run
from compare_mpi import launcher
from compare_torch import WARM_UP, count_of_gpus, find_program, parse_size, pattern, plan_of, sizes_of

# What comes from a pool is handed out by address, which may differ among ranks: then the wrong buffers would meet.
os.environ["TORCH_SYMMMEM_IMPLICIT_POOL"] = "0"

CALLS_OF_A_GRAPH = 20
ALGORITHMS = {"one-shot": "out_of_place", "two-shot": "in_place"}  # and where the results go
FORMS = {"eager": [], "persistent": ["-G", "20"]}  # as rows call them, and how tutti-perf is asked for them


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", type=parse_size, default=1024, metavar="SIZE", help="smallest payload (default 1K)")
    parser.add_argument("-e", type=parse_size, default=64 << 20, metavar="SIZE", help="largest payload (default 64M)")
    parser.add_argument("-f", type=int, default=4, metavar="FACTOR", help="from one size to the next (default 4)")
    parser.add_argument("-g", type=int, metavar="GPUS", help="GPUs that take part (default: all)")
    parser.add_argument("-J", metavar="FILE", help="write all figures as JSON")
    parser.add_argument(
        "--program", metavar="PATH", help="tutti-perf (default: the newest under build/, or that on the PATH)"
    )
    given = parser.parse_args()
    if given.b < 1024 or given.b % 1024 != 0 or given.e < given.b or given.f < 2:
        parser.error("expected a multiple of 1K for -b, -b <= -e, and -f of 2 or more")
    return given


# --- PyTorch's side: one process for each GPU ------------------------------------------------------------------------


class Step:
    """A barrier of processes on one host that leaves them within a microsecond or so: they look at memory they share."""

    def __init__(self, path, number, count):
        with open(path, "r+b") as file:
            self.counts = memoryview(mmap.mmap(file.fileno(), 8 * count)).cast("Q")
        self.number = number

    @staticmethod
    def prepare(path, count):
        with open(path, "wb") as file:
            file.write(bytes(8 * count))

    def wait(self):
        self.counts[self.number] += 1
        mine = self.counts[self.number]
        while min(self.counts) < mine:
            pass


class Rank:
    """One process: its GPU, and what all of them agree on."""

    def __init__(self, torch, number, count, folder):
        import torch.distributed as distributed
        import torch.distributed._symmetric_memory as symmetric

        self.torch, self.number, self.count = torch, number, count
        self.step = Step(os.path.join(folder, "steps"), number, count)
        self.distributed, self.symmetric = distributed, symmetric
        self.device = torch.device("cuda", number)
        torch.cuda.set_device(self.device)
        distributed.init_process_group(
            "nccl", init_method=f"file://{folder}/meeting", rank=number, world_size=count, device_id=self.device
        )
        self.group = distributed.group.WORLD.group_name

    def slowest(self, seconds):
        """Each the largest of all ranks'."""
        values = self.torch.tensor(seconds, dtype=self.torch.float64, device=self.device)
        self.distributed.all_reduce(values, op=self.distributed.ReduceOp.MAX)
        return values.tolist()

    def buffer(self, elements):
        """A symmetric one, the same on all ranks."""
        made = self.symmetric.empty(elements, dtype=self.torch.float32, device=self.device)
        self.symmetric.rendezvous(made, self.group)
        return made

    def call(self, algorithm, buffer, out):
        """What `out` holds afterwards, or the buffer itself, is the sum."""
        if algorithm == "one-shot":
            self.torch.ops.symm_mem.one_shot_all_reduce_out(buffer, "sum", self.group, out)
            return out
        self.torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", self.group)
        return buffer


def captured(torch, work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def timed(rank, plan, launch, calls_of_a_launch, launch_one):
    """Figures of `launch(index)`, which makes so many calls, and of `launch_one(index)`, which makes one."""

    def batch(count, first=0, launch=launch):
        rank.step.wait()
        start = time.perf_counter()
        for index in range(first, first + count):
            launch(index)
        rank.torch.cuda.synchronize()
        return time.perf_counter() - start

    batch(plan["buffer_sets"] if calls_of_a_launch == 1 else 1)  # every call there is
    for _ in range(WARM_UP):
        batch(1)
    launches = max(1, plan["iterations"] // calls_of_a_launch)
    calls = launches * calls_of_a_launch
    batches = sorted(rank.slowest([batch(launches) / calls for _ in range(plan["repetitions"])]))
    latencies = rank.slowest([batch(1, sample, launch_one) for sample in range(plan["latencies"])])
    return {"batches": batches, "latencies": sorted(latencies), "calls": calls}


def measured(rank, algorithm, form, size, plan):
    """Figures of an algorithm with payloads of a size, and how many elements this rank has wrong."""
    torch, count = rank.torch, size // 4
    buffers = [rank.buffer(count) for _ in range(plan["buffer_sets"])]
    outs = [torch.empty(count, dtype=torch.float32, device=rank.device) for _ in buffers]
    sums = [sum(pattern(torch, count, 131 * index + source, rank.device) for source in range(rank.count))
            for index in range(len(buffers))]  # fmt: skip

    def fill():
        for index, (buffer, out) in enumerate(zip(buffers, outs, strict=True)):
            buffer.copy_(pattern(torch, count, 131 * index + rank.number, rank.device))
            out.fill_(float("nan"))
        rank.slowest([0.0])

    def call(index):
        return rank.call(algorithm, buffers[index % len(buffers)], outs[index % len(buffers)])

    def call_each(times):
        for index in range(times):
            call(index)

    fill()
    call_each(len(buffers))  # what is set up in a first call cannot be captured
    torch.cuda.synchronize()
    fill()
    if form == "eager":
        figures = timed(rank, plan, call, 1, call)
        fill()
        call_each(len(buffers))
    else:
        calls = max(CALLS_OF_A_GRAPH, len(buffers))
        several = captured(torch, lambda: call_each(calls))
        one = captured(torch, lambda: call(0))
        figures = timed(rank, plan, lambda _: several.replay(), calls, lambda _: one.replay())
        each_once = captured(torch, lambda: call_each(len(buffers)))
        fill()
        each_once.replay()
    torch.cuda.synchronize()
    results = outs if algorithm == "one-shot" else buffers
    figures["wrong"] = sum(int((got != expected).sum()) for got, expected in zip(results, sums, strict=True))
    figures["buffer_sets"] = len(buffers)
    rank.slowest([0.0])  # nobody's buffers go while others read them
    return figures


def work_of_a_rank(number, count, folder, sizes, plans):
    import torch

    rank = Rank(torch, number, count, folder)
    figures = []
    for size in sizes:
        for algorithm in ALGORITHMS:
            for form in FORMS:
                found = measured(rank, algorithm, form, size, plans[algorithm, form, size])
                found |= {"algorithm": algorithm, "form": form, "size": size}
                found["wrong"] = int(sum_over_ranks(rank, found["wrong"]))
                figures.append(found)
                torch.cuda.empty_cache()
    if number == 0:
        with open(os.path.join(folder, "torch.json"), "w", encoding="utf-8") as stream:
            json.dump(figures, stream)
    rank.distributed.destroy_process_group()


def sum_over_ranks(rank, value):
    total = rank.torch.tensor([value], dtype=rank.torch.int64, device=rank.device)
    rank.distributed.all_reduce(total)
    return total.item()


def torch_figures(torch, gpus, sizes, plans):
    with tempfile.TemporaryDirectory() as folder:
        Step.prepare(os.path.join(folder, "steps"), gpus)
        try:
            torch.multiprocessing.spawn(work_of_a_rank, args=(gpus, folder, sizes, plans), nprocs=gpus, join=True)
        except Exception as error:  # whatever a rank has ended with: its words are in it
            fail(f"PyTorch's ranks: {error}")
        with open(os.path.join(folder, "torch.json"), encoding="utf-8") as stream:
            return json.load(stream)


# --- tutti's side, and both -------------------------------------------------------------------------------------------


def tutti_document(program, gpus, given, form):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "tutti.json")
        sweep = ["-b", str(given.b), "-e", str(given.e), "-f", str(given.f)]
        words = [*launcher(gpus), program, "all_reduce_add", *sweep, *FORMS[form], "--backend", "cuda", "-J", file]
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except OSError as error:
            fail(f"{words[0]}: {error.strerror}")
        # Of wrong elements, which end it with 1, the document tells. So may end what starts the ranks, without one.
        if done.returncode not in (0, 1, 4) or not os.path.exists(file):
            lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"]
            fail(f"{' '.join(words)}: exit status {done.returncode}: {lines[-1]}")
        with open(file, encoding="utf-8") as stream:
            return json.load(stream)


def summary_of(seconds):
    times = sorted(second * 1e6 for second in seconds)
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    return {"samples": len(times), "min": times[0], "median": statistics.median(times), "p99": p99, "max": times[-1]}


def peer_row(own, figures):
    """PyTorch's figures as a row beside `own`, tutti's of the same size and form."""
    batches = summary_of(figures["batches"])
    bandwidth = own["size"] / batches["median"] * 1e-3
    place = ALGORITHMS[figures["algorithm"]]
    times = {
        "time_us": batches["median"],
        "algbw_gbps": bandwidth,
        "busbw_gbps": bandwidth * own["bus_factor"],
        "back_to_back_us": batches,
        "iterations": figures["calls"],
        "latency_us": summary_of(figures["latencies"]),
        "wrong": figures["wrong"],
    }
    copied = ("operation", "size", "count", "tensors", "tensor_list", "dtype", "redop", "root", "dim", "devices")
    row = {name: own[name] for name in (*copied, "launch", "results", "bus_factor")}
    row |= {"by": "torch", "mode": figures["algorithm"], "transport": "symmetric memory", "algorithm": ""}
    row |= {"buffer_sets": figures["buffer_sets"], "out_of_place": None, "in_place": None, place: times}
    # As tutti-perf says it: the fastest of its placement, where it is alone, if it is right.
    times["fastest"] = times["wrong"] == 0 and not own[place]["wrong"]
    if times["fastest"]:
        times["time_over_tutti"] = row["time_over_tutti"] = times["time_us"] / own[place]["time_us"]
    return row | {"fastest": times["fastest"]}


def plans_of(document, form):
    """How tutti's calls were measured that each algorithm is compared with."""
    return {
        (algorithm, form, row["size"]): plan_of(row, place)
        for row in document["rows"]
        for algorithm, place in ALGORITHMS.items()
    }


def with_peers(document, figures, form, torch_version):
    """The document with PyTorch's rows behind tutti's of the same size; what is right is compared."""
    rows = []
    for own in document["rows"]:
        found = [one for one in figures if one["size"] == own["size"] and one["form"] == form]
        if len(found) != len(ALGORITHMS):
            fail(f"PyTorch has measured no {own['size']} bytes ({form})")
        rows += [own, *(peer_row(own, one) for one in found)]
    wrong = document["summary"]["wrong"] + sum(one["wrong"] for one in figures if one["form"] == form)
    return document | {
        "rows": rows,
        "peer": f"PyTorch {torch_version}",
        "summary": document["summary"] | {"wrong": wrong},
    }


def table_of(documents):
    text = "| payload | form | one-shot | two-shot, in place | tutti | tutti in place | fastest of PyTorch's over tutti |\n"
    text += "|--:|---|--:|--:|--:|--:|--:|\n"
    for document in documents:
        rows = document["rows"]
        for own, one, two in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            mine = [own["out_of_place"], own["in_place"]]
            theirs = [one["out_of_place"], two["in_place"]]
            cells = (f"{cell['time_us']:.1f}{' wrong' if cell['wrong'] else ''}" for cell in (*theirs, *mine))
            right = [cell for cell in theirs if cell["fastest"]]
            best = min(right, key=lambda cell: cell["time_us"])["time_over_tutti"] if right else None
            text += f"| {own['size']} | {own['launch']} | {' | '.join(cells)} | {f'{best:.2f}x' if best else ''} |\n"
    return text


def main():
    given = arguments()
    file = ResultFile("-J", given.J)
    try:
        import torch
        import torch.distributed._symmetric_memory  # noqa: F401
    except ImportError:
        fail("PyTorch, or its symmetric memory, is not installed for this Python")
    gpus = count_of_gpus(torch, given)
    program = find_program(given.program)
    own = {form: tutti_document(program, gpus, given, form) for form in FORMS}
    plans = {key: plan for form in FORMS for key, plan in plans_of(own[form], form).items()}
    sizes = list(sizes_of(given))
    for size in sizes:
        if any((algorithm, form, size) not in plans for algorithm in ALGORITHMS for form in FORMS):
            fail(f"tutti-perf measured no {size} bytes")
    figures = torch_figures(torch, gpus, sizes, plans)
    documents = [with_peers(own[form], figures, form, torch.__version__) for form in FORMS]
    print(
        f"tutti's all_reduce_add between {gpus} ranks and PyTorch {torch.__version__}'s all-reduces of symmetric memory"
    )
    print(f"on {gpus} x {torch.cuda.get_device_name(0)}, float32; µs per operation, back to back, of the slowest rank.")
    print("persistent: replayed from graphs. The ratio is of what has its results in the same place.\n")
    print(table_of(documents))
    wrong = sum(document["summary"]["wrong"] for document in documents)
    print(f"Wrong elements: {wrong}.")
    file.write(json.dumps({"schema": "tutti-compare-torch-symmetric/1", "documents": documents}, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
