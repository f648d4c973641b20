"""The part of pi for the rank of this process. The sum of all parts is pi."""

import os


def variable(horovod, open_mpi):
    return os.environ.get(horovod) or os.environ[open_mpi]


rank = int(variable("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"))
ranks = int(variable("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"))
steps = 100_000
places = ((number + 0.5) / steps for number in range(rank, steps, ranks))
part = sum(4 / (1 + place * place) for place in places) / steps
# One write for the whole line: the ranks share the launcher's output, and print() ends a line with
# a second write, before which another rank can write.
print(f"{part}\n", end="")
