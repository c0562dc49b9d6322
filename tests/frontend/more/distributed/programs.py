"""Programs that tests of ranks run, one function each: `mpirun -n 2 python programs.py NAME`.

In       the name of a program, and its arguments
Out      asserts that hold on every rank; lines on stdout that a test compares
Changes  files that it was given the names of
Next     ranks.py (how they are started), test_ranks.py (what is expected)
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import hcq
from hcq import HcqError, Tensor, UsageError, distributed, dtypes, nn
from hcq.events import ranks
from hcq.frontend.more.distributed.group import Group
from hcq.frontend.more.distributed.rollcall import RUNNING

TIMEOUT_MS = 40_000  # of what a test does not wait for to pass


def tree(parts: list[Any]) -> Any:
    """The sum in the order that is promised."""
    if len(parts) == 1:
        return parts[0]
    low = 1 << (len(parts) - 1).bit_length() - 1
    return tree(parts[:low]) + tree(parts[low:])


def drawn(rank: int, *shape: int) -> Any:
    """Numbers that every rank knows of every other."""
    return np.random.default_rng(rank).standard_normal(shape).astype("float32")


def same(found: Tensor, wanted: Any) -> None:
    """Equal to the last bit."""
    np.testing.assert_array_equal(found.numpy(), wanted)


def collectives(world: Group) -> None:
    """Every collective, against NumPy."""
    me, size = world.rank, world.size
    everyone = range(size)
    ways = ("direct", "halving") if size & (size - 1) == 0 else ("direct",)
    for length in (1, 5, 1000):
        for way in ways:
            x = Tensor(drawn(me, length))
            same(distributed.all_reduce(x, way=way), tree([drawn(r, length) for r in everyone]))
            same(x, drawn(me, length))
    same(
        distributed.all_reduce(Tensor(drawn(me, 9)) * 2, "max"),
        np.max([drawn(r, 9) * 2 for r in everyone], 0),
    )
    same(distributed.all_reduce(hcq.tensor([me, -me]), "min"), [0, 1 - size])
    mean = distributed.all_reduce(Tensor(drawn(me, 9)), "mean")
    same(mean, tree([drawn(r, 9) for r in everyone]) / np.float32(size))
    short = distributed.all_reduce(Tensor([1.0 + me, 0.5]).cast(dtypes.bfloat16))
    same(short.float(), [sum(1.0 + r for r in everyone), 0.5 * size])
    x = Tensor(drawn(me, 3, 4))
    same(distributed.all_gather(x), np.concatenate([drawn(r, 3, 4) for r in everyone]))
    same(distributed.all_gather(x, dim=1), np.concatenate([drawn(r, 3, 4) for r in everyone], 1))
    total = tree([drawn(r, 2 * size, 3) for r in everyone])
    same(distributed.reduce_scatter(Tensor(drawn(me, 2 * size, 3))), total[2 * me : 2 * me + 2])
    for source in everyone:
        same(distributed.broadcast(Tensor(drawn(me, 7)), source), drawn(source, 7))
    if size > 1:
        sending = distributed.start_send(x, (me + 1) % size)
        same(distributed.receive(Tensor.zeros(3, 4), (me - 1) % size), drawn((me - 1) % size, 3, 4))
        sending.wait()
    halves = world.split(me % 2, f"half {me % 2}")
    same(
        distributed.all_reduce(Tensor([float(me)]), group=halves),
        [sum(r for r in everyone if r % 2 == me % 2)],
    )
    weight = Tensor(drawn(me, 3), requires_grad=True)
    for refused in (weight, weight * 2):
        try:
            distributed.all_reduce(refused)
        except UsageError as error:
            assert "detach" in str(error)
        else:
            raise AssertionError("a gradient was cut without a word")
    distributed.barrier()
    print(f"rank {me} is right")


def pieces(world: Group) -> None:
    """Tensors of more than one staging buffer, on a device whose memory is copied to the host."""
    me, everyone = world.rank, range(world.size)
    count = 2_500_001
    same(distributed.all_reduce(Tensor(drawn(me, count))), tree([drawn(r, count) for r in everyone]))
    same(
        distributed.all_gather(Tensor(drawn(me, count))), np.concatenate([drawn(r, count) for r in everyone])
    )
    total = tree([drawn(r, world.size * count) for r in everyone])
    found = distributed.reduce_scatter(Tensor(drawn(me, world.size * count)))
    same(found, total[me * count : (me + 1) * count])
    same(distributed.broadcast(Tensor(drawn(me, count)), 1), drawn(1, count))
    sending = distributed.start_send(Tensor(drawn(me, count)), 1 - me)
    same(distributed.receive(Tensor.zeros(count), 1 - me), drawn(1 - me, count))
    sending.wait()
    print(f"rank {me} is right")


class Net(nn.Module):
    """Small, and with parameters of several sizes."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def train(
    world: Group, path: str, until: str, kept_at: str = "", killed_at: str = "", sharded: str = ""
) -> None:
    """Train on a global batch of 8 in four shards, from the checkpoint if there is one; print what came out."""
    Tensor.manual_seed(3 + world.rank)  # rank 0's weights count
    net = Net()
    training = distributed.DataParallel(
        net,
        lambda x, y: net(x).mse_loss(y),
        lambda params: nn.optim.AdamW(params, lr=0.01),
        bucket_bytes=100,
        shards=4 // world.size,
        is_sharded=bool(sharded),
    )
    step = 0
    if Path(path).exists():
        state, step = distributed.load_checkpoint(path)
        training.load_state_dict(state)
    each = 8 // world.size
    for number in range(step, int(until)):
        x, y = (
            drawn(number, 8, 6)[world.rank * each :][:each],
            drawn(-1 - number & 255, 8, 3)[world.rank * each :][:each],
        )
        if killed_at == str(number) and world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = training.step(Tensor(x), Tensor(y))
        if kept_at == str(number + 1):
            distributed.save_checkpoint(training.state_dict(), path, number + 1)
    state = training.state_dict()
    digest = hashlib.sha256(b"".join(name.encode() + state[name].numpy().tobytes() for name in sorted(state)))
    if world.rank == 0:
        print(f"loss {loss.item().hex()} state {digest.hexdigest()}")


