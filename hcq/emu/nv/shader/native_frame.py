"""The function around the nodes of compiled PTX: it takes warp after warp, and block after block.

In       the lines of all nodes, what each way out means
Out      the text of a module with a function `run`
Next     native_text.py (nodes), native_order.py (what it is passed), hcq/emu/compiled/assemble.py (machine code)

Warps of a block run one after the other until none can go on. Where all threads of the block that have not ended stand
at one barrier, or four warps at one product of a warpgroup, they go on behind it, and the block runs again; else the
next block does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.emu.compiled import accesses
from hcq.emu.compiled.writer import declarations
from hcq.emu.nv.shader import native_library, native_warps
from hcq.emu.nv.shader.lane_numbers import WARP
from hcq.emu.nv.shader.native_order import EXIT, FIELDS, PLACES
from hcq.emu.nv.shader.native_queues import QUEUE_BYTES

if TYPE_CHECKING:
    from hcq.emu.nv.shader.native_text import Text


class Meet(NamedTuple):
    """A way out where others are awaited: the node behind it, and its block if a path may end there, else -1.

    product   the function that is called when four warps have come; "" for a barrier of a block
    """

    node: int
    rejoins: int
    product: str = ""


def _meeting(meets: dict[int, Meet], own_bytes: int) -> list[str]:
    """Lines: a block has run as far as it goes; do all stand at one barrier, or four warps at one product?"""
    if not meets:
        return ["met:", "  br label %next"]
    barriers = {number: meet for number, meet in meets.items() if not meet.product}
    products = {number: meet for number, meet in meets.items() if meet.product}
    cases = " ".join(f"i32 {EXIT + number}, label %meet{number}" for number in barriers)
    lines = [
        "met:",
        "  %whole = icmp eq i64 %meets, 0",
        "  %far = icmp ugt i64 %sofar, %most",
        "  %no = or i1 %whole, %far",
        "  br i1 %no, label %next, label %ask",
        "ask:",
        "  %at = call i32 @gathered(ptr %pcs, ptr %lives, i64 %first_warp, i64 %until, i64 %ended)",
        f"  switch i32 %at, label %{'groups' if products else 'next'} [ {cases} ]",
    ]
    for number, meet in barriers.items():
        lines += [
            f"meet{number}:",
            f"  %rejoins{number} = icmp eq i64 %rejoin, {meet.rejoins if meet.rejoins >= 0 else (1 << 62)}",
            f"  br i1 %rejoins{number}, label %next, label %pass{number}",
            f"pass{number}:",
            f"  call void @let_go(ptr %pcs, i64 %first_warp, i64 %until, i32 {EXIT + number}, i32 {meet.node})",
            "  br label %round",
        ]
    return lines + _products(products, own_bytes) if products else lines


def _of_copies(text: Text) -> list[str]:
    """Lines: the queue of a warp's copies, and how many groups of them its threads have ended."""
    if not text.layout.has_copies:
        return []
    return [
        f"  %queueat = mul i64 %number, {QUEUE_BYTES}",
        "  %queue = getelementptr i8, ptr %queues, i64 %queueat",
        f"  %endings = getelementptr [{WARP} x i64], ptr %allended, i64 %number",
    ]


def _products(meets: dict[int, Meet], own_bytes: int) -> list[str]:
    """Lines: warpgroup after warpgroup of a block, those that are at a product carry it out and go on."""
    cases = " ".join(f"i32 {EXIT + number}, label %group{number}" for number in meets)
    returns = " ".join(f"[true, %passed{number}]," for number in meets)
    lines = [
        "groups:",
        "  br label %group",
        "group:",
        "  %g = phi i64 [%first_warp, %groups], [%g4, %gnext]",
        "  %went = phi i1 [false, %groups], [%goes, %gnext]",
        "  %g4 = add i64 %g, 4",
        "  %gfits = icmp ule i64 %g4, %until",
        "  br i1 %gfits, label %gask, label %gend",
        "gask:",
        f"  %gown = mul i64 %g, {own_bytes}",
        "  %gfile = getelementptr i8, ptr %file, i64 %gown",
        f"  %gstartp = getelementptr [{WARP} x i64], ptr %allstarts, i64 %g",
        "  %gstart = load i64, ptr %gstartp",
        "  %gshared = inttoptr i64 %gstart to ptr",
        "  %gat = call i32 @of_group(ptr %pcs, i64 %g)",
        f"  switch i32 %gat, label %gstays [ {cases} ]",
        "gstays:",
        "  br label %gnext",
    ]
    for number, meet in meets.items():
        arguments = f"ptr %gfile, i64 {own_bytes}, ptr %gshared, i64 %sharedsize"
        lines += [
            f"group{number}:",
            f"  %made{number} = call i1 @{meet.product}({arguments})",
            f"  br i1 %made{number}, label %passed{number}, label %gstays",
            f"passed{number}:",
            f"  call void @let_go(ptr %pcs, i64 %g, i64 %g4, i32 {EXIT + number}, i32 {meet.node})",
            "  br label %gnext",
        ]
    return [
        *lines,
        "gnext:",
        f"  %goes = phi i1 {returns} [%went, %gstays]",
        "  br label %group",
        "gend:",
        "  br i1 %went, label %round, label %next",
    ]


