"""The API reference: pages of HTML made from the docstrings by pdoc (`make reference`).

In       the modules of SECTIONS, imported as they are installed
Out      a folder of pages with an index and a search that needs no server; 1 when an example in them does not hold
Changes  that folder
Next     surface.py (the names and their examples), docstring_html.py (what our docstrings look like), reference_pages/
         (the index, and a little CSS)

Without network. What pdoc warns of is an error: a reference that it could not read, a module that did not load.
"""

from __future__ import annotations

import argparse
import sys
import typing
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pdoc
import pdoc.extract
import pdoc.render

import hcq
from hcq.tools import surface
from hcq.tools.docstring_html import to_html

# title -> modules; a package stands for itself and the public modules in it, without the packages inside it
SECTIONS: dict[str, tuple[str, ...]] = {
    "Tensors": (
        "hcq.frontend.tensor",
        "hcq.frontend.ops",
        "hcq.frontend.jit",
        "hcq.frontend.grad.gradient",
        "hcq.frontend.more.transforms",
        "hcq.frontend.core.device",
        "hcq.ir.dtype",
    ),
    "Modules and optimizers": (
        "hcq.frontend.nn",
        "hcq.frontend.nn.module",
        "hcq.frontend.nn.state",
        "hcq.frontend.nn.hooks",
        "hcq.frontend.nn.layers",
        "hcq.frontend.nn.utils",
        "hcq.frontend.nn.optim",
        "hcq.frontend.amp",
        "hcq.frontend.utils",
    ),
    "Functions": (
        "hcq.frontend.functions",
        "hcq.frontend.functions_linalg",
        "hcq.frontend.more.linalg",
        "hcq.frontend.functions_fft",
        "hcq.frontend.more.fourier.windows",
        "hcq.frontend.functions_special",
        "hcq.frontend.functions_masked",
        "hcq.frontend.functions_random",
        "hcq.frontend.more.distributions",
    ),
    "Files, models and machines": (
        "hcq.frontend.io.files",
        "hcq.frontend.io.safetensors",
        "hcq.frontend.more.onnx.model",
        "hcq.frontend.more.distributed",
    ),
    "Devices, queues and graphs": ("hcq",),
    "Traces and validation": ("hcq.observe", "hcq.trace", "hcq.rules"),
    "Drivers": ("hcq.gpu", "hcq.cpu", "hcq.amd", "hcq.nv", "hcq.doctor"),
    "Emulation": ("hcq.emu", "hcq.emu.amd.spec", "hcq.emu.nv.spec"),
    "Compiler": ("hcq.compiler", "hcq.ir"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pages go")
    parser.add_argument(
        "--no-examples", action="store_true", help="write the pages without running their examples"
    )
    options = parser.parse_args(argv)
    if len(hcq.__path__) > 1:
        parser.error(
            "hcq is a checkout, where pdoc would find every module twice: make reference reads a copy"
        )
    sys.setrecursionlimit(20_000)  # the index of a search is a tree as deep as the longest word
    status = 0 if options.no_examples else surface.run_all(surface.surface())
    write(options.folder)
    return status


def write(folder: Path) -> None:
    """Write every page and the index into a folder, which is made when it is missing.

    Raises  UserWarning for what pdoc could not resolve
    """
    sections = {
        title: list(dict.fromkeys(name for place in places for name in modules(place)))
        for title, places in SECTIONS.items()
    }
    names = list(dict.fromkeys(name for section in sections.values() for name in section))
    pdoc.render.configure(
        show_source=False,
        template_directory=Path(__file__).with_name("reference_pages"),
        docformat="markdown",
    )
    pdoc.render.env.filters["to_markdown"] = str
    pdoc.render.env.filters["to_html"] = to_html
    pdoc.render.env.globals["sections"] = sections
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for name in names:
            resolve_named_tuples(pdoc.extract.load_module(name))
        others = f"!^(?!({'|'.join(names)})$)"  # "!": modules to leave out
        specs = ["hcq", others]
        found = {*pdoc.extract.walk_specs(specs)}
        for name in names:
            if name not in found:  # hidden by the __all__ of the package around it
                specs.append(name)
                found.update(pdoc.extract.walk_specs([name]))
        pdoc.pdoc(*specs, output_directory=folder)


def modules(place: str) -> Iterator[str]:
    """The name of a module; for a package, then those of the public modules directly in it."""
    yield place
    found = Path(pdoc.extract.load_module(place).__file__ or "")
    if found.name == "__init__.py":
        yield from (
            f"{place}.{path.stem}" for path in sorted(found.parent.glob("*.py")) if path.stem[0] != "_"
        )


def resolve_named_tuples(module: ModuleType) -> None:
    """Annotations of the constructors that NamedTuple made, which know nothing of the module's names, made types."""
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "_fields"):
            kind.__new__.__annotations__ = typing.get_type_hints(kind)


if __name__ == "__main__":
    sys.exit(main())
