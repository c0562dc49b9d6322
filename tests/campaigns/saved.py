"""Saved: random programs whose recorded function is saved before each call, and loaded: the file does what jit does.

In       a case
Out      right; refused, when no call could be compared, and everything else was right; Wrong with the program
Changes  files in a folder of the worker
Next     _jit_programs.py (the programs), jit.py (jit beside no jit), frontend/jit/saving.py (what is attacked)

Whenever a function has a recording it is saved, and the file is loaded; when the call that follows is a replay of that
recording, the loaded program gets the same bytes and must give the same bytes. The rest of the program must not see it.
"""

from __future__ import annotations

import gc
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import hcq
from hcq import Tensor, jit
from hcq.errors import UsageError
from hcq.frontend.core.base import watcher
from hcq.frontend.jit import Jit
from tests.campaigns._jit_programs import draw, text
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong
from tests.campaigns.jit import execute


class Counts:
    """How often a program was compared, and how often saving refused."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "saved"
        self.compared = self.refused = 0


class Differs(Exception):
    """A loaded program gave something else than jit."""


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors of arguments or results, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def captured(function: Jit[Any, Any]) -> int:
    """How many calls of a function were captured, rather than replayed."""
    return sum(versions.calls for versions in function._seen.values())


def saving(counts: Counts) -> Any:
    """A `jit` whose functions are saved and loaded before each call."""

    class Saved(Jit[Any, Any]):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if watcher() is not None:  # part of the recording around it, in which nothing can be read
                return super().__call__(*args, **kwargs)
            before, calls = self._last, captured(self)
            program = self.load() if before is not None else None
            given = (
                [bytes(tensor.numpy().tobytes()) for tensor in tensors_of([args, kwargs])] if program else []
            )
            result = super().__call__(*args, **kwargs)
            if program is not None and self._last is before and captured(self) == calls:
                wanted = [tensor.numpy() for tensor in tensors_of(result)]
                found = [out.read() for out in program(*given)]
                if found != [value.tobytes() for value in wanted]:
                    got = [np.frombuffer(f, w.dtype).tolist() for f, w in zip(found, wanted)]
                    raise Differs(f"{program}: {got}, with jit {[value.tolist() for value in wanted]}")
                counts.compared += 1
            return result

        def load(self) -> Any:
            try:
                hcq.save_program(counts.path, self)
            except UsageError as error:
                if not str(error).startswith("[save_program]") or "\n" in str(error):
                    raise
                counts.refused += 1
                return None
            return hcq.load_program(counts.path)

    return Saved


def run(case: Case) -> Outcome:
    """One program."""
    program = text(draw(case.rng()))
    plain = execute(program, jit)
    if plain.error is not None:
        return Outcome.REFUSED
    with tempfile.TemporaryDirectory() as folder:
        counts = Counts(Path(folder))
        seen = execute(program, saving(counts))
    gc.collect()
    if seen.error is not None:
        raise Wrong("".join(traceback.format_exception(seen.error)[-4:]) + program)
    for (name, want), (_, got) in zip(plain.values, seen.values, strict=True):
        if isinstance(want, np.ndarray) and want.tobytes() != got.tobytes():
            raise Wrong(f"{name}: {got.tolist()}, where nothing is saved {want.tolist()}\n{program}")
    return Outcome.RIGHT if counts.compared else Outcome.REFUSED


CAMPAIGNS = (
    Campaign("saved", "programs whose recorded function is saved and loaded before each call", run, short=20),
)
