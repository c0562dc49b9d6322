"""Views: random programs of views, writes in place and reads, against NumPy, whose views show each other's writes, too.

In       a case
Out      right, or Wrong with the program
Next     frontend/core/views.py (what is attacked), frontend/jit/delivery.py (results that are views)

A program is lines of Python, which are run twice: on tensors and on arrays. Numbers are small whole ones. In half of
the programs some lines are a recorded function, called several times, whose results are views of what it was given and
of one another.
"""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import numpy as np

from hcq import Tensor, jit
from hcq.errors import UsageError
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

# of a matrix and of a vector; what NumPy calls otherwise stands behind a bar
OF_MATRIX = [
    "{}[{row}]", "{}[:, {column}]", "{}[{row}:]", "{}[:, ::2]", "{}.T", "{}.reshape(-1)", "{}[:, 1:]",
    "{}.unbind(1)[{column}] | {}[:, {column}]", "{}.detach() | {}[:]", "{}.diagonal() | diagonal({})",
    "{}.narrow(0, {row}, 1) | {}[{row} : {row} + 1]", "{}.movedim(0, 1)[{column}] | {}.T[{column}]",
]  # fmt: skip
OF_VECTOR = [
    "{}[1:]",
    "{}[::2]",
    "{}[:1]",
    "{}.reshape(1, -1)",
    "{}.detach() | {}[:]",
    "{}.unsqueeze(1) | {}[:, None]",
]
WRITES = [
    ("{}.add_({number})", "{} += {number}"),
    ("{}.mul_({number})", "{} *= {number}"),
    ("{}.copy_({} * 2 + 1)", "{}[...] = {} * 2 + 1"),
    ("{}.copy_({}[0] + {number})", "{}[...] = {}[0] + {number}"),
    ("{}.copy_({}[:1])", "{}[...] = {}[:1]"),
    ("{}[0] = {number}", "{}[0] = {number}"),
    ("{}.zero_()", "{}[...] = 0"),
    ("{}[:1] += {number}", "{}[:1] += {number}"),
    ("{}[{}.abs() > 2] = {number}", "{}[np.abs({}) > 2] = {number}"),
]
READS = ["{}.numpy()", "{}.realize()", "({} + 1).numpy()"]


def diagonal(array: Any) -> Any:
    """NumPy's own cannot be written to."""
    size = min(array.shape)
    return np.lib.stride_tricks.as_strided(array, (size,), (sum(array.strides),))


