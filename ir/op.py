"""The operations of the graph: every word that a node can say, in the order of the stages that say them.

In       nothing
Out      `Op` and the groups that passes, tables and the verifier ask for
Next     node.py (the node that carries an op), elementwise/ (what there is to know of each arithmetic op), verify.py
         (stages)

A stage is a set of allowed ops: the *tensor* stage has shapes and movement, the *kernel* stage has ranges and indices,
the *linear* stage is a list of instructions. Arithmetic ops are common to all three.
"""

from __future__ import annotations

from enum import Enum, auto


class Op(Enum):
    """What a node says. Members compare by identity and hash at C speed."""

    __hash__ = object.__hash__

    # leaves
    CONST = auto()  # arg: a Python number of the node's dtype; shape ()
    BUFFER = auto()  # tensor stage: memory that exists; arg: a `Storage` (identity matters), shape from it
    # a kernel's argument; arg: Param(index, shape, writable); tensor stage inside a kernel, kernel, linear
    PARAM = auto()
    IOTA = auto()  # tensor stage: 0, 1, 2, ... n-1; arg: n; shape (n,)

    # arithmetic: one source
    NEG = auto()
    NOT = auto()  # logical for bool, bitwise for integers
    SQRT = auto()
    EXP = auto()
    EXP2 = auto()
    LOG = auto()
    LOG2 = auto()
    SIN = auto()
    COS = auto()
    TRUNC = auto()  # towards zero, stays floating point
    CAST = auto()  # value conversion to the node's dtype; float to integer saturates, NaN becomes 0
    BITCAST = auto()  # the same bits under another dtype of the same size

    # arithmetic: two sources of one dtype (comparisons give bool)
    ADD = auto()
    MUL = auto()
    DIV = auto()  # floating point only
    FLOORDIV = auto()  # integers, rounds down; x // 0 is 0
    MOD = auto()  # integers, sign of the divisor; x % 0 is 0
    MAX = auto()  # NaN if either is NaN
    MIN = auto()  # NaN if either is NaN
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()  # a count of the width or more gives 0
    SHR = auto()  # arithmetic for signed, logical for unsigned; a large count gives the sign, or 0
    CMPLT = auto()
    CMPLE = auto()
    CMPEQ = auto()
    CMPNE = auto()

    # arithmetic: three sources
    WHERE = auto()  # condition (bool), if true, if false

    # movement, tensor stage: views that cost nothing at run time
    RESHAPE = auto()  # arg: new shape
    PERMUTE = auto()  # arg: order of the source's axes
    EXPAND = auto()  # arg: new shape; axes of size 1 repeat
    PAD = auto()  # arg: (low, high) per axis; the padding reads as zero
    SHRINK = auto()  # arg: (start, stop, step) per axis, 0 <= start <= stop <= size, step >= 1
    FLIP = auto()  # arg: axes that run backwards
    # arg: (axis, size, step, dilation): axis becomes the window's number, a last axis the place inside it
    WINDOW = auto()
    # arg: (axis, length, step, dilation): undoes WINDOW, spread over the last axis; gaps read as zero
    UNWINDOW = auto()

    # tensor stage: values
    REDUCE_AXIS = auto()  # arg: (ADD | MUL | MAX | MIN, axes); the axes stay, with size 1
    # src: x, index; arg: axis; out[.., i, ..] = x[.., index[.., i, ..], ..]; outside reads as zero
    GATHER = auto()
    # src: base, index, x; arg: axis; base + sums of x at index along axis; outside is dropped
    SCATTER_ADD = auto()
    CONTIGUOUS = auto()  # the same value, written to memory of its own
    DETACH = auto()  # the same value, no gradient flows
    FUNCTION = auto()  # src: value, arguments; arg: a `Function`; the value, with slopes of its own
    # src: a view of a BUFFER or of an ASSIGN, a value; the whole buffer afterwards. Once simplified also
    # src: view, index, x; arg: axis: what a SCATTER into the view would write, and nothing else
    ASSIGN = auto()
    COPY = auto()  # the same value on another device; arg: the device's name
    SINK = auto()  # the roots of a graph; any stage

    # kernel stage: ranges and memory
    RANGE = auto()  # src: (size,); arg: an id; counts 0 .. size-1; dtype index
    LOAD = auto()  # src: PARAM, index[, valid]; an invalid load reads as zero
    # src: PARAM, index, value[, valid]; arg: None, or NEEDED: then where `valid` does not hold it may be stored or not.
    # Tensor stage: src: target, value[, needed]
    STORE = auto()
    REDUCE = auto()  # src: value, RANGE...; arg: ADD | MUL | MAX | MIN

    # linear stage: see compiler/linear/linearize.py
    LOOP = auto()
    ENDLOOP = auto()
    ACCUMULATOR = auto()
    UPDATE = auto()
    SCRATCH = auto()
    BROADCAST = auto()
    LANE = auto()
    VECTOR = auto()
    SPECIAL = auto()

    # tensor stage: more values. They stand here because terms of an index are ordered by the numbers of their ops
    # src: base, index, x; arg: axis; base with x put at index along axis; the last of equal indices stays
    SCATTER = auto()
    CAT = auto()  # src: any number of parts; arg: axis; one after the other along it
    # src: x[, start of size 1 along the axis]; arg: (ADD | MUL, axis); each element with all before it along the axis
    SCAN_AXIS = auto()
    # src: integers (rows, n)[, counters]; arg: (shift, bits); each row in the stable order of these bits.
    # The scheduler gives it (rows, pieces, n / pieces) and, in counters (rows, pieces, 2 ** bits), where each piece's
    # first element of each kind goes; they are counted up in place. With arg (shift, bits, True) they are only read:
    # each element finds by scans how many of its kind are before it in its piece, which has fewer than 65536
    BUCKET = auto()
    # kernel stage: src: value, an ordered RANGE[, start]; arg: ADD | MUL; the value with those of all earlier turns
    SCAN = auto()

    # linear stage: threads of a group
    ACROSS = auto()
    BEFORE = auto()
    SHUFFLE = auto()
    SHARED = auto()
    BARRIER = auto()
    MATRIX = auto()
    LOAD_ROWS = auto()
    ROUND_TF32 = auto()  # a float32 with 10 bits of fraction, the nearest, of two the one further from zero
    COPY_SHARED = auto()
    COMMIT = auto()
    WAIT = auto()

    # linear stage: matrix units that read shared memory
    DESCRIPTOR = auto()
    WARPGROUP_HELD = auto()
    WARPGROUP_FENCE = auto()
    WARPGROUP_MATRIX = auto()
    WARPGROUP_WAIT = auto()
    WARPGROUP_RESULT = auto()
    TENSOR_MEMORY = auto()
    TENSOR_HELD = auto()
    TENSOR_MATRIX = auto()
    TENSOR_COMMIT = auto()
    TENSOR_RESULT = auto()
    TENSOR_FREE = auto()

    # linear stage: tiles that a GPU copies by itself
    MBARRIERS = auto()
    EXPECT_TILES = auto()
    COPY_TILE = auto()
    WAIT_TILES = auto()
    FREE_TILES = auto()
    PRODUCER = auto()
    DOT = auto()

    # kernel stage: sums whose terms have a common factor that changes on the way
    # src: value, factor; summed: at each step the sum so far is multiplied by the factor, then the value is added
    RESCALE = auto()
    FORMER = auto()  # src: REDUCE; what that reduction was before this step of its ranges

    # tensor stage, before it is scheduled: src: x, count; arg: axis; x, of which the first `count` elements along the
    # axis mean something. The shape is x's: it says for how many there is room
    FIRST = auto()

    # tensor stage: src: any number of values, which are in memory; arg: a Routine; what that kernel makes of them
    ROUTINE = auto()

    def __repr__(self) -> str:
        return self.name


_ORDER = tuple(Op)


def _span(first: Op, last: Op) -> frozenset[Op]:
    """The ops from one to another, as they stand above."""
    return frozenset(_ORDER[_ORDER.index(first) : _ORDER.index(last) + 1])


UNARY = _span(Op.NEG, Op.BITCAST)
COMPARE = _span(Op.CMPLT, Op.CMPNE)
BINARY = _span(Op.ADD, Op.CMPNE)
ARITHMETIC = _span(Op.NEG, Op.WHERE)
MOVEMENT = _span(Op.RESHAPE, Op.UNWINDOW)
TRANSCENDENTAL = frozenset({Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS})
SCATTERS = frozenset({Op.SCATTER_ADD, Op.SCATTER})
REDUCTIONS = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MIN})
SCANS = frozenset({Op.ADD, Op.MUL})  # what a scan runs
NEEDED = "needed"
