"""The kernels of ../racing_kernels.py, which are tables of steps, as rows in PTX and in LLVM's language.

In       CASES of racing_kernels.py
Out      `ROWS`
Next     ../racing_kernels.py, row.py
"""

from __future__ import annotations

from tests.hcq.gpu.racing_kernels import CASES, THREADS, Step, llvm_ir, ptx
from tests.hcq.gpu.sanitizer_corpus.row import Row


def _both(wrong: str, right: str) -> str:
    """Two whole texts as one with marks."""
    return "\n".join(
        [*(f"-{line}" for line in wrong.splitlines()), *(f"+{line}" for line in right.splitlines())]
    )


def _ptx(steps: tuple[Step, ...]) -> str:
    return ptx(steps).decode()


ROWS = tuple(
    Row(
        name,
        language,
        "race",
        "shared-race",
        _both(write(case.wrong), write(case.right)),
        block=THREADS,
        grid=2,
    )
    for name, case in CASES.items()
    for language, write in (("whole ptx", _ptx), ("whole llvm", llvm_ir))
)
