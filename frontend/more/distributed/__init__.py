"""Distributed: several processes, on one machine or many, that train one model together, on MPI through mpi4py.

In       a program started by mpirun, srun or alike: the same on every rank
Out      `init`, `rank`, `size`, `close`; collectives on tensors; `DataParallel`, `Pipeline`, layers for tensor
         parallelism; checkpoints
Changes  nothing on import; `init` enters MPI
Next     job.py (how ranks meet), group.py (deadlines, and who is missing), collectives.py, data_parallel.py,
         docs/distributed.md (how to start it), docs/scaling.md (what it costs)
"""

from hcq.frontend.more.distributed.checkpoint import load_checkpoint, save_checkpoint
from hcq.frontend.more.distributed.collectives import (
    Sending,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    broadcast_into,
    receive,
    reduce_scatter,
    send,
    start_send,
)
from hcq.frontend.more.distributed.data_parallel import DataParallel
from hcq.frontend.more.distributed.group import Group, RankLost
from hcq.frontend.more.distributed.job import close, init, rank, size, world
from hcq.frontend.more.distributed.pipeline import Pipeline
from hcq.frontend.more.distributed.tensor_parallel import (
    ColumnLinear,
    RowLinear,
    enter,
    leave,
    load_whole_state,
    whole_state,
)
from hcq.frontend.more.distributed.torch_names import (
    destroy_process_group,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
)
from hcq.frontend.more.distributed.transformer import Sizes, Transformer, loss_of

__all__ = [
    "init",
    "close",
    "is_available",
    "is_initialized",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "destroy_process_group",
    "rank",
    "size",
    "world",
    "Group",
    "RankLost",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "broadcast_into",
    "barrier",
    "send",
    "start_send",
    "Sending",
    "receive",
    "DataParallel",
    "Pipeline",
    "ColumnLinear",
    "RowLinear",
    "enter",
    "leave",
    "whole_state",
    "load_whole_state",
    "Transformer",
    "Sizes",
    "loss_of",
    "save_checkpoint",
    "load_checkpoint",
]
