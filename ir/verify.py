"""The laws of each stage, checked between passes: which ops, of which dtypes, reading and writing inside which bounds.

In       the root of a graph and the name of the stage it claims to be in
Out      nothing, or notes on what could not be proved; VerifyError names stage, node and the law it breaks
Next     op.py (the stages), shape.py (shapes have their own net), conditional_bounds.py (bounds under a condition)

A stage is a row of STAGES: the ops it allows and one check per op. A later stage adds its checks to that row's table.
That graphs have no cycles needs no law: a node is made after its sources and never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple, NoReturn

from hcq.ir.affine import collect
from hcq.ir.bounds import bounds
from hcq.ir.conditional_bounds import bounds_given
from hcq.ir.dtype import Kind, dtypes
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.node import Node, Param, Routine, range_number, show_index
from hcq.ir.op import ARITHMETIC, COMPARE, MOVEMENT, REDUCTIONS, SCANS, Op
from hcq.ir.shape import Shape


class VerifyError(Exception):
    """A graph breaks a law of its stage: a mistake in the pass that made it, never in the user's program."""


Notes = list[str]
Check = Callable[[Node, Notes], None]


class Stage(NamedTuple):
    """`checks` has one entry per allowed op; `whole`, if any, looks at all nodes together."""

    name: str
    checks: dict[Op, Check]
    whole: Callable[[list[Node], Node], None] | None = None


def verify(root: Node, stage: str) -> Notes:
    """Check every node under the root.

    stage     "tensor", "kernel" or "linear"
    Returns   notes on what is allowed but not proved, such as a load's address
    Raises    VerifyError that names the node and the law it breaks; ValueError for an unknown stage
    """
    if stage not in STAGES:
        raise ValueError(f"verify(stage={stage!r}): the stages are {', '.join(STAGES)}")
    laws = STAGES[stage]
    notes: Notes = []
    nodes = root.toposort()
    for node in nodes:
        check = laws.checks.get(node.op)
        try:
            if check is None:
                _broken(node, "this op is not allowed here")
            check(node, notes)
        except _BrokenLaw as law:
            raise VerifyError(f"{stage} stage: {node!r}: {law}") from None
        except ValueError as mistake:
            raise VerifyError(f"{stage} stage: {node!r}: {mistake}") from None
    try:
        if laws.whole is not None:
            laws.whole(nodes, root)
    except _BrokenLaw as law:
        raise VerifyError(f"{stage} stage: {root!r}: {law}") from None
    return notes


class _BrokenLaw(Exception):
    """One law's sentence, before the stage and the node are put in front of it."""


def _broken(node: Node, law: str) -> NoReturn:
    raise _BrokenLaw(law)


# -- laws of every stage --------------------------------------------------------------------------------------------


def _arithmetic(node: Node, notes: Notes) -> None:
    op = node.op
    declared = ELEMENTWISE[op]
    wanted = len(declared.slopes)
    if len(node.src) != wanted:
        _broken(node, f"takes {wanted} sources, has {len(node.src)}")
    first = node.src[-1].dtype
    if op in COMPARE:
        if node.dtype is not dtypes.bool.vec(first.lanes):
            _broken(node, f"a comparison is bool, not {node.dtype.name}")
    elif op is Op.BITCAST:
        if node.dtype.itemsize != first.itemsize:
            _broken(node, f"{first.name} and {node.dtype.name} differ in size")
    elif op is not Op.CAST and node.dtype is not first:
        _broken(node, f"the dtype is {node.dtype.name}, the source's {first.name}")
    if wanted == 2 and node.src[0].dtype is not first:
        _broken(node, f"the sources' dtypes differ: {node.src[0].dtype.name} and {first.name}")
    if op is Op.WHERE:
        if node.src[1].dtype is not first:
            _broken(node, f"the choices' dtypes differ: {node.src[1].dtype.name} and {first.name}")
        if node.src[0].dtype.kind is not Kind.BOOL:
            _broken(node, f"the condition is {node.src[0].dtype.name}, not bool")
    if first.kind not in declared.takes.kinds:
        _broken(node, f"computes with {declared.takes.words}, not {first.name}")
    if first.is_storage_only and not declared.moves_bits:
        _broken(node, f"{first.name} is for storage; cast it before computing")


