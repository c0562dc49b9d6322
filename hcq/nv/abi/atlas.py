"""NVIDIA's interface at each release of its kernel driver, for `python -m hcq abi`.

In       structures.py (layouts, releases), ioctls.py (calls, controls, what objects are allocated with)
Out      ATLAS
Next     hcq/system/abi_atlas.py (what an atlas is), hcq/atlas/ (who compares)
Source   at the top of data/structures.tsv

A layout of the file holds for a whole branch, such as 580, and until the branch that has the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from hcq.layout import Ioctl
from hcq.nv.abi import ioctls, structures
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.names import class_name, control_name, escape_name, uvm_name
from hcq.system.abi_atlas import Atlas, Call, Interface, Made, Structure, fields_of

MAGIC = ord("F")
UVM_NUMBERS = 0x1000  # a request below this is a plain number, as only UVM's are
UVM_STARTS = (0x30000001, 0x30000002)
ESCAPE, UVM, CONTROL, CLASS = "escape", "UVM call", "control", "class"  # sorts of calls
# what drivers other than ours ask, beside what ioctls.py declares: sort, number, structure
OTHERS = (
    (ESCAPE, 0x57, "MapMemoryDma"),
    (ESCAPE, 0x58, "UnmapMemoryDma"),
    (CONTROL, 0x0000013E, "BuildVersionV2"),
    (CONTROL, 0x00800201, "Classlist"),
    (CONTROL, 0x2080130E, "FlushGpuCache"),
    (CONTROL, 0xA06C0102, "Bind"),
    (CONTROL, 0xA06F0104, "Bind"),
    (CLASS, 0x0070, "VirtualMemoryAlloc"),
)


class NvAtlas(Atlas):
    """Structures of 100 public releases, and of newer ones that were read in part."""

    name = "nv"
    title = "NVIDIA's kernel modules: resource manager and unified memory"
    exact_sizes = True
    kind = "NV"
    release_fact = "driver"
    nodes = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{number}" for number in range(10)))
    source = "headers of NVIDIA's open kernel modules, as a compiler lays them out"

    def releases(self) -> tuple[str, ...]:
        """Those of the file, then the ones of which only a part was read."""
        return (*structures.releases(), *map(str, ioctls.PARTLY_READ))

    def release_note(self, release: str) -> str:
        """Of a release that was read in part, which part."""
        note = ioctls.PARTLY_READ.get(int(release.partition(".")[0]), "")
        return f"nv {release}: {note}." if note else ""

    @cache  # noqa: B019 - there is one atlas
    def at(self, release: str) -> Interface:
        """Every structure in its layout of that branch, and every call that is declared."""
        branch = int(release.partition(".")[0])
        found = {}
        for name in structures.names():
            row = [row for row in structures.rows_of(name) if row.release <= branch][-1:]
            found.update({one.name: _structure(one) for one in row})
        return Interface(release, found, {(call.sort, call.number): call for call in _calls(found)})

    def call_name(self, sort: str, number: int) -> str:
        """Names of the headers, which has them also of what this driver never uses."""
        return _NAMES[sort](number)

    def made(self, request: int, argument: bytes, behind: Mapping[str, bytes]) -> tuple[Made, ...]:
        """An escape, with the control or the class that it is for; or a call of UVM."""
        if request < UVM_NUMBERS or request in UVM_STARTS:
            return (Made(UVM, request, argument),)
        if request >> 8 & 0xFF != MAGIC:
            return ()
        own = Made(ESCAPE, request & 0xFF, argument)
        for call, field, sort, pointer in (
            (ioctls.RM_CONTROL, "cmd", CONTROL, "params"),
            (ioctls.RM_ALLOC, "hclass", CLASS, "pallocparms"),
        ):
            if request & 0xFF == call.request & 0xFF and call.layout is not None:
                at = call.layout.fields[field].byte_offset
                number = int.from_bytes(argument[at : at + 4], "little")
                return (own, Made(sort, number, behind.get(pointer)))
        return (own,)

    def logged(
        self, request: int, argument: bytes | None, params: bytes, notes: Sequence[tuple[str, int]]
    ) -> tuple[Made, ...]:
        """As made; a proxy may say which control or class it was where the log has no bytes."""
        made = self.made(
            request, argument or b"", dict.fromkeys(("params", "pallocparms"), params) if params else {}
        )
        if argument is not None or not made:
            return made
        told = [Made(CONTROL if "control" in what else CLASS, number, None) for what, number in notes]
        return (made[0]._replace(data=None), *told)


def _structure(row: structures.Row) -> Structure:
    owner = f"{structures.FILE.name}: {row.name} of {row.release}"
    return Structure(
        row.name,
        row.header_name,
        row.size_bytes,
        fields_of(row.fields, row.size_bytes, owner),
        str(row.release),
        row.remark,
    )


def _calls(known: Mapping[str, Structure]) -> list[Call]:
    """Every call whose structure is declared. An escape is known by its number alone, whatever its size is."""
    found = []
    for call in vars(ioctls).values():
        if isinstance(call, Ioctl):
            is_escape = call.request >> 8 & 0xFF == MAGIC
            sort, number = (ESCAPE, call.request & 0xFF) if is_escape else (UVM, call.request)
            found.append(Call(sort, number, call.name, call.layout.__name__ if call.layout else ""))
    found += [Call(sort, number, _NAMES[sort](number), name) for sort, number, name in OTHERS]
    found += [Call(CONTROL, int(key), control_name(key), name) for key, name in ioctls.CONTROLS.items()]
    found += [Call(CLASS, int(key), class_name(key), name) for key, name in ioctls.ALLOCATIONS.items()]
    found += [Call(CLASS, int(one), one.name, "GrAlloc") for one in ClassId if "COMPUTE" in one.name]
    return [call for call in found if not call.structure or call.structure in known]


_NAMES = {ESCAPE: escape_name, UVM: uvm_name, CONTROL: control_name, CLASS: class_name}
ATLAS = NvAtlas()
