"""Train a small transformer on this project's own pages with several processes, over MPI.

In       the pages in docs/, as bytes; flags (--help)
Out      the loss, step by step; how fast it goes; with --checkpoint a file to go on from, with any number of ranks
Changes  the checkpoint; compiled kernels in the cache
Next     docs/distributed.md (how to start it, what happens when a rank fails), docs/scaling.md (what it costs)

    mpirun -n 2 python examples/train_distributed.py
    mpirun -n 4 python examples/train_distributed.py --parallel sharded --checkpoint /tmp/run.safetensors
    mpirun -n 2 python examples/train_distributed.py --parallel pipeline --steps 20
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import HcqError, Tensor, distributed, nn
from hcq.frontend.more.distributed import Group, Sizes

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("data", "sharded", "tensor", "pipeline")
VOCABULARY = 128  # ASCII; everything else is a question mark
Step = Callable[[int], Tensor]


def text() -> Any:
    """The pages, one after the other, as numbers of characters."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    raw = "".join(page.read_text(encoding="utf-8") for page in pages).encode("ascii", "replace")
    return np.frombuffer(raw, np.uint8).astype(np.int64)


class Batches:
    """The batch of each step: the same for any number of ranks."""

    def __init__(self, tokens: int, rows: int):
        self.text, self.tokens, self.rows = text(), tokens, rows

    def get(self, step: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Some rows of a batch, and the characters that follow each of theirs."""
        starts = np.random.default_rng(step).integers(0, len(self.text) - self.tokens - 1, self.rows)[
            first:end
        ]
        rows = np.stack([self.text[start : start + self.tokens + 1] for start in starts])
        return Tensor(rows[:, :-1].copy()), Tensor(rows[:, 1:].copy())


class Run:
    """One way to train: `step` does one, `state` is what a checkpoint holds, `load` takes it."""

    def __init__(self, world: Group, flags: argparse.Namespace):
        self.world, self.flags = world, flags
        self.batches = Batches(flags.tokens, flags.batch)
        self.sizes = Sizes(VOCABULARY, flags.tokens, flags.width, flags.heads, flags.layers)
        Tensor.manual_seed(flags.seed)
        getattr(self, f"make_{'data' if flags.parallel == 'sharded' else flags.parallel}")()

    def adam(self, params: list[Tensor]) -> nn.optim.Optimizer:
        return nn.optim.AdamW(params, lr=self.flags.lr)

    def make_data(self) -> None:
        world, flags = self.world, self.flags
        if flags.batch % flags.shards or flags.shards % world.size:
            sys.exit(
                f"--batch {flags.batch} --shards {flags.shards}: {world.size} ranks must divide the shards, and these "
                "the batch."
            )
        model = distributed.Transformer(self.sizes)
        training = distributed.DataParallel(
            model,
            lambda x, y: distributed.loss_of(model(x), y),
            self.adam,
            shards=flags.shards // world.size,
            is_sharded=flags.parallel == "sharded",
        )
        each = flags.batch // world.size
        self.step: Step = lambda number: training.step(
            *self.batches.get(number, world.rank * each, (world.rank + 1) * each)
        )
        self.state, self.load = training.state_dict, training.load_state_dict

    def make_tensor(self) -> None:
        model = distributed.Transformer(self.sizes, self.world)
        optimizer = self.adam(list(model.parameters()))

        def step(number: int) -> Tensor:
            x, y = self.batches.get(number, 0, self.flags.batch)
            optimizer.zero_grad()
            loss = distributed.loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        self.step = step
        self.state = lambda: distributed.whole_state(model)
        self.load = lambda state: distributed.load_whole_state(model, state)

    def make_pipeline(self) -> None:
        world = self.world
        stage = distributed.Transformer(self.sizes, stage=(world.rank, world.size))
        pipeline = distributed.Pipeline(
            stage,
            distributed.loss_of,
            self.adam,
            micro_batches=self.flags.micro_batches,
            schedule=self.flags.schedule,
        )

        def step(number: int) -> Tensor:
            x, y = self.batches.get(number, 0, self.flags.batch)
            return pipeline.step(x, y)

        self.step = step
        self.state = self.load = None


def parse() -> argparse.Namespace:
    """The command line."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ways = parser.add_argument_group("how the work is divided")
    ways.add_argument(
        "--parallel",
        choices=KINDS,
        default="data",
        help="data: each rank has its rows of a batch (default); sharded: the same, and its part of the optimizer's "
        "state; tensor: its part of every layer; pipeline: some of the layers",
    )
    ways.add_argument(
        "--shards", type=int, default=4, help="data: parts of a batch; the same number, the same bits (4)"
    )
    ways.add_argument("--micro-batches", type=int, default=4, help="pipeline: parts of a batch (4)")
    ways.add_argument(
        "--schedule", choices=("1f1b", "gpipe"), default="1f1b", help="pipeline: which part goes when (1f1b)"
    )
    size = parser.add_argument_group("the model and its training")
    for name, value, what in (
        ("steps", 40, "how many"),
        ("batch", 8, "rows of a batch, those of all ranks"),
        ("tokens", 64, "characters of a row"),
        ("width", 64, "numbers for each character"),
        ("heads", 4, "of attention"),
        ("layers", 4, "blocks"),
        ("seed", 0, "of the first weights"),
    ):
        size.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")
    size.add_argument("--lr", type=float, default=3e-3, help="learning rate (0.003)")
    keep = parser.add_argument_group("going on, and failing")
    keep.add_argument(
        "--checkpoint", metavar="FILE", help="write it every --every steps; go on from it if it is there"
    )
    keep.add_argument("--every", type=int, default=10, help="steps between checkpoints (10)")
    keep.add_argument(
        "--timeout-ms", type=float, help="how long a rank waits for others (HCQ_TIMEOUT_MS, or 30000)"
    )
    keep.add_argument(
        "--kill", metavar="RANK@STEP", help="let a rank end itself by kill -9, to see what the others say"
    )
    return parser.parse_args()


def train(world: Group, flags: argparse.Namespace) -> None:
    """All steps that are left."""
    run = Run(world, flags)
    first = 0
    if flags.checkpoint and run.load is None:
        sys.exit("--parallel pipeline: each rank has its own stage; checkpoints are for the other ways.")
    if flags.checkpoint and Path(flags.checkpoint).exists():
        state, first = distributed.load_checkpoint(flags.checkpoint)
        run.load(state)
    if world.rank == 0:
        done = f", from step {first}" if first else ""
        print(
            f"{world.size} ranks, {flags.parallel}: {flags.steps} steps of {flags.batch} x {flags.tokens}{done}",
            flush=True,
        )
    times = []
    for number in range(first, flags.steps):
        if flags.kill == f"{world.rank}@{number}":
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        loss = run.step(number).item()
        times.append(time.perf_counter() - began)
        if world.rank == 0 and (number % 5 == 0 or number == flags.steps - 1):
            print(f"step {number:4d}  loss {loss:.4f}  {1e3 * times[-1]:8.1f} ms", flush=True)
        if flags.checkpoint and (number + 1) % flags.every == 0:
            distributed.save_checkpoint(run.state(), flags.checkpoint, number + 1)
    if world.rank == 0 and len(times) > 3:
        middle = statistics.median(times[3:])
        print(
            f"a step takes {1e3 * middle:.1f} ms: {flags.batch * flags.tokens / middle:,.0f} characters a second"
        )


def main() -> int:
    flags = parse()
    try:
        train(distributed.init(flags.timeout_ms), flags)
        distributed.close()
    except HcqError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
