"""Checkpoints: all that training goes on from, in one file that any number of ranks can go on from.

In       tensors by name, whole, as DataParallel.state_dict and tensor_parallel.whole_state give them; the number of
         steps
Out      a safetensors file, replaced in one step; the same tensors on every rank
Changes  the file
Next     io/safetensors.py (the file), data_parallel.py (what is in it)

Rank 0 writes and reads; no other rank needs to see the file. A process that is killed while it writes leaves the
checkpoint from before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from hcq import checks
from hcq.errors import UsageError
from hcq.frontend.io.safetensors import load_file, read_metadata, save_file
from hcq.frontend.more.distributed.collectives import barrier, broadcast
from hcq.frontend.more.distributed.group import Group
from hcq.frontend.more.distributed.job import world
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

STEP = "hcq.step"


def save_checkpoint(
    state: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    step: int,
    group: Group | None = None,
    timeout_ms: float | None = None,
) -> None:
    """Write a state, of which every rank has all, after so many steps. Returns once it is on disk, on every rank.

    Raises  OSError as the system gives it, on rank 0; WaitTimeout and RankLost on the others

    >>> import os, tempfile
    >>> _ = hcq.distributed.init()
    >>> path = os.path.join(tempfile.mkdtemp(), "run.safetensors")
    >>> hcq.distributed.save_checkpoint({"w": Tensor([1.0])}, path, step=7)
    >>> os.listdir(os.path.dirname(path))
    ['run.safetensors']
    """
    group = group or world()
    step = checks.whole("save_checkpoint", "step", step)
    if group.rank == 0:
        save_file(dict(state), path, {STEP: str(step)})
    barrier(group, timeout_ms)


def load_checkpoint(
    path: str | os.PathLike[str],
    group: Group | None = None,
    timeout_ms: float | None = None,
    device: str | None = None,
) -> tuple[dict[str, Tensor], int]:
    """What was saved, on every rank, and after how many steps.

    Raises  UsageError, on rank 0, for a file that is damaged or no checkpoint; OSError as the system gives it

    >>> import os, tempfile
    >>> _ = hcq.distributed.init()
    >>> path = os.path.join(tempfile.mkdtemp(), "run.safetensors")
    >>> hcq.distributed.save_checkpoint({"w": Tensor([1.0])}, path, step=7)
    >>> state, step = hcq.distributed.load_checkpoint(path)
    >>> state["w"].tolist(), step
    ([1.0], 7)
    """
    group = group or world()
    found: dict[str, Tensor] = {}
    step = 0
    if group.rank == 0:
        found, step = load_file(path, device), _step_of(path)
    if group.size == 1:
        return found, step
    table = [[name, tensor.dtype.name, tensor.shape] for name, tensor in found.items()]
    words = json.dumps([step, table]).encode()
    (length,) = broadcast(Tensor._made_of([len(words)], device=device), 0, group, timeout_ms).tolist()
    sent = Tensor._made_of(words if group.rank == 0 else bytes(length), device=device)
    step, table = json.loads(bytes(broadcast(sent, 0, group, timeout_ms).tolist()))
    state = {}
    for name, dtype, shape in table:
        like = found.get(name)
        if like is None:
            like = Tensor.empty(*shape, dtype=dtypes.named(dtype), device=device) if shape else None
        if like is None:
            like = Tensor.zeros((), dtype=dtypes.named(dtype), device=device)
        state[name] = broadcast(like, 0, group, timeout_ms)
    return state, step


def _step_of(path: str | os.PathLike[str]) -> int:
    text = read_metadata(path).get(STEP, "")
    if not checks.is_decimal(text):
        raise UsageError(
            f"[load_checkpoint] {os.fspath(path)}: it does not say after how many steps it was written. Give a file of "
            "save_checkpoint."
        )
    return int(text)
