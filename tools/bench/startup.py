"""What starting costs: fresh processes, timed from outside, with caches filled or empty.

In       a library's name, the environment that compare.py gives its workers
Out      seconds of one fresh process (or of the first call inside it)
Next     compare.py (which lets the libraries take turns), cases/training.py (the step whose first call is timed)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

LIMIT_SECONDS = 180


class Startup:
    """One line of the table whose every run is a process of its own."""

    unit = "s"
    name: ClassVar[str]
    about: ClassVar[str]
    programs: ClassVar[Mapping[str, str]] = {}  # library -> what `python -c` runs; the whole process is timed
    empty_cache: ClassVar[bool] = False

    def __init__(self) -> None:
        self.filled = tempfile.TemporaryDirectory(prefix="hcq-bench-cache-")

    def libraries(self) -> tuple[str, ...]:
        """What it is measured for."""
        return tuple(self.programs)

    def command(self, library: str) -> list[str]:
        """What is run for a library."""
        return [sys.executable, "-c", self.programs[library]]

    def prepare(self, library: str, environment: Mapping[str, str]) -> None:
        """One run that is not counted: it fills the caches, and says at once when something does not work."""
        self.once(library, environment)

    def once(self, library: str, environment: Mapping[str, str]) -> float:
        """Seconds of one run. Raises RuntimeError with the last line the process wrote when it fails."""
        with tempfile.TemporaryDirectory(prefix="hcq-bench-empty-") as empty:
            cache = Path(empty if self.empty_cache else self.filled.name)
            caches = {"HCQ_CACHE_DIR": str(cache / "hcq"), "CACHEDB": str(cache / "tinygrad.db")}
            before = time.perf_counter()
            done = subprocess.run(
                self.command(library),
                env={**environment, **caches},
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            seconds = time.perf_counter() - before
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip() and not line[0].isspace()]
            raise RuntimeError(said[-1] if said else f"exit status {done.returncode}")
        return self.seconds(done.stdout, seconds)

    def seconds(self, output: str, whole_process: float) -> float:
        """The figure: from what the process printed, or the time of the whole process."""
        return whole_process


class Import(Startup):
    name = "import"
    about = "process start to exit of `from hcq import Tensor` and its like"
    programs: ClassVar[Mapping[str, str]] = {
        "hcq": "from hcq import Tensor",
        "numpy": "import numpy",
        "torch": "import torch",
        "tinygrad": "from tinygrad import Tensor",
    }


class FirstResult(Startup):
    name = "first-result"
    about = "process start to exit of printing (hcq.tensor([1, 2, 3]) + 1).numpy(), caches filled"
    programs: ClassVar[Mapping[str, str]] = {
        "hcq": "import hcq; print((hcq.tensor([1, 2, 3]) + 1).numpy())",
        "numpy": "import numpy; print(numpy.array([1, 2, 3]) + 1)",
        "torch": "import torch; print((torch.tensor([1, 2, 3]) + 1).numpy())",
        "tinygrad": "from tinygrad import Tensor; print((Tensor([1, 2, 3]) + 1).numpy())",
    }


class FirstResultCold(FirstResult):
    name = "first-result-cold"
    about = "the same with empty caches"
    empty_cache = True


class CompileWarm(Startup):
    name = "compile-warm"
    about = "first call of the demo's training step in a fresh process, caches filled"

    def libraries(self) -> tuple[str, ...]:
        return ("hcq", "torch", "tinygrad")

    def command(self, library: str) -> list[str]:
        return [sys.executable, "-m", "hcq.tools.bench.cases.training", library]

    def seconds(self, output: str, whole_process: float) -> float:
        return float(json.loads(output.splitlines()[-1])["first"])


class CompileCold(CompileWarm):
    name = "compile-cold"
    about = "first call of the demo's training step in a fresh process, caches empty"
    empty_cache = True


STARTUP_CASES: dict[str, type[Startup]] = {
    case.name: case for case in (Import, FirstResult, FirstResultCold, CompileCold, CompileWarm)
}
