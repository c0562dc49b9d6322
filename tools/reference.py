"""The site: the pages of docs/, and a page for each public module, made from its docstrings by pdoc (`make reference`).

In       the modules of SECTIONS, imported as they are installed; docs/
Out      a folder of pages with an index and a search that needs no server; 1 when an example in them does not hold
Changes  that folder
Next     surface.py (the names and their examples), docstring_html.py (what our docstrings look like), site_pages.py
         (the pages of docs/), reference_pages/ (templates, the search, a little CSS)

Without network. What pdoc warns of is an error: a reference that it could not read, a module that did not load.
"""

from __future__ import annotations

import argparse
import builtins
import json
import re
import sys
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
import pdoc.doc
import pdoc.doc_types
import pdoc.extract
import pdoc.render

import hcq
from hcq.device import Device
from hcq.queue import Queue
from hcq.tools import site_pages, surface
from hcq.tools.docstring_html import to_html

# title -> modules that programs use, as the first page lists them; `name.*` is a package and the public modules in it
SECTIONS: dict[str, tuple[str, ...]] = {
    "Devices, queues and graphs": (
        "hcq",
        hcq.open.__module__,
        "hcq.device",
        "hcq.queue",
        "hcq.memory",
        "hcq.signal",
        "hcq.program",
        "hcq.graph",
        "hcq.errors",
        "hcq.config",
    ),
    "Tensors": (
        "hcq.frontend.tensor",
        "hcq.frontend.ops.*",
        "hcq.frontend.jit.function",
        "hcq.frontend.grad.gradient",
        "hcq.frontend.more.custom",
        "hcq.frontend.more.transforms",
        "hcq.frontend.core.device",
        "hcq.ir.dtype",
    ),
    "Modules and optimizers": (
        "hcq.frontend.nn.*",
        "hcq.frontend.nn.layers.*",
        "hcq.frontend.nn.utils.*",
        "hcq.frontend.optim.*",
        "hcq.frontend.amp.*",
        "hcq.frontend.data",
        "hcq.frontend.autograd.*",
    ),
    "Functions": (
        "hcq.frontend.functions",
        "hcq.frontend.more.linalg.*",
        "hcq.frontend.more.fourier.fft",
        "hcq.frontend.more.fourier.windows",
        "hcq.frontend.functions.special",
        "hcq.frontend.functions.masked",
        "hcq.frontend.functions.random",
        "hcq.frontend.more.distributions.*",
    ),
    "Files, models and machines": (
        "hcq.frontend.io.files",
        "hcq.frontend.io.safetensors",
        "hcq.frontend.more.onnx.model",
        "hcq.frontend.more.distributed.*",
    ),
    "Traces, rules and the doctor": (
        "hcq.observe.report",
        "hcq.trace.file",
        "hcq.trace.submission",
        "hcq.trace.seen",
        "hcq.rules.rule",
        "hcq.doctor",
    ),
    "Kinds of devices": ("hcq.backends", "hcq.layout", "hcq.gpu.device", "hcq.cpu.device"),
    "Emulation": ("hcq.emu", "hcq.emu.port", "hcq.emu.amd.spec", "hcq.emu.nv.spec"),
    "Compiler": ("hcq.compiler", "hcq.compiler.target", "hcq.ir.node", "hcq.ir.op"),
}


# what most programs begin with: on the first page
BEGIN: dict[str, Any] = {"hcq.open": hcq.open, "Device": Device, "Queue": Queue, "hcq.Tensor": hcq.Tensor}
STYLES = (
    "resources/bootstrap-reboot.min.css",
    "syntax-highlighting.css",
    "theme.css",
    "layout.css",
    "content.css",
    "custom.css",
)
LIMITS = {"the site": 15_000_000, "search.js": 2_000_000}  # bytes
PAGES = Path(__file__).with_name("reference_pages")
DRAWING = re.compile(r"(<pre.*?</pre>)", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the site goes")
    parser.add_argument("root", type=Path, help="the checkout, whose docs/ become pages")
    parser.add_argument(
        "--no-examples", action="store_true", help="write the pages without running their examples"
    )
    options = parser.parse_args(argv)
    if len(hcq.__path__) > 1:
        parser.error(
            "hcq is a checkout, where pdoc would find every module twice: make reference reads a copy"
        )
    status = 0 if options.no_examples else surface.run_all(surface.surface())
    write(options.folder, options.root)
    return status or is_too_large(options.folder)


def is_too_large(folder: Path) -> bool:
    """Whether the site, or what its search loads, has outgrown its limit; says so."""
    sizes = {"the site": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())}
    sizes["search.js"] = (folder / "search.js").stat().st_size
    over = [
        f"{name} has {sizes[name]} bytes, of {limit}" for name, limit in LIMITS.items() if sizes[name] > limit
    ]
    print("\n".join(over) or f"the site has {sizes['the site'] / 1e6:.1f} MB", flush=True)
    return bool(over)


