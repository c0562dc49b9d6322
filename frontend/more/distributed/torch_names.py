"""Asked: what PyTorch's programs ask of torch.distributed, and how processes meet here instead.

In       nothing
Out      is_available, is_initialized, get_rank, get_world_size; init_process_group, which is refused
Next     job.py (init, rank, size)
"""

from __future__ import annotations

from typing import Any

from hcq.errors import UsageError
from hcq.frontend.more.distributed import job


def is_available() -> bool:
    """True: processes meet by MPI, where mpi4py is installed.

    >>> hcq.distributed.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether this process has met the others, by init().

    >>> hcq.distributed.is_initialized() in (True, False)
    True
    """
    return job._world is not None


def get_rank(group: Any = None) -> int:
    """`rank`; 0 in a program of one process.

    >>> hcq.distributed.get_rank()
    0
    """
    return job.rank() if is_initialized() else 0


def get_world_size(group: Any = None) -> int:
    """`size`; 1 in a program of one process.

    >>> hcq.distributed.get_world_size()
    1
    """
    return job.size() if is_initialized() else 1


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Refused: MPI's launcher starts the processes, and init() has them meet.

    >>> hcq.distributed.init_process_group("nccl")
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [init_process_group] start ...
    """
    raise UsageError(
        "[init_process_group] start the processes with mpirun, and call hcq.distributed.init(): docs/distributed.md."
    )


def destroy_process_group(group: Any = None) -> None:
    """`close`: leave the others, if this process has met them.

    >>> hcq.distributed.destroy_process_group()
    """
    if is_initialized():
        job.close()
