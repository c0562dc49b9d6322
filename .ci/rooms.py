"""The law of rooms, as a contract for import-linter: a room imports only what its line of the law names.

In       the import graph of the package `hcq`, laid out as installed (`hcq.ir`, `hcq.compiler`, ...), with the imports
         inside functions, for type checkers, and by string
Out      one line per import that the law does not allow: who, whom, file and line
Next     named_imports.py (imports by string), pyproject.toml, [tool.importlinter] (the laws), docs/architecture.md (why
         the rooms are what they are)

A room is a folder or a file of `hcq` and what is below it, but for the rooms in it that have a line of their own:
`nv.abi` is no part of `nv`. `hcq` is every file that stands in no folder, and every folder without a line where the law
has none for `*`; with one, each folder without a line is a room, so that a new driver falls under the law unlisted.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from named_imports import with_named

PACKAGE, ANY = "hcq", "*"


class RoomsContract(Contract):
    """`may_import`: lines "room -> room room ...", or "room -> *" for all; a room always may import itself.

    `groups`: lines "name = room room ...", names for several rooms on a right side.
    `is_ordered`: a line names only rooms of lines above it; one that allows all names none.
    """

    may_import = fields.ListField(subfield=fields.StringField())
    groups = fields.ListField(subfield=fields.StringField(), required=False, default=[])
    is_ordered = fields.BooleanField(required=False, default=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        with_named(graph, self.session_options.get("named", []))
        groups = dict(_line(line, "=") for line in self.groups)
        law = {room: _spelled_out(words, groups) for room, words in map(_line, self.may_import)}
        unknown = {name for allowed in law.values() for name in allowed} - {*law, PACKAGE, ANY}
        if unknown:
            raise ValueError(f"the law names rooms that have no line: {', '.join(sorted(unknown))}")
        if self.is_ordered:
            refuse_disorder(law)
        breaches = []
        for importer in sorted(graph.modules):
            own = _room(importer, law, graph)
            allowed = law[own] if own in law else law[ANY]
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                room = _room(imported, law, graph)
                if room != own and room not in allowed and ANY not in allowed:
                    for detail in graph.get_import_details(importer=importer, imported=imported):
                        breaches.append({**detail, "rooms": (own, room)})
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for breach in check.metadata["breaches"]:
            importer, imported = breach["importer"], breach["imported"]
            own, room = breach["rooms"]
            output.print_error(f"{importer}:{breach['line_number']} imports {imported}:", bold=True)
            output.print(f"    {breach['line_contents']}")
            output.print(f"    {own} may not import {room}")
            output.new_line()


def refuse_disorder(law: dict[str, set[str]]) -> None:
    """Raises ValueError for a room that stands on one whose line is below its own."""
    for place, room in enumerate(law):
        if later := law[room] - {*list(law)[:place], PACKAGE, ANY}:
            raise ValueError(
                f"{room} stands on rooms whose lines are below its own: {', '.join(sorted(later))}"
            )


def _line(line: str, sign: str = "->") -> tuple[str, set[str]]:
    room, found, others = line.partition(sign)
    if not found:
        raise ValueError(f'{line!r}: write "name {sign} room room ..."')
    return room.strip(), set(others.split())


def _spelled_out(words: set[str], groups: dict[str, set[str]]) -> set[str]:
    """The rooms of a right side. A group may name groups that stand above it."""
    for name in reversed(groups):
        if name in words:
            words = words - {name} | groups[name]
    return words


def _is_in(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"{PACKAGE}.{room}.")


def _room(module: str, law: dict[str, set[str]], graph: ImportGraph) -> str:
    found = [room for room in law if _is_in(module, room)]
    if found:
        return max(found, key=len)
    _, *parts = module.split(".")
    is_in_folder = len(parts) > 1 or (parts and graph.find_children(module))
    return parts[0] if ANY in law and is_in_folder else PACKAGE