def _const(node: Node, notes: Notes) -> None:
    kind = node.dtype.kind
    wanted = float if kind is Kind.FLOAT else bool if kind is Kind.BOOL else int
    if type(node.arg) is not wanted or node.src:
        _broken(node, f"a {node.dtype.name} constant holds a Python {wanted.__name__}, not {node.arg!r}")
    if (
        wanted is int
        and kind is not Kind.INDEX
        and not int(node.dtype.min) <= node.arg <= int(node.dtype.max)
    ):
        _broken(node, f"{node.arg} is not a {node.dtype.name}")


def _param(node: Node, notes: Notes) -> None:
    if not isinstance(node.arg, Param) or node.arg.index < 0 or node.src:
        _broken(node, "a PARAM has no sources and the argument Param(index, shape, writable)")


def _any(node: Node, notes: Notes) -> None:
    pass


def _params_agree(nodes: list[Node]) -> None:
    seen: dict[int, Node] = {}
    for node in nodes:
        if node.op is Op.PARAM and seen.setdefault(node.arg.index, node) is not node:
            _broken(node, f"two different PARAMs have the index {node.arg.index}")


# -- tensor stage ---------------------------------------------------------------------------------------------------


def _shape(node: Node) -> Shape:
    """The node's shape; to ask is to check that its sources' shapes go together. Raises ValueError."""
    return node.shape


def _shaped(node: Node, notes: Notes) -> None:
    _shape(node)
    if node.dtype is not node.src[0].dtype:
        _broken(node, f"the dtype is {node.dtype.name}, the source's {node.src[0].dtype.name}")


def _tensor_arithmetic(node: Node, notes: Notes) -> None:
    _arithmetic(node, notes)
    _shape(node)


def _cat(node: Node, notes: Notes) -> None:
    for part in node.src:
        if part.dtype is not node.dtype:
            _broken(node, f"the dtype is {node.dtype.name}, a part's {part.dtype.name}")
    _shape(node)


def _gather(node: Node, notes: Notes) -> None:
    if not node.src[1].dtype.is_integer:
        _broken(node, f"the index is {node.src[1].dtype.name}; it must be an integer")
    _shaped(node, notes)


def _bucket(node: Node, notes: Notes) -> None:
    shift, bits = node.arg[:2]
    if not node.dtype.is_integer or not 0 <= shift < shift + bits <= 8 * node.dtype.itemsize:
        _broken(node, f"{node.dtype.name} has no bits {shift} to {shift + bits - 1}")
    if len(node.src) > 1 and node.src[1].dtype is not dtypes.int32:
        _broken(node, f"the counters are {node.src[1].dtype.name}, not int32")
    _shaped(node, notes)


def _routine(node: Node, notes: Notes) -> None:
    if type(node.arg).__module__.endswith(".own_program"):  # which few programs import
        _shape(node)
        return
    if not isinstance(node.arg, Routine) or not node.src:
        _broken(node, "a ROUTINE has sources, and the argument Routine(name, shape, numbers)")
    if node.dtype not in (dtypes.float32, dtypes.float64):
        _broken(node, f"routines compute in float32 or float64, not {node.dtype.name}")
    for source in node.src:
        if source.dtype is not node.dtype:
            _broken(node, f"the dtype is {node.dtype.name}, a source's {source.dtype.name}")
    _shape(node)


def _scatter(node: Node, notes: Notes) -> None:
    if not node.src[1].dtype.is_integer:
        _broken(node, f"the index is {node.src[1].dtype.name}; it must be an integer")
    if not node.dtype is node.src[0].dtype is node.src[2].dtype:
        _broken(node, f"base is {node.src[0].dtype.name}, values are {node.src[2].dtype.name}")
    _shape(node)


