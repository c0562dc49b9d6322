"""Surface: the names that a program of a user reaches, and what each lacks: a docstring, types, an example.

In       the modules of PLACES, as a program imports them
Out      a table of what is lacking; `run`, what an example says instead of what its docstring promises
Changes  nothing; examples compile kernels into the cache
Next     reference.py (the pages, which run the examples first), tests/tools/test_surface.py

    python -m hcq.tools.surface                 what is lacking
    python -m hcq.tools.surface --run           every example, in one process; --only conv picks some

A function is listed once, under the first name that it has; a form in place, or a second name, has the example of what
it is made of.
"""

from __future__ import annotations

import argparse
import builtins
import doctest
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hcq
from hcq.frontend.ops.in_place_names import NAMES, VIEWS
from hcq.frontend.ops.other_names import OTHER_NAMES

# a place that names are reached in -> where they are written, as what is only imported there is not counted
PLACES: dict[str, tuple[str, ...]] = {
    "hcq.Tensor": ("hcq.frontend.",),
    "hcq": ("hcq.",),
    "hcq.torch": ("hcq.frontend.",),
    "hcq.nn.Module": ("hcq.frontend.nn.",),
    "hcq.optim.Optimizer": ("hcq.frontend.optim.",),
    "hcq.optim.lr_scheduler.LRScheduler": ("hcq.frontend.optim.",),
    "hcq.optim.swa_utils.AveragedModel": ("hcq.frontend.optim.swa_utils",),
    "hcq.nn.Embedding": ("hcq.frontend.nn.layers.embedding",),
    "hcq.nn.Transformer": ("hcq.frontend.nn.layers.transformer",),
    "hcq.Variable": ("hcq.frontend.symbolic.variable",),
    "hcq.dtypes": ("hcq.ir.dtype",),
    "hcq.frontend.jit.function.Jit": ("hcq.frontend.jit.",),
    "hcq.frontend.more.onnx.OnnxModel": ("hcq.frontend.more.onnx.",),
    "hcq.distributed.DataParallel": ("hcq.frontend.more.distributed.",),
    "hcq.distributed.Pipeline": ("hcq.frontend.more.distributed.",),
    "hcq.distributed.Group": ("hcq.frontend.more.distributed.",),
    "hcq.nn": ("hcq.frontend.nn.", "hcq.frontend.io."),
    "hcq.nn.functional": ("hcq.frontend.nn.", "hcq.frontend.ops."),
    "hcq.nn.init": ("hcq.frontend.nn.init", "hcq.nn.init", "hcq.frontend.ops.initial"),
    "hcq.nn.utils": ("hcq.frontend.nn.utils",),
    "hcq.nn.utils.rnn": ("hcq.frontend.nn.utils.rnn",),
    "hcq.nn.utils.parametrize": ("hcq.frontend.nn.utils.parametrize",),
    "hcq.nn.utils.prune": ("hcq.frontend.nn.utils.prune",),
    "hcq.nn.utils.parametrizations": ("hcq.frontend.nn.utils.parametrizations",),
    "hcq.optim": ("hcq.frontend.optim",),
    "hcq.optim.lr_scheduler": ("hcq.frontend.optim.",),
    "hcq.optim.swa_utils": ("hcq.frontend.optim.swa_utils",),
    "hcq.func": ("hcq.frontend.more.transforms", "hcq.frontend.nn.utils.stateless"),
    "hcq.torch.linalg": ("hcq.frontend.more.linalg.",),
    "hcq.torch.special": ("hcq.frontend.functions.special", "hcq.frontend.ops."),
    "hcq.torch.fft": ("hcq.frontend.more.fourier.fft",),
    "hcq.torch.random": ("hcq.frontend.functions.random",),
    "hcq.torch.distributions": ("hcq.frontend.more.distributions",),
    "hcq.torch.masked": ("hcq.frontend.functions.masked",),
    "hcq.torch.amp": ("hcq.frontend.amp",),
    "hcq.torch.utils.data": ("hcq.frontend.data",),
    "hcq.torch.utils.checkpoint": ("hcq.frontend.autograd.checkpoint",),
    "hcq.torch.signal.windows": ("hcq.frontend.more.fourier.windows",),
    "hcq.distributed": ("hcq.frontend.more.distributed",),
    "hcq.torch.hub": ("hcq.frontend.torch.hub",),
    "hcq.torch.testing": ("hcq.frontend.torch.testing",),
    "hcq.torch.autograd": ("hcq.frontend.autograd",),
    "hcq.torch.autograd.functional": ("hcq.frontend.autograd",),
    "hcq.torch.cuda": ("hcq.frontend.torch.cuda",),
    "hcq.torch.cuda.amp": ("hcq.frontend.torch.cuda",),
    "hcq.torch.accelerator": ("hcq.frontend.torch.accelerator",),
    "hcq.torch.backends.mps": ("hcq.frontend.torch.mps",),
    "hcq.torch.nn.attention": ("hcq.frontend.nn.attention",),
    "hcq.onnx": ("hcq.frontend.more.onnx",),
}
# methods that a class calls itself, for its subclasses to write
FOR_SUBCLASSES = set(
    "forward extra_repr state_of counts_of check prepare moved write count lr check_group rates begin rate rate_at "
    "after operation".split()
)
FLOORS = ("hcq", "hcq.ir", "hcq.compiler", "hcq.frontend", "hcq.tools")
KNOWN = ("Tensor", "Device", "dtypes", "nn", "jit", "no_grad")  # names that every example has


