"""No circles, as a contract for import-linter: no more than two files import each other in a circle.

In       the import graph of the package `hcq`, with the imports inside functions, for type checkers, and by string
Out      each larger circle: its files, and the imports that close it
Next     named_imports.py (imports by string), pyproject.toml, [tool.importlinter]

Two files may know each other (a device and its queue); three are a knot that nobody can take one of in isolation.

A larger circle that is there today is a line of `known`, "7 in module module ...: why": a circle of at most so many
files, all of them among these modules or below them. Each line stands for one circle, so that a circle can shrink, and
a new one fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from named_imports import with_named

MOST = 2


class CirclesContract(Contract):
    """`known`: the larger circles that there are, each with its most files and a reason."""

    known = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        stale = with_named(graph, self.session_options.get("named", []))
        imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        large = sorted((circle for circle in circles(imports) if len(circle) > MOST), key=sorted)
        found, more = unknown(large, [known_of(line) for line in self.known or ()])
        inside = {module: sorted(imports[module] & circle) for circle in found for module in circle}
        warnings = [f"named: {line}: there is no such import by string; remove it" for line in stale]
        warnings += [f"known: {most} in {' '.join(places)}: {now}" for most, places, now in more]
        metadata = {"circles": [sorted(circle) for circle in found], "imports": inside}
        return ContractCheck(kept=not found, warnings=warnings, metadata=metadata)

    def render_broken_contract(self, check: ContractCheck) -> None:
        for circle in check.metadata["circles"]:
            output.print_error(f"{len(circle)} files import each other in a circle:", bold=True)
            for module in circle:
                output.print(f"    {module} imports {', '.join(check.metadata['imports'][module])}")
            output.new_line()


def known_of(line: str) -> tuple[int, tuple[str, ...]]:
    """A line of `known`: at most how many files, and where they are. Raises ValueError for one that gives no reason."""
    most, _, rest = line.partition(" in ")
    places, colon, why = rest.partition(": ")
    if not (most.isdigit() and places.split() and colon and why.strip()):
        raise ValueError(f'{line!r}: write "7 in module module ...: why"')
    return int(most), tuple(places.split())


def unknown(
    large: list[set[str]], known: list[tuple[int, tuple[str, ...]]]
) -> tuple[list[set[str]], list[tuple[int, tuple[str, ...], str]]]:
    """The circles that no line stands for; the lines that say more than there is, with what there is."""
    rest, more = list(large), []
    for most, places in sorted(known):
        fitting = (circle for circle in rest if len(circle) <= most and _is_among(circle, places))
        found = max(fitting, key=len, default=None)
        if found is None:
            more.append((most, places, "it is gone; remove the line"))
            continue
        rest.remove(found)
        if len(found) < most:
            more.append((most, places, f"it has {len(found)}; write that"))
    return rest, more


def _is_among(circle: set[str], places: tuple[str, ...]) -> bool:
    return all(any(f"{module}.".startswith(f"{place}.") for place in places) for module in circle)


def circles(imports: dict[str, set[str]]) -> Iterator[set[str]]:
    """The strongly connected components of a graph (Tarjan 1972, with a stack of our own for its recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    pending: list[str] = []
    for start in sorted(imports):
        if start in order:
            continue
        work = [(start, iter(sorted(imports[start])))]
        order[start] = lowest[start] = len(order)
        pending.append(start)
        while work:
            module, rest = work[-1]
            for imported in rest:
                if imported not in order:
                    order[imported] = lowest[imported] = len(order)
                    pending.append(imported)
                    work.append((imported, iter(sorted(imports[imported]))))
                    break
                if imported in pending:
                    lowest[module] = min(lowest[module], order[imported])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    at = pending.index(module)
                    yield set(pending[at:])
                    del pending[at:]