def _tensor_store(node: Node, notes: Notes) -> None:
    target, value, *_ = node.src
    if target.dtype is not value.dtype:
        _broken(node, f"stores {value.dtype.name} into {target.dtype.name}")
    while target.op in MOVEMENT:
        target = target.src[0]
    if target.op is not Op.PARAM or not target.arg.writable:
        _broken(node, f"the target is {target!r}, not a writable PARAM")
    _shape(node)


def _tensor_whole(nodes: list[Node], root: Node) -> None:
    _params_agree(nodes)


# -- kernel stage ---------------------------------------------------------------------------------------------------


def _range(node: Node, notes: Notes) -> None:
    if len(node.src) != 1 or node.src[0].op is not Op.CONST or node.dtype is not dtypes.index:
        _broken(node, "a RANGE is an index and has one source, its constant size")
    if node.src[0].arg < 1:
        _broken(node, f"a RANGE counts 1 turn or more, not {node.src[0].arg}")


def _load(node: Node, notes: Notes) -> None:
    if len(node.src) not in (2, 3):
        _broken(node, f"takes PARAM, index and maybe a condition, has {len(node.src)} sources")
    if node.dtype is not node.src[0].dtype:
        _broken(node, f"loads {node.dtype.name} from {node.src[0].dtype.name}")
    _address(node, node.src[0], node.src[1], node.src[2] if len(node.src) == 3 else None, notes)


def _store(node: Node, notes: Notes) -> None:
    if len(node.src) not in (3, 4):
        _broken(node, f"takes PARAM, index, value and maybe a condition, has {len(node.src)} sources")
    if node.src[2].dtype is not node.src[0].dtype:
        _broken(node, f"stores {node.src[2].dtype.name} into {node.src[0].dtype.name}")
    _address(node, node.src[0], node.src[1], node.src[3] if len(node.src) == 4 else None, notes)
    if not node.src[0].arg.writable:
        _broken(node, f"stores into p{node.src[0].arg.index}, which is not writable")


def _address(node: Node, param: Node, place: Node, valid: Node | None, notes: Notes) -> None:
    if param.op is not Op.PARAM:
        _broken(node, f"reads or writes a {param.op.name}, not a PARAM")
    if place.dtype is not dtypes.index:
        _broken(node, f"the index is {place.dtype.name}, not index")
    if valid is not None and valid.dtype is not dtypes.bool:
        _broken(node, f"the condition is {valid.dtype.name}, not bool")
    count = prod(param.arg.shape)
    low, high = bounds(place)
    if low >= 0 and high < count:
        return
    if valid is not None:
        low, high = bounds_given(place, valid)
        if low >= 0 and high < count:
            return
    where = f"p{param.arg.index}[{place!r}] may be {low}..{high} of {count} elements"
    if valid is None and _is_exact(place):
        _broken(node, where)
    notes.append(where if valid is None else f"{where} if {show_index(valid)}")


def _is_exact(place: Node) -> bool:
    """Whether the range of an index is what it truly takes: a sum of ranges, each counting on its own."""
    terms: dict[Node, int] = {}
    collect(((place, 1),), terms)
    return all(atom.op is Op.RANGE for atom in terms)


def _reduce(node: Node, notes: Notes) -> None:
    if node.arg not in REDUCTIONS:
        _broken(node, f"{node.arg!r} does not reduce")
    if len(node.src) < 2 or any(source.op is not Op.RANGE for source in node.src[1:]):
        _broken(node, "takes a value and one RANGE or more")
    if len(set(node.src[1:])) != len(node.src) - 1:
        _broken(node, "reduces over one RANGE twice")
    if node.dtype is not node.src[0].dtype:
        _broken(node, f"the dtype is {node.dtype.name}, the value's {node.src[0].dtype.name}")
    if node.src[0].op is Op.RESCALE and node.arg is not Op.ADD:
        _broken(node, f"rescales what {node.arg.name} reduces")


