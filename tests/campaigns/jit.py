"""jit: random programs around a recorded function, against the same programs without jit.

In       a case
Out      right; refused, when jit raised a UsageError of its own and everything before was right; Wrong with the program
Changes  the seed of the random numbers
Next     _jit_programs.py (the programs), frontend/jit/ (what is attacked)

A program is Python text: tensors, a function, calls of it, and what may come between them. It is run twice, with jit
and with a `jit` that does nothing, and everything that can be seen is compared wherever the program looks.
"""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq import Tensor, jit, nn
from hcq.errors import UsageError
from hcq.frontend.grad.gradient import no_grad
from tests.campaigns._jit_programs import counting, draw, text
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

SHRINK_SECONDS = 90
ONLY = "only with jit"  # an error that is no refusal


class Seen:
    """What a program looked at, and how it ended."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Any]] = []
        self.error: BaseException | None = None

    def look(self, **tensors: Any) -> None:
        for name, tensor in tensors.items():
            self._look(name, tensor)

    def _look(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.values.append((name, value.numpy()))
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                self._look(f"{name}[{place}]", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._look(f"{name}[{key!r}]", item)
        else:
            self.values.append((name, value))


def in_thread(work: Callable[[], Any]) -> Any:
    """The result of a call that another thread makes."""
    found: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def execute(program: str, wrap: Callable[[Any], Any]) -> Seen:
    """Run a program with this `jit`."""
    seen = Seen()
    Tensor.manual_seed(0)
    names = {
        "Tensor": Tensor,
        "nn": nn,
        "np": np,
        "no_grad": no_grad,
        "jit": wrap,
        "look": seen.look,
        "in_thread": in_thread,
        "reset": lambda f: f.reset() if hasattr(f, "reset") else None,
    }
    try:
        exec(compile(program, "program", "exec"), names)
        names["program"]()
    except Exception as error:
        seen.error = error
    return seen


def verdict(program: str) -> tuple[str, bool]:
    """What is wrong, or ""; and whether jit refused."""
    eager = execute(program, lambda function: function)
    if eager.error is not None and not isinstance(eager.error, UsageError):
        return "", False  # no program
    recorded = execute(program, jit)
    what = ""
    for (name, want), (same, got) in zip(eager.values, recorded.values):
        if name != same:
            what = f"{same} is seen where {name} is"
        elif isinstance(want, np.ndarray) and isinstance(got, np.ndarray):
            if want.shape != got.shape or want.dtype != got.dtype:
                what = f"{name}: {got.dtype}{got.shape}, without jit {want.dtype}{want.shape}"
            elif not np.allclose(got, want, rtol=1e-3, atol=1e-4, equal_nan=True):
                what = f"{name}: {got.tolist()}, without jit {want.tolist()}"
        elif type(want) is not type(got) or repr(want) != repr(got):
            what = f"{name}: {got!r}, without jit {want!r}"
        if what:
            return what, False
    if recorded.error is not None and eager.error is None:
        if isinstance(recorded.error, UsageError) and str(recorded.error).startswith(("[jit]", "[gradient]")):
            return "", True
        lines = traceback.format_exception(recorded.error)
        return f"{ONLY}: {''.join(lines[-4:])}", False
    if recorded.error is None and eager.error is None and len(eager.values) != len(recorded.values):
        return f"{len(recorded.values)} values seen, without jit {len(eager.values)}", False
    return "", recorded.error is not None


def run(case: Case) -> Outcome:
    """One program."""
    what, refused = verdict(text(draw(case.rng())))
    gc.collect()
    if what:
        raise Wrong(what)
    return Outcome.REFUSED if refused else Outcome.RIGHT


def explain(case: Case) -> str:
    """The program with as few lines as still go wrong."""
    lines = draw(case.rng())
    until = time.monotonic() + SHRINK_SECONDS
    what = verdict(text(lines))[0]
    smaller = True
    while smaller and what:
        smaller = False
        for size in (8, 3, 1):
            at = len(lines) - size
            while at >= 0 and time.monotonic() < until:
                fewer = lines[:at] + lines[at + size :]
                still = verdict(text(fewer))[0]
                if still and still.startswith(ONLY) == what.startswith(ONLY):
                    lines, what, smaller = fewer, still, True
                at -= 1
    return f"{text(lines)}\n{what}"


def run_threads(case: Case) -> Outcome:
    """Several threads call one function, cold, all at a time; what it counts is what they called."""
    program = counting(case.rng())
    seen = execute(program, jit)
    if seen.error is not None:
        raise Wrong("".join(traceback.format_exception(seen.error)) + program)
    wrong = [(name, value.tolist()) for name, value in seen.values if not (value == 0).all()]
    if wrong:
        raise Wrong(f"{wrong}\n{program}")
    return Outcome.RIGHT


CAMPAIGNS = (
    Campaign(
        "jit",
        "programs around a recorded function: assigns, aliases, gradients, modes, random numbers, errors",
        run,
        short=20,
        explain=explain,
    ),
    Campaign("jit-threads", "threads that call one recorded function at a time", run_threads, short=6),
)
