"""What work costs on emulated GPUs: this revision alone, or beside another one in the same run, as ratios.

In       cases as WORK or WORK@GPU, with * (default: digits@*); another revision or folder to compare with (--beside);
         a switch that this one is run with (--with)
Out      a table: the median of each case in seconds, those of the other revision, and their ratio with its quartiles
Changes  a checkout of the other revision in a temporary folder, which goes at the end
Next     hcq/emu (what is measured), docs/performance.md (figures of a run)

Each revision runs in a process of its own, started from its own checkout with the work that stands here. They take
turns run by run, so that a slow moment of the machine falls on both. What counts is the time of processors, which is
also right on a busy machine: an emulated GPU is one thread that computes.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GPUS = [f"amd:{arch}" for arch in ("gfx1100", "gfx1201", "gfx90a", "gfx942")]
GPUS += [f"nv:sm_{number}" for number in (80, 86, 89, 90, 100, 120)]
GPUS += ["metal:m3"]
COPY_BYTES = 192 << 20
THREADS = 65536
PTX = """.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 cell) { .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .f32 %f<4>; .reg .pred %p;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 256, %r0; ld.param.u64 %d0, [cell];
"""
MSL = """kernel void k(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float b = (float)i * 1.9073486e-06f; float a = b;
  for (int n = 0; n < 1000; ++n) {
    a = a * b + b; a = a * b + b; a = a * b + b; a = a * b + b;
    a = a * b + b; a = a * b + b; a = a * b + b; a = a * b + b;
  }
  out[i] = a;
}
"""
FMA = "fma.rn.f32 %f1, %f1, %f0, %f0; " * 8
OPERATIONS = ("matmul", "matmul-512", "half-512", "elementwise", "fma-chain", "sum", "softmax", "sort")
LARGE = ("elementwise-16M", "sum-16M", "softmax-4096", "sort-256k")  # the same, where launches cost little
CHAIN = 128  # multiply-adds of each element
KERNELS = {
    "atomic-exch": "atom.global.exch.b32 %r2, [%d0], %r0; xor.b32 %r2, %r2, %r0; st.global.u32 [%d0+4], %r2;",
    "atomic-float": "cvt.rn.f32.u32 %f0, %r0; red.global.add.f32 [%d0], %f0;",
    "cas-loop": "ld.global.u32 %r2, [%d0]; A: add.u32 %r3, %r2, 3; atom.global.cas.b32 %r4, [%d0], %r2, %r3;"
    " setp.ne.u32 %p, %r4, %r2; mov.u32 %r2, %r4; @%p bra A;",
    "fma-loop": f"cvt.rn.f32.u32 %f0, %r0; mul.f32 %f0, %f0, 0f36000000; mov.f32 %f1, %f0; mov.u32 %r2, 0; A: {FMA}"
    " add.u32 %r2, %r2, 1; setp.ne.u32 %p, %r2, 1000; @%p bra A; st.global.f32 [%d0], %f1;",
    "spin-lock": "shr.u32 %r5, %r0, 8; and.b32 %r6, %r0, 255; setp.ne.u32 %p, %r6, 0; @%p ret;"
    " A: atom.global.cas.b32 %r4, [%d0], 0, 1; setp.ne.u32 %p, %r4, 0; @%p bra A;"
    " ld.volatile.global.u32 %r2, [%d0+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%d0+4], %r2;"
    " atom.global.exch.b32 %r7, [%d0], 0;",
}


# ------------------------------------------------------------ the work, in the process of a revision


def digits() -> Callable[[], object]:
    """A training step of the demo's network, recorded and replayed."""
    import numpy as np

    import hcq
    from hcq import Tensor, jit, nn

    conv1, conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
    linear = nn.Linear(64 * 4 * 4, 10)
    parameters = [*conv1.parameters(), *conv2.parameters(), *linear.parameters()]
    optimizer = nn.optim.Adam(parameters, lr=0.01)
    rng = np.random.default_rng(0)
    images, labels = rng.random((64, 1, 8, 8), np.float32), rng.integers(0, 10, 64)

    @jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        hidden = conv2(conv1(x).relu()).relu().max_pool2d(2)
        loss = linear(hidden.flatten(1)).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss.realize()

    device = hcq.open(os.environ["HCQ_DEVICE"])

    def run() -> None:
        step(Tensor(images), Tensor(labels))
        device.synchronize()

    for _ in range(3):  # recording
        run()
    return run


def tensors(what: str) -> Callable[[], object]:
    """One operation of the tensor layer, realized."""
    import numpy as np

    import hcq
    from hcq import Tensor

    rng = np.random.default_rng(0)
    square = Tensor(rng.random((128, 128), np.float32)).realize()
    long = Tensor(rng.random(1 << 20, np.float32)).realize()
    wide = Tensor(rng.random((512, 512), np.float32)).realize() if what == "matmul-512" else square
    half = Tensor(rng.random((512, 512)).astype(np.float16)).realize() if what == "half-512" else square
    many = 1 << 18 if what == "sort-256k" else 4096
    keys = Tensor(rng.integers(0, 1 << 30, many).astype(np.int32)).realize() if "sort" in what else square
    longer = Tensor(rng.random(1 << 24, np.float32)).realize() if "16M" in what else square
    rows = Tensor(rng.random((4096, 1024), np.float32)).realize() if what == "softmax-4096" else square
    work: dict[str, Callable[[], Any]] = {
        "matmul": lambda: square @ square,
        "matmul-512": lambda: wide @ wide,
        "half-512": lambda: half @ half,  # by matrix instructions
        "fma-chain": lambda: functools.reduce(lambda x, _: x * 0.5 + 1.0, range(CHAIN), long),
        "sort": lambda: keys.sort()[0],
        "elementwise": lambda: (long * 2.0 + 1.0).relu(),
        "sum": lambda: long.sum(),
        "softmax": lambda: square.softmax(1),
        "elementwise-16M": lambda: (longer * 2.0 + 1.0).relu(),
        "sum-16M": lambda: longer.sum(),
        "softmax-4096": lambda: rows.softmax(1),  # of 1024 numbers each
        "sort-256k": lambda: keys.sort()[0],
    }

    device = hcq.open(os.environ["HCQ_DEVICE"])

    def run() -> None:
        work[what]().realize()
        device.synchronize()

    run()
    return run


def copy() -> Callable[[], object]:
    """192 MiB from host memory to the GPU's."""
    import hcq

    device = hcq.open(os.environ["HCQ_DEVICE"])
    buffer, data = device.alloc(COPY_BYTES, "to"), bytearray(COPY_BYTES)
    source = device.alloc(COPY_BYTES, "from")

    def run() -> None:
        source.write(data)
        device.queue().copy(buffer, source, COPY_BYTES).submit().wait()

    run()
    return run


def kernel_of(body: str) -> Callable[[], object]:
    """A kernel of 64k threads, by itself; those with atomics are all at one word."""
    import numpy as np

    from hcq.emu.nv.shader.memory import AddressSpace
    from hcq.emu.nv.shader.run import Kernel

    kernel = Kernel(PTX + body + " ret; }", "k")

    def run() -> None:
        memory = AddressSpace()
        memory.map(0x10000, np.zeros(64, np.uint8))
        kernel.run((THREADS // 256, 1, 1), (256, 1, 1), memory, (0x10000).to_bytes(8, "little"))

    return run


def metal_loop() -> Callable[[], object]:
    """The FMA loop of 64k threads in MSL: each product and each sum is rounded."""
    import numpy as np

    from hcq.emu.metal.shader.parser import parse
    from hcq.emu.metal.shader.program import Program

    source = parse(MSL)
    program, out = (
        Program(source, source.kernels["k"], os.environ.get("MSL_WAY", "")),
        np.zeros(4 * THREADS, np.uint8),
    )

    def run() -> None:
        program.run((THREADS // 256, 1, 1), (256, 1, 1), {0: out})

    run()
    return run


WORK: dict[str, Callable[[], Callable[[], object]]] = {
    "digits": digits,
    **{name: functools.partial(tensors, name) for name in (*OPERATIONS, *LARGE)},
    "copy-192M": copy,
    "msl-fma-loop": metal_loop,
    **{name: functools.partial(kernel_of, body) for name, body in KERNELS.items()},
}

CORES = [*KERNELS, "msl-fma-loop"]  # a shader core alone


def worker(work: str) -> int:
    """Run the work once for every line that comes in, and answer with the seconds of processors that it took."""
    run = WORK[work]()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)
    return 0


# ------------------------------------------------------------ two revisions in turns


class Revision:
    """A process that does one case with the package of a checkout."""

    def __init__(self, folder: Path, case: str, switch: str = "") -> None:
        work, _, gpu = case.partition("@")
        environment = {**os.environ, "PYTHONPATH": str(folder), "HCQ_TIMEOUT_MS": "1000000"}
        environment |= dict([switch.split("=", 1)]) if switch else {}
        environment |= {"HCQ_EMULATE": gpu, "HCQ_DEVICE": gpu.partition(":")[0].upper()} if gpu else {}
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--worker", work]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer()

    def answer(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}")  # type: ignore[arg-type]
        return line

    def seconds(self) -> float:
        """What one run takes now."""
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def checkout(beside: str) -> Iterator[Path]:
    """A folder with the other revision; a folder stands for itself."""
    if Path(beside).is_dir():
        yield Path(beside).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="hcq-beside-") as folder:
        archive = subprocess.run(["git", "-C", ROOT, "archive", beside], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def measure(case: str, folders: list[Path], rounds: int, switch: str) -> str:
    """A line of the table."""
    revisions = [
        Revision(folder, case, switch if not number else "") for number, folder in enumerate(folders)
    ]
    times: list[list[float]] = [[] for _ in revisions]
    for number in range(rounds):
        order = list(enumerate(revisions))
        for which, revision in order if number % 2 else reversed(order):
            times[which].append(revision.seconds())
    for revision in revisions:
        revision.end()
    middle = [statistics.median(series) for series in times]
    line = f"{case:24} {middle[0]:9.4f}"
    if len(times) == 2:
        ratios = sorted(here / there for here, there in zip(*times))
        low, ratio, high = statistics.quantiles(ratios, n=4) if rounds > 1 else ratios * 3
        line += f" {middle[1]:9.4f}   {ratio:.3g}x  ({low:.3g} to {high:.3g})"
    return line


def cases(patterns: list[str]) -> list[str]:
    """What the patterns name: work on a GPU, or of a shader core alone."""
    every = [f"{work}@{gpu}" for work in WORK if work not in CORES for gpu in GPUS] + CORES
    return [case for case in every if any(fnmatch.fnmatch(case, pattern) for pattern in patterns)]


def main(argv: list[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="What work costs on emulated GPUs.")
    parser.add_argument("cases", nargs="*", default=["digits@*"], help=f"of {', '.join(WORK)}, @ and a GPU")
    parser.add_argument("--beside", help="another revision, or a folder with one")
    parser.add_argument(
        "--with", dest="switch", default="", help="NAME=VALUE: a switch, for this revision alone"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each is run (default 5)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        return worker(options.worker)
    chosen = cases(options.cases)
    if not chosen or options.rounds < 1:
        parser.error("no such case, or no rounds")
    with contextlib.ExitStack() as stack:
        folders = [ROOT] + ([stack.enter_context(checkout(options.beside))] if options.beside else [])
        title = f"{'seconds, median of ' + str(options.rounds):24} {'here':>9}"
        print(title + (f" {options.beside[:9]:>9}   here / there (quartiles)" if options.beside else ""))
        for case in chosen:
            print(measure(case, folders, options.rounds, options.switch), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