def function(text: Text, body: list[str], meets: dict[int, Meet], heads: list[str]) -> str:
    """The whole module. meets: which ways out are barriers. heads: labels where threads come to a node, by number."""
    whole = "\n".join(body)
    cases = " ".join(f"i32 {number}, label %{label}" for number, label in enumerate(heads))
    fields = []
    listed = [(PLACES[name], name, kind) for name, kind in FIELDS]
    for place, name, kind in (*listed, (accesses.SITES, "sites", "ptr")):
        fields += [
            f"  %p_{name} = getelementptr i64, ptr %table, i64 {place}",
            f"  %{name} = load {kind}, ptr %p_{name}",
        ]
    helpers = "\n".join(text.helpers).splitlines()
    text.libraries = native_library.used("\n".join((whole, *helpers)))
    own = [*HELPERS.splitlines(), *helpers]
    declared = {line for line in own if line.startswith("declare")} | declarations([*body, *helpers])
    declared |= {line for line in native_warps.DECLARED if line.partition("@")[2].partition("(")[0] in whole}
    declared |= set(native_library.declarations(text.libraries))
    defined = list(dict.fromkeys(line for line in own if line.startswith("@")))  # constants that several have
    defined += [line for line in own if not line.startswith(("declare", "@"))]
    kind = f"<{WARP} x i32>"
    bytes_ = max(64, text.layout.size_bytes)
    made = "\n".join(
        [
            *sorted(declared),
            *defined,
            'attributes #0 = { "min-legal-vector-width"="512" }',
            'define i32 @run(ptr %table) "min-legal-vector-width"="512" {',
            "start:",
            "  %pick = alloca [32 x i64], align 64",
            "  %mask = alloca i32",
            "  %least = alloca i32",
            "  %fuel = alloca i64",
            "  %longest = alloca i64",
            "  %total = alloca i64",
            *fields,
            "  br label %block",
            "block:",
            "  %first_warp = phi i64 [%begin, %start], [%until, %next]",
            "  %behind = add i64 %first_warp, %perblock",
            "  %within = icmp ult i64 %behind, %count",
            "  %until = select i1 %within, i64 %behind, i64 %count",
            "  store i64 0, ptr %total",
            "  br label %round",
            "round:",
            "  store i64 0, ptr %longest",
            "  br label %warp",
            "warp:",
            "  %number = phi i64 [%first_warp, %round], [%after, %done]",
            f"  %ownat = mul i64 %number, {bytes_}",
            "  %own = getelementptr i8, ptr %file, i64 %ownat",
            f"  %pc = getelementptr [{WARP} x i32], ptr %pcs, i64 %number",
            "  %livep = getelementptr i32, ptr %lives, i64 %number",
            "  %live = load i32, ptr %livep",
            f"  %starts = getelementptr [{WARP} x i64], ptr %allstarts, i64 %number",
            f"  %locals = getelementptr [{WARP} x i64], ptr %alllocals, i64 %number",
            *_of_copies(text),
            "  store i64 %most, ptr %fuel",
            "  br label %meet",
            "meet:",
            f"  %where = load <{WARP} x i32>, ptr %pc, align 64",
            f"  %first = call i32 @llvm.vector.reduce.umin.v{WARP}i32(<{WARP} x i32> %where)",
            f"  %none = icmp uge i32 %first, {EXIT}",
            "  %rest = load i64, ptr %fuel",
            "  %spent = icmp slt i64 %rest, 0",
            "  %stop = or i1 %none, %spent",
            "  br i1 %stop, label %done, label %choose",
            "choose:",
            f"  %firsts = insertelement <{WARP} x i32> poison, i32 %first, i64 0",
            f"  %every = shufflevector {kind} %firsts, {kind} poison, {kind} zeroinitializer",
            f"  %here = icmp eq <{WARP} x i32> %where, %every",
            f"  %bits = bitcast <{WARP} x i1> %here to i32",
            "  store i32 %bits, ptr %mask",
            f"  %others = select <{WARP} x i1> %here, <{WARP} x i32> splat (i32 -1), <{WARP} x i32> %where",
            f"  %second = call i32 @llvm.vector.reduce.umin.v{WARP}i32(<{WARP} x i32> %others)",
            "  store i32 %second, ptr %least",
            f"  switch i32 %first, label %nowhere [ {cases} ]",
            "nowhere:",
            "  unreachable",
            *body,
            "done:",
            "  %used = sub i64 %most, %rest",
            "  %before = load i64, ptr %longest",
            "  %is_more = icmp ugt i64 %used, %before",
            "  %longer = select i1 %is_more, i64 %used, i64 %before",
            "  store i64 %longer, ptr %longest",
            "  %after = add i64 %number, 1",
            "  %again = icmp ult i64 %after, %until",
            "  br i1 %again, label %warp, label %over",
            "over:",
            "  %sum = load i64, ptr %total",
            "  %sofar = add i64 %sum, %longer",
            "  store i64 %sofar, ptr %total",
            "  br label %met",
            *_meeting(meets, bytes_),
            "next:",
            "  %most_so_far = load i64, ptr %p_executed",
            "  %is_most = icmp ugt i64 %sofar, %most_so_far",
            "  %longest_block = select i1 %is_most, i64 %sofar, i64 %most_so_far",
            "  store i64 %longest_block, ptr %p_executed",
            "  %another = icmp ult i64 %until, %count",
            "  br i1 %another, label %block, label %end",
            "end:",
            "  ret i32 0",
            "}",
            "",
        ]
    )
    return native_library.renamed(made, text.libraries)


HELPERS = f"""
declare i32 @llvm.vector.reduce.umin.v{WARP}i32(<{WARP} x i32>)

define internal void @park(ptr %pc, i32 %who, i32 %code) alwaysinline {{
  %on = bitcast i32 %who to <{WARP} x i1>
  %old = load <{WARP} x i32>, ptr %pc, align 64
  %one = insertelement <{WARP} x i32> poison, i32 %code, i64 0
  %all = shufflevector <{WARP} x i32> %one, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  %new = select <{WARP} x i1> %on, <{WARP} x i32> %all, <{WARP} x i32> %old
  store <{WARP} x i32> %new, ptr %pc, align 64
  ret void
}}
"""
