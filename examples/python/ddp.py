# SPDX-License-Identifier: Apache-2.0
"""Trains a small model by DistributedDataParallel over tutti: on GPUs if there are any, else on virtual devices.

torchrun --nproc-per-node 2 examples/python/ddp.py
"""

import os

import torch
import torch.distributed as dist
import tutti.distributed  # noqa: F401  torch before 2.14 does not find the backend by itself


def main():
    dist.init_process_group("tutti")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(ranks, 32, 16)[rank].to(device)
    targets = inputs.sum(dim=1, keepdim=True)
    for step in range(20):
        optimizer.zero_grad()
        loss = ((model(inputs) - targets) ** 2).mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