def divided(world: Group) -> None:
    """Layers divided over ranks and stages behind each other compute what a whole model does."""
    Tensor.manual_seed(0)
    up, down = nn.Linear(4, 8), nn.Linear(8, 4)
    column, row = distributed.ColumnLinear(up, world), distributed.RowLinear(down, world)
    x = Tensor(drawn(0, 5, 4), requires_grad=True)
    whole = down(up(x).tanh()).square().sum()
    whole.backward()
    assert x.grad is not None and up.weight.grad is not None
    wanted, slope = x.grad.numpy(), up.weight.grad.numpy()
    x.grad = None
    parted = row(column(x).tanh()).square().sum()
    parted.backward()
    np.testing.assert_allclose(parted.item(), whole.item(), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)
    rows = slice(world.rank * 4, world.rank * 4 + 4)
    np.testing.assert_allclose(column.weight.grad.numpy(), slope[rows], rtol=1e-4, atol=1e-5)
    same(distributed.whole_state(column)["weight"], up.weight.numpy())
    for schedule in ("1f1b", "gpipe"):
        stages = nn.Linear(4, 6), nn.Linear(6, 2)
        wanted_loss = stages[1](stages[0](x.detach()))[:4].mse_loss(Tensor(drawn(9, 4, 2))).item()
        pipeline = distributed.Pipeline(
            stages[world.rank],
            lambda y, t: y.mse_loss(t),
            lambda params: nn.optim.SGD(params, lr=0.1),
            micro_batches=2,
            schedule=schedule,
        )
        losses = [pipeline.step(Tensor(drawn(0, 5, 4)[:4]), Tensor(drawn(9, 4, 2))).item() for _ in range(5)]
        np.testing.assert_allclose(losses[0], wanted_loss, rtol=1e-5)
        assert losses[-1] < losses[0]
    print(f"rank {world.rank} is right")


def transformer(world: Group, kind: str) -> None:
    """The losses of a small transformer, divided this way."""
    sizes = distributed.Sizes(layers=2, width=32, tokens=16, heads=2, vocabulary=32)
    Tensor.manual_seed(1)

    def adam(params: list[Tensor]) -> nn.optim.Optimizer:
        return nn.optim.AdamW(params, lr=1e-3)

    if kind == "pipeline":
        stage = distributed.Transformer(sizes, stage=(world.rank, world.size))
        pipeline = distributed.Pipeline(stage, distributed.loss_of, adam, micro_batches=4)
        step = pipeline.step
    else:
        model = distributed.Transformer(sizes, world)
        optimizer = adam(list(model.parameters()))

        def step(x: Tensor, y: Tensor) -> Tensor:  # type: ignore[misc]
            optimizer.zero_grad()
            loss = distributed.loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    for number in range(3):
        text = np.random.default_rng(number).integers(0, 32, (8, 17))
        loss = step(Tensor(text[:, :-1].copy()), Tensor(text[:, 1:].copy())).item()
        if world.rank == 0:
            print(f"loss {loss:.5f}")


