"""Ways: the lowerings that a kernel's schedule calls for, each imported when a kernel first needs it.

In       a kernel's Context
Out      for each job the ways to do it, in their order: the first one that takes the job does it
Next     linearize.py (who asks), context.py (what a way is given), staged_loops.py, reductions.py, stores.py (the jobs)

A kernel of a CPU with one loop has no threads, no matrix unit and no scan. What writes those is most of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hcq.compiler.linear.context import Context
from hcq.compiler.linear.reductions import PlainReductions, Reductions, Way
from hcq.compiler.linear.staged_loops import Copies, StagedLoops
from hcq.compiler.linear.stores import Stores, StoreWay
from hcq.ir.node import toposort
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.chained import ChainedProducts
    from hcq.compiler.linear.counted_loops import CountedLoops
    from hcq.compiler.linear.dots import Dots
    from hcq.compiler.linear.limits import Limits
    from hcq.compiler.linear.scan import Scans


def limits_of(context: Context) -> Limits | None:
    """What ends loops early, where the kernel compares at all."""
    if not any(node.op is Op.CMPLT for node in toposort((context.nest.sink,))):
        return None
    from hcq.compiler.linear.limits import Limits

    return Limits(context)


def dots_of(context: Context) -> Dots | None:
    """What writes products of narrow numbers, where the schedule says `dot`."""
    if context.nest.dots is None:
        return None
    from hcq.compiler.linear.dots import Dots

    return Dots(context)


def scans_of(context: Context) -> Scans | None:
    """What writes running sums, where the kernel has one."""
    if not context.nest.scans:
        return None
    from hcq.compiler.linear.scan import Scans

    return Scans(context)


def copies_of(
    context: Context, counted: CountedLoops, dots: Dots | None, wave_copy_bytes: int
) -> Sequence[Copies]:
    """The ways to bring operands nearer; none where nothing is staged."""
    nest = context.nest
    if not nest.stages and not nest.pipelined:
        return ()
    if not nest.digits:
        from hcq.compiler.linear.staging import Staging

        return (Staging(context, counted, dots),)
    from hcq.compiler.linear.bulk_copies import BulkCopies
    from hcq.compiler.linear.sharing import Sharing, ThreadCopies
    from hcq.compiler.linear.tile_copies import TileCopies
    from hcq.compiler.linear.wave_copies import WaveCopies

    tiles = TileCopies(context)
    way = WaveCopies(context, tiles, wave_copy_bytes) if wave_copy_bytes else ThreadCopies(context, tiles)
    return BulkCopies(context, tiles), Sharing(context, tiles, way)


def reductions_of(
    context: Context, staged: StagedLoops, limits: Limits | None, dots: Dots | None, reductions: Reductions
) -> Sequence[Way]:
    """The ways to write reductions. Those around others, and a matrix unit's, only where there can be some."""
    nest = context.nest
    found: list[Way] = []
    products, chained = _products_of(context, staged)
    if len(nest.reduces) > 1:
        from hcq.compiler.linear.nested import Nested

        found.append(Nested(context, staged, limits, reductions, chained))
    return [*found, *products, PlainReductions(context, staged, limits, dots)]


def _products_of(context: Context, staged: StagedLoops) -> tuple[list[Way], ChainedProducts | None]:
    """What writes a matrix unit's reductions, and those chained to them; nothing where there are none."""
    nest = context.nest
    if nest.unit is None and not nest.beside:
        return [], None
    from hcq.compiler.linear.fragments import Fragments
    from hcq.compiler.linear.products import Products
    from hcq.compiler.linear.tensor_memory import TensorMemory
    from hcq.compiler.linear.warpgroups import Warpgroups

    fragments = Fragments(context)
    warpgroups = Warpgroups(context, fragments)
    tensor_memory = TensorMemory(context, fragments, warpgroups)
    products = Products(context, staged, (warpgroups, tensor_memory, fragments))
    if not nest.chained:
        return [products], None
    from hcq.compiler.linear.chained import ChainedProducts

    return [products], ChainedProducts(context, fragments, warpgroups, tensor_memory)


def stores_of(context: Context, scans: Scans | None) -> Sequence[StoreWay]:
    """The ways to write all stores of a kernel. Lanes that lie far apart are those of kernels without threads."""
    nest = context.nest
    scattered = None
    if not nest.digits and any(axis.loops[-1].kind == "vector" for axis in nest.axes):
        from hcq.compiler.linear.scattered import Scattered

        scattered = Scattered(context)
    found: list[StoreWay] = []
    if nest.collects:
        from hcq.compiler.linear.collecting import Collecting

        found.append(Collecting(context))
    if scattered is not None:
        found.append(scattered)
    return [*found, Stores(context, scans, scattered)]