def _rescale(node: Node, notes: Notes) -> None:
    if len(node.src) != 2 or any(source.dtype is not node.dtype for source in node.src):
        _broken(node, "takes a value and a factor of its dtype")


def _former(node: Node, notes: Notes) -> None:
    if len(node.src) != 1 or node.src[0].op is not Op.REDUCE or node.src[0].dtype is not node.dtype:
        _broken(node, "takes a REDUCE of its dtype")


def _scan(node: Node, notes: Notes) -> None:
    if node.arg not in SCANS:
        _broken(node, f"{node.arg!r} does not scan")
    if len(node.src) not in (2, 3) or node.src[1].op is not Op.RANGE or isinstance(node.src[1].arg, int):
        _broken(node, "takes a value, an ordered RANGE, and maybe a start")
    if any(source.dtype is not node.dtype for source in (node.src[0], *node.src[2:])):
        _broken(node, f"the dtype is {node.dtype.name}, the value's {node.src[0].dtype.name}")


def _kernel_whole(nodes: list[Node], root: Node) -> None:
    _params_agree(nodes)
    if root.op is Op.SINK and any(store.op is not Op.STORE for store in root.src):
        _broken(root, "a kernel's SINK holds STOREs")
    numbers: dict[int, Node] = {}
    free: dict[Node, int] = {}  # the ranges a node depends on, one bit each
    reduced = 0
    for node in nodes:
        bits = 0
        for source in node.src:
            bits |= free[source]
        if node.op is Op.RANGE:
            number = range_number(node)
            if not isinstance(number, int) or numbers.setdefault(number, node) is not node:
                _broken(node, f"two RANGEs have the number {number}")
            bits = 1 << number
        elif node.op is Op.REDUCE:
            own = 0
            for place in node.src[1:]:
                own |= free[place]
            bits = free[node.src[0]] & ~own
            reduced |= own
        free[node] = bits
    for node in nodes:
        if node.op is Op.STORE and free[node] & reduced:
            _broken(node, f"{node!r} depends on a RANGE that is reduced over")


# -- the table ------------------------------------------------------------------------------------------------------

STAGES: dict[str, Stage] = {
    "tensor": Stage(
        "tensor",
        {
            **dict.fromkeys(ARITHMETIC, _tensor_arithmetic),
            **dict.fromkeys(MOVEMENT, _shaped),
            Op.CONST: _const,
            Op.PARAM: _param,
            Op.BUFFER: _any,
            Op.IOTA: _any,
            Op.REDUCE_AXIS: _shaped,
            Op.CONTIGUOUS: _shaped,
            Op.DETACH: _shaped,
            Op.FUNCTION: _shaped,
            Op.FIRST: _shaped,
            Op.COPY: _shaped,
            Op.ASSIGN: _shaped,
            Op.GATHER: _gather,
            Op.SCATTER_ADD: _scatter,
            Op.SCATTER: _scatter,
            Op.CAT: _cat,
            Op.SCAN_AXIS: _shaped,
            Op.BUCKET: _bucket,
            Op.ROUTINE: _routine,
            Op.STORE: _tensor_store,
            Op.SINK: _any,
        },
        _tensor_whole,
    ),
    "kernel": Stage(
        "kernel",
        {
            **dict.fromkeys(ARITHMETIC, _arithmetic),
            Op.CONST: _const,
            Op.PARAM: _param,
            Op.RANGE: _range,
            Op.LOAD: _load,
            Op.STORE: _store,
            Op.REDUCE: _reduce,
            Op.SCAN: _scan,
            Op.RESCALE: _rescale,
            Op.FORMER: _former,
            Op.SINK: _any,
        },
        _kernel_whole,
    ),
    # compiler/linear/linearize.py owns this row's ops: what is allowed here is open, arithmetic keeps its laws
    "linear": Stage("linear", {**dict.fromkeys(Op, _any), **dict.fromkeys(ARITHMETIC, _arithmetic)}),
}