def slow(world: Group) -> None:
    """The last rank does not come, until the others have given up."""
    distributed.barrier()
    if world.rank == world.size - 1:
        while world.job.rows[0].state == RUNNING:
            time.sleep(0.05)
    distributed.barrier(timeout_ms=300)


def cut(world: Group, device: str, folder: str) -> None:
    """Rank 1 takes its own link down in the middle; each rank writes down what it then says, and how long it took."""
    for _ in range(3):
        distributed.all_reduce(Tensor([1.0]))
    (Path(folder) / f"clock{world.rank}").write_text(repr(ranks.here()))
    if world.rank == 1:
        subprocess.run(["ip", "link", "set", device, "down"], check=True)
    began = time.monotonic()
    try:
        for _ in range(3):
            distributed.all_reduce(Tensor(drawn(0, 100_000)), timeout_ms=3000)
    except HcqError as error:
        partial = Path(folder) / f"partial{world.rank}"
        partial.write_text(f"{time.monotonic() - began} {type(error).__name__} {error}")
        partial.rename(Path(folder) / f"said{world.rank}")
        raise


def unlike(world: Group, what: str) -> None:
    """Rank 0 does something else than the others, who agree; each says what it was told, or what it was handed."""
    is_other = world.rank == 0
    x = Tensor.ones(6 * world.size)
    try:
        if what == "shape":
            distributed.all_reduce(x.reshape(2, -1) if is_other else x)
        elif what == "length":
            distributed.all_gather(x[1:] if is_other else x)
        elif what == "format":
            distributed.all_reduce(x.cast(dtypes.float16 if is_other else dtypes.bfloat16))
        elif what == "mean":
            distributed.all_reduce(x, "mean" if is_other else "sum")
        elif what == "least":
            distributed.reduce_scatter(x, "min" if is_other else "max")
        elif what == "way":
            distributed.all_reduce(x, way="halving" if is_other else "direct")
        elif what == "root":
            distributed.broadcast(x, 1 if is_other else 0)
        elif what == "call":
            distributed.all_gather(x) if is_other else distributed.all_reduce(x)
        elif what == "order":
            for each in (0, 1) if is_other else (1, 0):
                distributed.broadcast(x, 0) if each else distributed.all_reduce(x)
        elif what == "barrier":
            distributed.barrier() if is_other else world.split(0, "all")
        elif what == "close":
            distributed.close() if is_other else distributed.barrier()
        elif what == "message":
            if is_other:
                distributed.send(Tensor.ones(1 << 20), 1)
            elif world.rank == 1:
                distributed.receive(Tensor.ones(1 << 19), 0)
        print(f"rank {world.rank} was handed numbers")
    except UsageError as error:
        print(f"rank {world.rank} was refused: {error}", flush=True)
        end = time.monotonic() + 5  # whoever ends takes the others along
        while time.monotonic() < end and any(row.state == RUNNING for row in world.job.rows):
            time.sleep(0.05)
        time.sleep(0.5)  # the other one's words are behind its state
        os._exit(1)


def ahead(world: Group) -> None:
    """The source of broadcasts waits for nobody: what it did before is known when the others come."""
    x = Tensor.ones(3)
    if world.rank == 0:
        for _ in range(4):
            distributed.broadcast(x)
        while world.job.rows[1].state == RUNNING:
            time.sleep(0.05)
        return
    time.sleep(0.3)
    distributed.all_reduce(x)


def leave(world: Group, how: str) -> None:
    """The last rank ends while the others wait for it."""
    if world.rank == world.size - 1:
        if how == "exit":
            sys.exit(1)
        if how == "end":
            return
        if how == "error":
            raise ValueError("of the program's own")
        os._exit(3)
    distributed.all_reduce(Tensor([1.0, 2.0]))


def report_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write a traceback in one piece. Python writes it in many, and those of several ranks mix."""
    os.write(2, "".join(traceback.format_exception(kind, error, trace)).encode())


if __name__ == "__main__":
    sys.excepthook = report_at_once
    globals()[sys.argv[1]](distributed.init(TIMEOUT_MS), *sys.argv[2:])
    if sys.argv[1] != "leave":  # which is about programs that do not say so
        distributed.close()