class Name(NamedTuple):
    """A name of the surface, what it stands for, and the module that this is written in."""

    name: str
    value: Any
    module: str

    @property
    def doc(self) -> str:
        """Its docstring, without the indentation of its source."""
        return inspect.cleandoc(self.value.__doc__ or "")

    @property
    def lacks(self) -> list[str]:
        """What it lacks of "docstring", "types" and "example"."""
        kinds = {
            "docstring": self.doc and not self.doc.startswith(f"{self.name.rpartition('.')[2]}("),
            "types": is_typed(self.value),
            "example": ">>>" in self.doc,
        }
        return [kind for kind, is_there in kinds.items() if not is_there]


def surface() -> list[Name]:
    """Every name, each function, class and property once."""
    found: dict[int, Name] = {}
    for place, written in PLACES.items():
        owner = _reached(place)
        is_class = inspect.isclass(owner) and owner is not hcq.Tensor
        for name in sorted(dir(owner)):
            is_theirs = name[0] == "_" or _is_derived(name) or (is_class and name in FOR_SUBCLASSES)
            value = None if is_theirs else _reached(f"{place}.{name}")
            if inspect.isclass(owner) and value is not None:
                value = inspect.getattr_static(owner, name)
            while isinstance(value, (classmethod, staticmethod, property, functools.cached_property)):
                value = (
                    value.func
                    if isinstance(value, functools.cached_property)
                    else value.fget
                    if isinstance(value, property)
                    else value.__func__
                )
            if value is None or inspect.ismodule(value) or not callable(value):
                continue
            value = inspect.unwrap(value)
            module = getattr(value, "__module__", "") or ""
            if module.startswith(written) and module != "hcq.torch":  # a row of its table, which says why
                found.setdefault(id(value), Name(f"{place}.{name}", value, module))
    return sorted(found.values())


def is_typed(value: Any) -> bool:
    """Whether a function, or what makes a class, says the type of every argument; a function, of its result, too."""
    function = vars(value).get("__init__") if inspect.isclass(value) else value
    if not inspect.isfunction(function):
        return True
    parameters = [*inspect.signature(function).parameters.values()]
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    said = [parameter.annotation for parameter in parameters]
    if not inspect.isclass(value):
        said.append(inspect.signature(function).return_annotation)
    return inspect.Parameter.empty not in said


def lacking() -> list[str]:
    """A line for each thing that a name lacks."""
    return [f"{name.name} {kind}" for name in surface() for kind in name.lacks]


def run(name: str, text: str, module: str) -> str:
    """Run the examples of a docstring in the names of its module. Returns what differs, "" when nothing does."""
    known = {word: getattr(hcq, word) for word in KNOWN}
    written = {
        word: value
        for word, value in vars(importlib.import_module(module)).items()
        if word not in vars(builtins)
        or getattr(value, "__module__", "") == module  # not the round of special
    }
    names = {**written, "hcq": hcq, **known}
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, None, 0)
    heard: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=heard.append)
    return "".join(heard)


def modules(floors: Sequence[str] = FLOORS) -> Iterator[str]:
    """Every public module, in a checkout and in an installed package alike."""
    for floor in floors:
        folder = Path(importlib.import_module(floor).__file__ or "").parent
        for path in sorted(folder.rglob("*.py")):
            parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
            if not any(part.startswith("_") for part in parts):
                yield ".".join([floor, *parts])


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status: 1 where something is lacking, or an example does not hold."""
    parser = argparse.ArgumentParser(prog="surface", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", action="store_true", help="run the examples")
    parser.add_argument("--only", default="", help="names with this in them")
    options = parser.parse_args(argv)
    names = [name for name in surface() if options.only in name.name]
    if not options.run:
        for name in names:
            if name.lacks:
                print(f"{name.name:50} {', '.join(name.lacks)}")
        return int(any(name.lacks for name in names))
    return run_all(names)


def run_all(names: Sequence[Name]) -> int:
    """Run the examples of names, print what differs and how many ran. Returns 1 when something differs."""
    shown = [name for name in names if ">>>" in name.doc]
    ranks = [name for name in shown if name.module.startswith("hcq.frontend.more.distributed")]
    alone = [name for name in shown if name not in ranks]
    if ranks and importlib.util.find_spec("mpi4py") is None:
        print(f"{len(ranks)} examples of hcq.distributed are left out: they need mpi4py (make mpi)")
        ranks = []
    leaving = (".close", ".destroy_process_group")
    ranks.sort(key=lambda name: name.name.endswith(leaving))  # nothing runs on a rank that has left
    wrong = [differs for name in (*alone, *ranks) if (differs := run(name.name, name.doc, name.module))]
    print("".join(wrong) + f"{len(alone) + len(ranks)} examples, {len(wrong)} do not hold")
    return int(bool(wrong))


def _reached(path: str) -> Any:
    """What a program has by that name; None where there is nothing."""
    value: Any = hcq
    for depth, word in enumerate(path.split(".")[1:], 2):
        value = getattr(value, word, None) or _module(".".join(path.split(".")[:depth]))
    return value


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _is_derived(name: str) -> bool:
    return name in OTHER_NAMES or (name.endswith("_") and name[:-1] in (*NAMES, *VIEWS))


if __name__ == "__main__":
    sys.exit(main())