def write(folder: Path, root: Path) -> None:
    """Write the site into a folder, which is made when it is missing.

    root    the checkout
    Raises  UserWarning for what pdoc could not resolve
    """
    sections = {
        title: list(dict.fromkeys(name for place in places for name in modules(place)))
        for title, places in SECTIONS.items()
    }
    names = list(dict.fromkeys(name for section in sections.values() for name in section))
    pdoc.render.configure(show_source=False, search=False, template_directory=PAGES, docformat="markdown")
    env = pdoc.render.env
    env.filters["to_markdown"] = str
    env.filters["to_html"] = to_html
    found = {page.file: page for page in site_pages.pages(root)}
    vars(pdoc.doc)["safe_eval_type"] = type_of
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for name in names:
            resolve_named_tuples(pdoc.extract.load_module(name))
        known = {name: pdoc.doc.Module.from_name(name) for name in names}
        for name, module in known.items():
            put(folder, page_of(name), packed(pdoc.render.html_module(module, known)))
    for page in found.values():
        template = env.get_template("page.html.jinja2")
        html = template.render(
            title=page.title, text=page.text, contents=page.contents, root="../" * page.file.count("/")
        )
        put(folder, page.file, html)
    first = found["docs/index.html"].text.replace("../docs/", "docs/")
    html = env.get_template("index.html.jinja2").render(
        sections=sections,
        all_modules=known,
        first_line=first_line,
        begin=[*beginnings(known)],
        pages=first,
        root="",
    )
    put(folder, "index.html", packed(html))
    put(folder, "search.js", search_index(known, found))
    put(folder, "site.js", (PAGES / "site.js").read_text(encoding="utf-8"))
    put(folder, "site.css", "\n".join(env.get_template(name).render() for name in STYLES))
    for name, data in site_pages.pictures(root).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def put(folder: Path, name: str, text: str) -> None:
    """One file of the site."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def page_of(module: str) -> str:
    """Where a module's page lies."""
    return f"{module.replace('.', '/')}.html"


def packed(html: str) -> str:
    """Without the blanks that templates leave; what is drawn stays as it is."""
    parts = DRAWING.split(html)
    return "".join(part if part.startswith("<pre") else re.sub(r"\s*\n\s*", "\n", part) for part in parts)


def beginnings(known: Mapping[str, pdoc.doc.Module]) -> Iterator[tuple[str, str, str]]:
    """Name, address and first line of what a program begins with. Raises KeyError for what has no page."""
    for name, value in BEGIN.items():
        doc = known[value.__module__].members[value.__name__]
        yield name, f"{page_of(value.__module__)}#{doc.qualname}", first_line(doc)


def search_index(known: Mapping[str, pdoc.doc.Module], found: Mapping[str, site_pages.Page]) -> str:
    """What site.js searches: for each page names, or headings, with the first line of what is said of them."""
    pages: list[list[object]] = []
    for page in found.values():
        pages.append(
            [page.file, page.title, [["", ""], *([anchor, text] for anchor, text in page.headings[1:])]]
        )
    for name, module in known.items():
        parts = [["", first_line(module)]]
        for member in public(module.flattened_own_members):
            parts.append([member.qualname, first_line(member)])
            if isinstance(member, pdoc.doc.Class):
                parts.extend([m.qualname, first_line(m)] for m in public(member.own_members))
        pages.append([page_of(name), name, parts])
    return f"index({json.dumps(pages, separators=(',', ':'), ensure_ascii=False)});\n"


def first_line(doc: pdoc.doc.Doc[Any]) -> str:
    """What it is, in its own words."""
    return doc.docstring.split("\n")[0].replace("`", "")


def public(members: Iterable[pdoc.doc.Doc[Any]]) -> Iterator[pdoc.doc.Doc[Any]]:
    """Functions and classes that no underscore hides, and attributes of which something is said."""
    for member in members:
        if not member.name.startswith("_") and (member.kind in ("function", "class") or member.docstring):
            yield member


def modules(place: str) -> Iterator[str]:
    """The name of a module; for `name.*`, that of the package and of the public modules directly in it."""
    name = place.removesuffix(".*")
    yield name
    if name != place:
        folder = Path(pdoc.extract.load_module(name).__file__ or "").parent
        yield from (f"{name}.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem[0] != "_")


def type_of(said: Any, names: Any, inside: Any, module: ModuleType | None, full_name: str) -> Any:
    """What an annotation says, for pdoc: in a class with a method `int` the word `int` still is the type."""
    inside = {name: value for name, value in (inside or {}).items() if not hasattr(builtins, name)}
    return pdoc.doc_types.safe_eval_type(said, names, inside, module, full_name)


def resolve_named_tuples(module: ModuleType) -> None:
    """Annotations of the constructors that NamedTuple made, which know nothing of the module's names, made types."""
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "_fields"):
            kind.__new__.__annotations__ = typing.get_type_hints(kind)


if __name__ == "__main__":
    sys.exit(main())
