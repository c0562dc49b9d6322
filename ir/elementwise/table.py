"""The table: every elementwise operation by its name, and the groups that are made of what their declarations say.

In       functions.py, operators.py
Out      `ELEMENTWISE`; the groups that the passes ask for
Next     ../meaning.py, ../bounds.py, ../verify.py, compiler/target.py, compiler/passes/decompose.py, compiler/render/,
         frontend/grad/derivatives.py (who read it)
"""

from __future__ import annotations

from hcq.ir.elementwise.declaration import Elementwise
from hcq.ir.elementwise.functions import FUNCTIONS
from hcq.ir.elementwise.operators import OPERATORS
from hcq.ir.op import Op

ELEMENTWISE: dict[Op, Elementwise] = {one.op: one for one in (*FUNCTIONS, *OPERATORS)}
COMMUTATIVE = frozenset([op for op, one in ELEMENTWISE.items() if one.commutes])
COSTLY = frozenset([op for op, one in ELEMENTWISE.items() if one.is_costly])
SPELLED = frozenset([op for op, one in ELEMENTWISE.items() if one.is_spelled])
KEEPS_FORMAT = frozenset([op for op, one in ELEMENTWISE.items() if one.keeps_format])
