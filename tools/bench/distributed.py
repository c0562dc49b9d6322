"""Messages, collectives and training of several ranks, measured: a step beside the same step of one rank alone.

In       flags (--help); MPI (make mpi)
Out      a table for each: latency and bandwidth, all-reduce beside the model of docs/scaling.md, weak scaling
Changes  compiled kernels in the cache
Next     docs/scaling.md (what the figures are for), docs/distributed.md

    python tools/bench/distributed.py             # messages, collectives, then the efficiency of two ranks
    python tools/bench/distributed.py step        # the efficiency alone: one rank on one core, and one on each core

Weak scaling: a rank has the same rows to do, alone or among others. Runs of one rank and of several take turns, each
rank pinned to a core of its own with one thread for the device; the median step of each run counts, and the median of
the runs. Processor time is what the rank itself used: it says what ranks cost where other programs are busy, too.
Messages and sums are the fastest of many: they are compared with a model of the machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if (ROOT / "setup.py").is_file():
    sys.path.insert(0, str(ROOT))  # a checkout works uninstalled

KINDS = ("message", "all_reduce", "step")
SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 32 << 20)
WARM = 4
Messages = list[tuple[int, float]]  # bytes, seconds


def main() -> int:
    """Run what was asked for, and print it. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="\n".join((__doc__ or "").splitlines()[6:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (all)")
    parser.add_argument("--ranks", type=int, default=2, help="how many, each on a core of its own (2)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, taking turns (3)")
    parser.add_argument("--steps", type=int, default=12, help="measured steps of a run (12)")
    parser.add_argument("--rows", type=int, default=8, help="rows of a rank's batch (8)")
    parser.add_argument("--width", type=int, default=256, help="of the transformer (256)")
    parser.add_argument("--layers", type=int, default=4, help="of the transformer (4)")
    parser.add_argument("--tokens", type=int, default=128, help="of a row (128)")
    parser.add_argument("--sharded", action="store_true", help="the optimizer's state is divided")
    parser.add_argument("--as-rank", choices=KINDS, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.as_rank:
        return _rank(flags)
    unknown = sorted(set(flags.kinds) - set(KINDS))
    if unknown:
        print(f"distributed: unknown {', '.join(unknown)}; there are {', '.join(KINDS)}.", file=sys.stderr)
        return 2
    cores = sorted(os.sched_getaffinity(0))
    if flags.ranks > len(cores):
        print(
            f"distributed: {flags.ranks} ranks need as many cores, and {len(cores)} may be used. Give --ranks.",
            file=sys.stderr,
        )
        return 2
    link: Messages = []
    for kind in flags.kinds or KINDS:
        if kind == "message":
            link = _show_messages(_run(flags, kind, 2, cores))
        elif kind == "all_reduce":
            _show_sums(_run(flags, kind, flags.ranks, cores), flags.ranks, link)
        else:
            _show_steps(flags, cores)
    return 0


def _run(flags: argparse.Namespace, kind: str, ranks: int, cores: list[int]) -> Any:
    """What rank 0 of a run reports."""
    mpirun = shutil.which(
        "mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    if mpirun is None:
        sys.exit("distributed: no mpirun here. make mpi, or pip install 'hcq[mpi]'.")
    command: list[str] = [mpirun]
    options = [f"--{name}={getattr(flags, name)}" for name in ("steps", "rows", "width", "layers", "tokens")]
    options += ["--sharded"] if flags.sharded else []
    for rank in range(ranks):  # one block for each, as launchers differ in how they name a core
        command += [":"] if rank else []
        command += ["-n", "1", "taskset", "-c", str(cores[rank % len(cores)]), sys.executable, __file__]
        command += ["--as-rank", kind, *options]
    env = {**os.environ, "HCQ_THREADS": "1", "HCQ_COMPILERS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"distributed: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _show_messages(found: Messages) -> Messages:
    print("two ranks send to each other at the same time")
    for size, seconds in found:
        print(f"  {size:>12,} bytes  {1e6 * seconds:10.1f} us  {size / seconds / 1e9:7.2f} GB/s each way")
    return found


def _show_sums(found: dict[str, Any], ranks: int, link: Messages) -> None:
    print(f"all_reduce of {ranks} ranks; the host adds up {found['adds'] / 1e9:.2f} GB/s")
    fixed = found["times"][0][1]
    for size, seconds in found["times"]:
        line = f"  {size:>12,} bytes  {1e6 * seconds:10.1f} us"
        if link and ranks == 2:
            part = size / ranks
            model = fixed + 2 * _between(link, part) + part / found["adds"]
            line += f"   model {1e6 * model:10.1f} us  measured / model {seconds / model:5.2f}"
        print(line)


def _between(link: Messages, size: float) -> float:
    """The time of a message of a size between those that were measured."""
    for (low, first), (high, second) in itertools.pairwise(link):
        if size <= high:
            return first + (second - first) * max(0.0, size - low) / (high - low)
    return link[-1][1] * size / link[-1][0]


def _show_steps(flags: argparse.Namespace, cores: list[int]) -> None:
    alone, together, waits = [], [], []
    for _ in range(flags.runs):
        alone.append(_run(flags, "step", 1, cores))
        together.append(_run(flags, "step", flags.ranks, cores))
        waits.append(together[-1]["exchange"])
    one, many = (statistics.median(run["step"] for run in runs) for runs in (alone, together))
    facts = together[0]
    print(
        f"a step of a transformer: {flags.layers} layers of {flags.width}, {flags.rows} x {flags.tokens} a rank, "
        f"{facts['parameters']:,} parameters in {facts['buckets']} buckets"
    )
    busy, busier = (statistics.median(run["busy"] for run in runs) for runs in (alone, together))
    at_sums = 1e3 * statistics.median(waits)
    print(f"  one rank, one core          {1e3 * one:9.1f} ms, processor time {1e3 * busy:.1f} ms")
    print(
        f"  {flags.ranks} ranks, a core each        {1e3 * many:9.1f} ms, processor time {1e3 * busier:.1f} ms; "
        f"{at_sums:.1f} ms at sums, waiting included"
    )
    print(f"  efficiency                  {one / many:9.3f}, of processor time {busy / busier:.3f}")


# -- what a rank does ------------------------------------------------------------------------------------------------


def _rank(flags: argparse.Namespace) -> int:
    from hcq import distributed

    world = distributed.init()
    found = {"message": _messages, "all_reduce": _sums, "step": _steps}[flags.as_rank](world, flags)
    distributed.close()
    if world.rank == 0:
        print(json.dumps(found))
    return 0


def _messages(world: Any, flags: argparse.Namespace) -> Messages:
    import numpy as np

    found = []
    for size in SIZES:
        mine, theirs = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        times = []
        for _ in range(40):
            with world.operation("send", peer=1 - world.rank) as op:
                op.wait([op.send(mine[:1], 1 - world.rank), op.receive(theirs[:1], 1 - world.rank)])
                began = time.perf_counter()
                op.wait([op.receive(theirs, 1 - world.rank), op.send(mine, 1 - world.rank)])
                times.append(time.perf_counter() - began)
        found.append((size, min(times)))
    return found


def _sums(world: Any, flags: argparse.Namespace) -> dict[str, Any]:
    import numpy as np

    from hcq import Tensor, distributed

    found = []
    for size in SIZES:
        x = Tensor(np.ones(max(2, size // 4), np.float32)).realize()
        times = []
        for _ in range(30):
            distributed.barrier()
            began = time.perf_counter()
            distributed.all_reduce(x)
            times.append(time.perf_counter() - began)
        found.append((size, min(times)))
    a, b = np.ones(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    times = []
    for _ in range(12):
        began = time.perf_counter()
        np.add(a, b, out=a)
        times.append(time.perf_counter() - began)
    return {"times": found, "adds": a.nbytes / min(times)}


def _steps(world: Any, flags: argparse.Namespace) -> dict[str, Any]:
    import numpy as np

    from hcq import Tensor, distributed, nn

    sizes = distributed.Sizes(96, flags.tokens, flags.width, max(1, flags.width // 32), flags.layers)
    model = distributed.Transformer(sizes)
    training = distributed.DataParallel(
        model,
        lambda x, y: distributed.loss_of(model(x), y),
        lambda params: nn.optim.AdamW(params, lr=1e-3),
        is_sharded=flags.sharded,
    )
    text = np.random.default_rng(world.rank).integers(0, 96, (flags.rows, flags.tokens + 1))
    x, y = Tensor(text[:, :-1].copy()), Tensor(text[:, 1:].copy())
    times, busy, exchanges = [], [], []
    for number in range(WARM + flags.steps):
        before = training.exchange_ns
        began, used = time.perf_counter(), time.process_time()
        training.step(x, y).item()
        if number >= WARM:
            times.append(time.perf_counter() - began)
            busy.append(time.process_time() - used)
            exchanges.append((training.exchange_ns - before) / 1e9)
    return {
        "step": statistics.median(times),
        "busy": statistics.median(busy),
        "exchange": statistics.median(exchanges),
        "parameters": sum(parameter.numel() for parameter in training.params),
        "buckets": len(training.layout.lengths),
    }


if __name__ == "__main__":
    sys.exit(main())