class _Program:
    """Lines for tensors and for arrays, and the names that they make with their shapes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.lines: list[tuple[str, str]] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.count = 0

    def name(self, letter: str, shape: tuple[int, ...]) -> str:
        name = f"{letter}{self.count}"
        self.count += 1
        self.shapes[name] = shape
        return name

    def make(self) -> None:
        shape = (self.rng.randint(2, 4), self.rng.randint(2, 4))
        numbers = [[float(self.rng.randint(-4, 4)) for _ in range(shape[1])] for _ in range(shape[0])]
        lazy = self.rng.choice(("", " * 1", " + 2"))
        name = self.name("x", shape)
        self.lines.append(
            (f"{name} = Tensor({numbers}){lazy}", f"{name} = np.array({numbers}, np.float32){lazy}")
        )

    def view_of(self, name: str) -> tuple[str, str, tuple[int, ...]]:
        """The words of a view for each, and its shape."""
        shape = self.shapes[name]
        words = self.rng.choice(OF_MATRIX if len(shape) == 2 else OF_VECTOR)
        ours, _, theirs = words.partition(" | ")
        places = {"row": self.rng.randrange(shape[0]), "column": self.rng.randrange(shape[-1])}
        ours, theirs = (each.replace("{}", name).format(**places) for each in (ours, theirs or ours))
        array = eval(theirs, {"diagonal": diagonal, name: np.zeros(shape, np.float32)})
        return ours, theirs, array.shape

    def view(self) -> None:
        of = self.rng.choice([*self.shapes])
        ours, theirs, shape = self.view_of(of)
        if 0 in shape or len(shape) == 0:
            return
        name = self.name("v", shape)
        self.lines.append((f"{name} = {ours}", f"{name} = {theirs}"))

    def write(self) -> None:
        name, number = self.rng.choice([*self.shapes]), self.rng.randint(-3, 3)
        ours, theirs = (each.replace("{}", name).format(number=number) for each in self.rng.choice(WRITES))
        self.lines.append((ours, theirs))

    def read(self) -> None:
        self.lines.append((self.rng.choice(READS).replace("{}", self.rng.choice([*self.shapes])), "pass"))

    def drop(self) -> None:
        if len(self.shapes) > 2:
            name = self.rng.choice([*self.shapes])
            del self.shapes[name]
            self.lines.append((f"del {name}", f"del {name}"))

    def recorded(self) -> None:
        """A recorded function of one of the names: views of it, a write, something new and a view of that."""
        of = self.rng.choice([*self.shapes])
        first, theirs, shape = self.view_of(of)
        if "diagonal" in first:  # of an argument that is a part of another tensor it is a copy: docs/jit.md
            return
        if 0 in shape or len(shape) == 0:
            return
        f = f"f{self.count}"
        number = self.rng.randint(-3, 3)
        write, their_write = (
            each.replace("{}", of).format(number=number) for each in self.rng.choice(WRITES)
        )
        if self.rng.random() < 0.6:
            write = their_write = "pass"
        part, new, row = (
            self.name("v", shape),
            self.name("n", self.shapes[of]),
            self.name("r", (1, *self.shapes[of][1:])),
        )
        for ours, body, words in ((0, write, first), (1, their_write, theirs)):
            made = [
                f"def {f}({of}):",
                f"    {body}",
                f"    new = {of} * 2" if not ours else f"    new = np.multiply({of}, 2, order='C')",
                f"    return {words}, new, new[:1]",
            ]
            if not ours:
                made.insert(0, "@jit")
            call = f"{part}, {new}, {row} = {f}({of})"
            if ours:
                pair = (self.lines[-1][0], "\n".join([*made, *[call] * 4]))
                self.lines[-1] = pair
            else:
                self.lines.append(("\n".join([*made, *[call] * 4]), ""))

    def text(self, which: int) -> str:
        return "\n".join(pair[which] for pair in self.lines)


def draw(rng: Random) -> _Program:
    """A random program."""
    program = _Program(rng)
    program.make()
    steps = [
        program.view,
        program.view,
        program.write,
        program.write,
        program.read,
        program.drop,
        program.make,
    ]
    if rng.random() < 0.5:
        steps.append(program.recorded)
    for _ in range(rng.randint(4, 16)):
        rng.choice(steps)()
    return program


def run(case: Case) -> Outcome:
    """One program."""
    program = draw(case.rng())
    try:
        what = verdict(program)
    except UsageError as error:
        if not str(error).startswith("[jit]"):
            raise Wrong(f"{error}\n{program.text(0)}") from error
        return Outcome.REFUSED
    finally:
        gc.collect()
    if what:
        raise Wrong(what)
    return Outcome.RIGHT


def verdict(program: _Program) -> str:
    """What is wrong, or "", with the program."""
    ours: dict[str, Any] = {"Tensor": Tensor, "jit": jit}
    theirs: dict[str, Any] = {"np": np, "diagonal": diagonal}
    exec(compile(program.text(1), "arrays", "exec"), theirs)
    exec(compile(program.text(0), "tensors", "exec"), ours)
    for name in program.shapes:
        found, wanted = ours[name].numpy(), theirs[name]
        if found.shape != wanted.shape or not np.array_equal(found, wanted):
            return f"{name} is {found.tolist()}, not {wanted.tolist()}\n{program.text(0)}"
    return ""


CAMPAIGNS = (
    Campaign(
        "views", "views, writes in place and reads in any order, in recorded functions too", run, short=40
    ),
)
