"""Fits a line to points: a small distributed training that needs only the standard library.

Each process has points of its own, and after each step they average their gradients. Process 0
saves the state, continues from there in a later attempt, and writes the result for the task.
"""

import json
import os
import random
import socket
import sys
import time
from pathlib import Path

rate = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100


def variable(name, instead):
    """A variable as torchrun sets it; without torchrun, the one that configures torchrun."""
    return os.environ.get(name) or os.environ[instead]


rank = int(variable("RANK", "PET_NODE_RANK"))
world = int(variable("WORLD_SIZE", "PET_NNODES"))
place = (
    variable("MASTER_ADDR", "PET_MASTER_ADDR"),
    int(variable("MASTER_PORT", "PET_MASTER_PORT")),
)


def patiently(connect):
    """Retries, since processes start at different times, and names resolve some seconds later."""
    end = time.monotonic() + 60
    while True:
        try:
            return connect()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


if rank == 0:
    server = patiently(lambda: socket.create_server(place))
    peers = [server.accept()[0].makefile("rw") for _ in range(world - 1)]
else:
    peers = [patiently(lambda: socket.create_connection(place)).makefile("rw")]


def send(peer, numbers):
    peer.write(json.dumps(numbers) + "\n")
    peer.flush()


def mean(numbers):
    """The mean over all processes: the all-reduce of this training."""
    if rank > 0:
        send(peers[0], numbers)
        return json.loads(peers[0].readline())
    given = [numbers, *(json.loads(peer.readline()) for peer in peers)]
    together = [sum(column) / world for column in zip(*given, strict=True)]
    for peer in peers:
        send(peer, together)
    return together


# --8<-- [start:checkpoint]
# The same folder in all attempts of this run, and in no other run.
checkpoint = None
if "CHECKPOINTS" in os.environ:
    folder = Path(os.environ["CHECKPOINTS"], os.environ["KFTRAIN_RUN_ID"])
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "line.json"

state = [0, 0.0, 0.0, 0.0]
if rank == 0 and checkpoint and checkpoint.exists():
    state = json.loads(checkpoint.read_text())
# --8<-- [end:checkpoint]
# Only process 0 is sure to see its checkpoint, so it tells the others.
done, slope, intercept, loss = mean([world * number for number in state])
begun = done = round(done)

random.seed(rank)
points = [(x, 3 * x + 1 + random.gauss(0, 0.01)) for x in (random.random() for _ in range(50))]
while done < steps:
    errors = [(x, slope * x + intercept - y) for x, y in points]
    gradient = [
        sum(2 * error * x for x, error in errors) / len(points),
        sum(2 * error for _, error in errors) / len(points),
        sum(error**2 for _, error in errors) / len(points),
    ]
    by_slope, by_intercept, loss = mean(gradient)
    slope, intercept, done = slope - rate * by_slope, intercept - rate * by_intercept, done + 1
    if rank == 0 and done % 20 == 0:
        print(f"step {done}: loss {loss:.6f}", flush=True)
        if checkpoint:
            checkpoint.write_text(json.dumps([done, slope, intercept, loss]))
        if done == int(os.environ.get("FAIL_AT_STEP", -1)) and os.environ["KFTRAIN_ATTEMPT"] == "1":
            sys.exit(f"attempt 1 breaks off at step {done}, as it was told to")

# --8<-- [start:result]
if rank == 0:
    result = {"slope": slope, "loss": loss, "processes": world, "begun_at_step": begun}
    Path(os.environ["KFTRAIN_RESULT_FILE"]).write_text(json.dumps(result))
# --8<-- [end:result]
