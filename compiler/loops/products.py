"""Products: loops of a sum of products become one instruction of a matrix unit, or of a processor's dot products.

In       a nest whose innermost loops have the instruction's sizes
Out      the nest with those loops as threads and registers of the instruction, or as its words
Changes  the nest
Next     instructions.py (who asks), matrix_units.py, dot_units.py (the instructions and their layouts), nest.py
"""

from __future__ import annotations

from hcq.compiler.loops.dot_units import DOTS, matched
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, Parts, widened
from hcq.compiler.loops.nest import Chained, DotUse, MatrixUse, Nest, ScheduleError
from hcq.compiler.loops.scaled import factors_of, is_for_blocks
from hcq.ir.node import Node
from hcq.ir.op import Op


def matrix(nest: Nest, m: str, n: str, k: str, unit: str) -> None:
    """`Instructions.matrix`."""
    text = f"matrix {m} {n} {k} {unit}"
    found = UNITS.get(unit)
    if found is None:
        raise ScheduleError(f"{text}: no such unit; there are {', '.join(UNITS)}")
    if nest.digits:
        raise ScheduleError(f"{text}: the threads of a wave come before other threads")
    loops = [nest.loop(name) for name in (m, n, k)]
    for loop, dimension in zip(loops, "mnk", strict=True):
        size = found.size(dimension)
        if loop.kind != "serial" or loop is not loop.axis.loops[-1] or loop.size != size:
            raise ScheduleError(f"{text}: {loop.name} is not an innermost, unbound loop of {size} steps")
        if loop.axis.size % loop.axis.loops[0].stride:
            raise ScheduleError(f"{text}: {loop.axis.name} is cut short; pad it first")
    axes = [loop.axis for loop in loops]
    if len(set(map(id, axes))) < len(axes):
        raise ScheduleError(f"{text}: m, n and k are not three ranges")
    nest.unit, *nest.beside = _products(nest, text, found, *axes)
    nest.digits += found.digits
    for loop, parts in zip(loops, (found.d_m, found.d_n, found.k), strict=True):
        _take_apart(nest, loop, parts, may_be_vector=loop is not loops[0])
    nest.choices.append(text)


def _products(nest: Nest, text: str, unit: MatrixUnit, m: Axis, n: Axis, k: Axis) -> list[MatrixUse]:
    """The sums of products along k, with their factors in the unit's own format."""
    sums = [node for node in nest.reduces if k.range in node.src[1:]]
    if not sums or (len(sums) > 1 and unit.reads_shared):
        raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
    uses = []
    for node in sums:
        if node.arg is not Op.ADD or node.src[0].op is not Op.MUL:
            raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
        if node.dtype is not unit.result:
            raise ScheduleError(f"{text}: the sum is of {node.dtype.name}, the unit's of {unit.result.name}")
        sides = m.bit | n.bit
        found = factors_of(node.src[0], nest.masks, sides)
        factors = {nest.masks[one.value] & sides: _widened(nest, one.value, unit) for one in found}
        if set(factors) != {m.bit, n.bit}:
            raise ScheduleError(f"{text}: the factors are not one of {m.name} and one of {n.name}")
        scales = {nest.masks[one.value] & sides: one.exponents for one in found}
        for exponents in filter(None, scales.values()):
            if not unit.blocks or not is_for_blocks(exponents, k.range):
                raise ScheduleError(f"{text}: factors have scales, not of such blocks as {unit.name} takes")
        for bit, dtype in ((m.bit, unit.a), (n.bit, unit.b)):
            if factors[bit].dtype is not dtype:
                raise ScheduleError(
                    f"{text}: a factor is {factors[bit].dtype.name}, the unit takes {dtype.name}"
                )
        of_both = scales[m.bit], scales[n.bit]
        uses.append(MatrixUse(unit, node, m, n, k, factors[m.bit], factors[n.bit], of_both))
    return uses


