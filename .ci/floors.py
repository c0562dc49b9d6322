"""The law of the floors, as a contract for import-linter: a floor imports only what its line of the law names.

In       the import graph of the package `hcq`, laid out as installed (`hcq.ir`, `hcq.compiler`, ...)
Out      one line per import that the law does not allow: who, whom, file and line
Next     pyproject.toml, [tool.importlinter] (the law), docs/architecture.md (why the floors are what they are)

A module belongs to the floor it is named after (`hcq.ir.node` to `ir`); everything else (`hcq.queue`, `hcq.cpu.device`,
`hcq` itself) is the floor `hcq`, so a new driver module falls under the law without being listed anywhere.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

NAMED_FLOORS = ("tools", "frontend", "compiler", "ir")


class FloorsContract(Contract):
    """`may_import`: lines of the form "floor -> floor floor ..."; a floor always may import itself."""

    may_import = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        allowed = dict(_law(line) for line in self.may_import)
        breaches = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if _floor(imported) not in allowed[_floor(importer)]:
                    breaches.extend(graph.get_import_details(importer=importer, imported=imported))
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for breach in check.metadata["breaches"]:
            importer, imported = breach["importer"], breach["imported"]
            output.print_error(f"{importer}:{breach['line_number']} imports {imported}:", bold=True)
            output.print(f"    {breach['line_contents']}")
            output.print(f"    the floor {_floor(importer)} may not import the floor {_floor(imported)}")
            output.new_line()


def _law(line: str) -> tuple[str, set[str]]:
    floor, arrow, others = line.partition("->")
    floor, allowed = floor.strip(), set(others.split())
    unknown = ({floor} | allowed) - {*NAMED_FLOORS, "hcq"}
    if not arrow or unknown:
        raise ValueError(
            f'{line!r}: write "floor -> floor floor ..."; floors are hcq, {", ".join(NAMED_FLOORS)}'
        )
    return floor, allowed | {floor}


def _floor(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in NAMED_FLOORS else "hcq"
