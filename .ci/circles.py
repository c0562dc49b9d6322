"""No circles, as a contract for import-linter: no more than two files import each other in a circle.

In       the import graph of the package `hcq`, with the imports inside functions and for type checkers
Out      each larger circle: its files, and the imports that close it
Next     pyproject.toml, [tool.importlinter]

Two files may know each other (a device and its queue); three are a knot that nobody can take one of in isolation.
"""

from __future__ import annotations

from collections.abc import Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

MOST = 2


class CirclesContract(Contract):
    """It has no settings."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        found = sorted(sorted(circle) for circle in circles(imports) if len(circle) > MOST)
        inside = {module: sorted(imports[module] & set(circle)) for circle in found for module in circle}
        return ContractCheck(kept=not found, metadata={"circles": found, "imports": inside})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for circle in check.metadata["circles"]:
            output.print_error(f"{len(circle)} files import each other in a circle:", bold=True)
            for module in circle:
                output.print(f"    {module} imports {', '.join(check.metadata['imports'][module])}")
            output.new_line()


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