def _widened(nest: Nest, factor: Node, unit: MatrixUnit) -> Node:
    """A factor of 8 bits as a unit takes it that does not take such, from registers."""
    if factor.dtype in (unit.a, unit.b) or unit.reads_shared or unit.a is not widened(factor.dtype):
        return factor
    made = factor.cast(unit.a)
    nest.masks.setdefault(made, nest.masks[factor])
    return made


def chain(nest: Nest, name: str) -> None:
    """`Instructions.chain`."""
    text, loop, first = f"chain {name}", nest.loop(name), nest.unit
    if first is None or not first.unit.a_m:
        raise ScheduleError(f"{text}: no matrix unit holds a product in registers")
    unit = first.unit
    if not unit.takes_made:
        raise ScheduleError(f"{text}: what was made is not rounded to {unit.a.name}")
    key = next((axis for axis in (first.n, first.m) if axis.is_reduce), None)
    if key is None:
        raise ScheduleError(f"{text}: neither {first.m.name} nor {first.n.name} is summed over")
    is_a = key is first.n  # rows stay rows: what was made is the left factor
    row = first.m if is_a else first.n
    if unit.reads_shared:
        unit = _as_wide(unit, loop.size)
    size = unit.size("n" if is_a else "m")
    if loop.kind != "serial" or loop is not loop.axis.loops[-1] or loop.size != size or loop.axis.is_reduce:
        raise ScheduleError(f"{text}: {name} is not an innermost, unbound loop of {size} steps")
    if loop.axis.size % loop.axis.loops[0].stride:
        raise ScheduleError(f"{text}: {loop.axis.name} is cut short; pad it first")
    if unit.d_m != unit.a_m if is_a else unit.d_n != unit.b_n:
        raise ScheduleError(f"{text}: {unit.name} gives results to other threads than it takes operands of")
    if operand_parts(key, unit) is None and not exchanged(key, unit.k_of_made):
        raise ScheduleError(f"{text}: {key.name} lies otherwise than {unit.name} takes it")
    column = loop.axis
    sums = [n for n in nest.reduces if key.range in n.src[1:] and nest.masks[n] & column.bit]
    if not sums:
        raise ScheduleError(f"{text}: no sum over {key.name} differs along {column.name}")
    for node in sums:
        nest.chained.append(Chained(_chained(nest, text, node, unit, row, column, key, is_a), is_a))
    parts = unit.d_n if is_a else unit.d_m
    _take_apart(nest, loop, parts, may_be_vector=True)
    nest.choices.append(text)


def _as_wide(unit: MatrixUnit, columns: int) -> MatrixUnit:
    """A unit's sister that has so many columns of results: they work together. The unit itself where it has none."""
    alike = [each for each in UNITS.values() if each.digits == unit.digits and each.archs == unit.archs]
    wanted = unit.a, columns
    return next((each for each in alike if (each.a, each.size("n")) == wanted), unit)


def _chained(
    nest: Nest, text: str, node: Node, unit: MatrixUnit, row: Axis, column: Axis, key: Axis, is_a: bool
) -> MatrixUse:
    """The product that a sum is: one factor of all that does not differ along the column, the other one loaded."""
    value = node.src[0].src[0] if node.src[0].op is Op.RESCALE else node.src[0]
    factors, stack = [], [value]
    while stack:
        factor = stack.pop()
        if factor.op is Op.MUL:
            stack.extend(factor.src)
        else:
            factors.append(factor)
    loaded = [factor for factor in factors if nest.masks[factor] & column.bit]
    made = [factor for factor in factors if not nest.masks[factor] & column.bit]
    if node.arg is not Op.ADD or len(loaded) != 1 or not made or nest.masks[loaded[0]] & row.bit:
        raise ScheduleError(f"{text}: a sum is no product of what was made and what is loaded")
    other = loaded[0].src[0] if loaded[0].op is Op.CAST else loaded[0]
    if other.op is not Op.LOAD or other.dtype is not unit.a or unit.b is not unit.a:
        raise ScheduleError(f"{text}: the other factor is no load of {unit.a.name}")
    whole = made[0]
    for factor in made[1:]:
        whole = Node(Op.MUL, whole.dtype, (whole, factor))
        nest.masks.setdefault(whole, nest.masks[whole.src[0]] | nest.masks[factor])
    if is_a:
        return MatrixUse(unit, node, row, column, key, whole, other)
    return MatrixUse(unit, node, column, row, key, other, whole)


