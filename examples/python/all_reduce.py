# SPDX-License-Identifier: Apache-2.0
"""Averages an array among ranks, each on a device of its own.

TUTTI_BACKEND=host torchrun --nproc-per-node 2 examples/python/all_reduce.py

Without torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment of each process.
"""

import tutti


def main():
    with tutti.Communicator.from_env() as communicator:
        device = communicator.devices[0]
        mine = tutti.full([4], communicator.rank, device=device)
        mean = communicator.all_reduce(mine, op="avg")
        print(f"rank {communicator.rank} of {communicator.rank_count}: {mean.tolist()}", flush=True)


if __name__ == "__main__":
    main()
