"""Trains a small model with DistributedDataParallel, and writes the result as JSON.

Every rank takes its part of the same batches. So however many ranks there are, together they must
compute what one process computes from the whole batches. Variables: RESULT_FILE; SEED (of the
data); CHECKPOINT (a file, written after each step and read at the start); DIES_AFTER (after so many
steps the last rank is killed, if it started at the first one).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
BATCH = 24  # the same number of samples for each of 1, 2, 3 or 4 ranks
SEED = int(os.environ.get("SEED", "1"))
CHECKPOINT = os.environ.get("CHECKPOINT", "")
DIES_AFTER = int(os.environ.get("DIES_AFTER", "-1"))


def new_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return torch.nn.Sequential(*layers).double()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(1000 * SEED + step)
    inputs = torch.randn(BATCH, 4, dtype=torch.float64, generator=chance)
    return inputs, inputs.sum(1, keepdim=True)


def train(model: torch.nn.Module, first: int, rank: int, world: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, STEPS):
        inputs, wanted = batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[rank::world]), wanted[rank::world])
        loss.backward()
        optimizer.step()
        if isinstance(model, DistributedDataParallel):
            save(model.module, step + 1)
            if first == 0 and step + 1 == DIES_AFTER:
                die(rank, world)


def save(model: torch.nn.Module, steps: int) -> None:
    if CHECKPOINT:
        torch.save({"steps": steps, "model": model.state_dict()}, f"{CHECKPOINT}.part")
        os.replace(f"{CHECKPOINT}.part", CHECKPOINT)


def load(model: torch.nn.Module) -> int:
    """Returns how many steps are done already."""
    if not os.path.exists(CHECKPOINT):
        return 0
    saved = torch.load(CHECKPOINT)
    model.load_state_dict(saved["model"])
    return int(saved["steps"])


def die(rank: int, world: int) -> None:
    dist.barrier()  # all have saved
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def from_all(tensor: torch.Tensor, world: int) -> list[torch.Tensor]:
    gathered = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(gathered, tensor)
    return gathered


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)

    model = new_model(SEED + rank)  # DDP distributes that of rank 0
    first = load(model)
    begun = [int(other) for other in from_all(torch.tensor([first]), world)]
    train(DistributedDataParallel(model), first, rank, world)

    alone = new_model(SEED)
    train(alone, 0, 0, 1)
    mine = flat(model)
    result = {
        "rank": rank,
        "world": world,
        "sum": int(total),
        "begun": begun,
        "same on all ranks": all(torch.equal(mine, other) for other in from_all(mine, world)),
        "same as alone": torch.allclose(mine, flat(alone), rtol=1e-9, atol=1e-12),
        "changed": not torch.allclose(mine, flat(new_model(SEED))),
        "parameters": hashlib.sha256(mine.numpy().tobytes()).hexdigest()[:16],
        "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    }
    with open(os.environ["RESULT_FILE"], "w", encoding="utf-8") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