def _take_apart(nest: Nest, loop: Loop, parts: Parts, may_be_vector: bool) -> None:
    """A loop becomes threads and registers of a matrix unit."""
    axis, stride = loop.axis, loop.stride
    at = axis.loops.index(loop)
    axis.loops.remove(loop)
    nest.order.remove(loop)
    for size, digit in reversed(parts):
        axis.splits += 1
        kind = "thread" if digit != HELD else "vector" if may_be_vector and stride == 1 else "unroll"
        part = Loop(f"{axis.name}.{axis.splits}", axis, size, stride, kind, digit, digit == HELD)
        axis.loops.insert(at, part)
        stride *= size


def dot(nest: Nest, name: str, unit: str) -> None:
    """`Instructions.dot`."""
    text, found, loop = f"dot {name} {unit}", DOTS.get(unit), nest.loop(name)
    if found is None:
        raise ScheduleError(f"{text}: no such unit; there are {', '.join(DOTS)}")
    axis = loop.axis
    if loop.kind != "serial" or loop is not axis.loops[-1] or loop.size != found.depth or axis.is_ordered:
        raise ScheduleError(
            f"{text}: {name} is not an innermost, unbound loop of {found.depth} steps in any order"
        )
    sums = [node for node in nest.reduces if axis.range in node.src[1:]]
    if len(sums) != 1 or sums[0].arg is not Op.ADD or sums[0].src[0].op is not Op.MUL or nest.dots:
        raise ScheduleError(f"{text}: {axis.name} is not that of one sum of products")
    if nest.digits or nest.stages:
        raise ScheduleError(f"{text}: it comes before stages, and groups have no threads")
    factors = matched(sums[0].src[0].src, found)
    if factors is None or sums[0].dtype is not found.result:
        raise ScheduleError(
            f"{text}: the unit multiplies {found.a.name} by {found.b.name} and adds up in {found.result.name}"
        )
    for factor in factors:
        nest.masks.setdefault(factor, nest.masks[factor.src[0]])
    nest.dots = DotUse(found, sums[0], axis, *factors)
    loop.kind = "dot"
    nest.order.remove(loop)
    nest.choices.append(text)


def operand_parts(axis: Axis, unit: MatrixUnit) -> Parts | None:
    """The innermost steps of an axis as the k of a unit's operands; None where other threads hold them.

    In which order they come does not matter, as long as both operands have the same: the unit adds up over k.
    """
    parts: list[tuple[int, int]] = []
    size = unit.size("k")
    for loop in reversed(axis.loops):
        if size == 1:
            break
        part = min(loop.size, size)
        if loop.kind not in ("thread", "unroll", "vector") or size % part or loop.size % part:
            return None
        if loop.kind == "thread" and part < loop.size:
            return None
        parts.insert(0, (part, loop.digit if loop.kind == "thread" else HELD))
        size //= part
    threads = [[part for part in some if part[1] != HELD] for some in (parts, unit.k_of_made)]
    return tuple(parts) if size == 1 and threads[0] == threads[1] else None


def exchanged(axis: Axis, parts: Parts) -> bool:
    """Whether each pair of an axis is in two threads, both of which want all of it in registers."""
    last = axis.loops[-1]
    return len(parts) == 1 and parts[0][1] == HELD and last.kind == "thread" and last.size == 2
