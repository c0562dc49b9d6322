# ruff: noqa: E501
# fmt: off
"""Written by `make docs` from table.py; change that, not this file."""

from hcq.frontend.ops.angles import Angles
from hcq.frontend.ops.asking import Asking
from hcq.frontend.ops.bits import Bits
from hcq.frontend.ops.counting import Counting
from hcq.frontend.ops.drawing import Drawing
from hcq.frontend.ops.factoring import Factoring
from hcq.frontend.ops.gates import Gates
from hcq.frontend.ops.gathering import Gathering
from hcq.frontend.ops.history import History
from hcq.frontend.ops.initial import Initial
from hcq.frontend.ops.logarithms import Logarithms
from hcq.frontend.ops.margins import Margins
from hcq.frontend.ops.matrices import Matrices
from hcq.frontend.ops.ordering import Ordering
from hcq.frontend.ops.padding import Padding
from hcq.frontend.ops.parts import Parts
from hcq.frontend.ops.pooling import Pooling
from hcq.frontend.ops.rearranging import Rearranging
from hcq.frontend.ops.scattering import Scattering
from hcq.frontend.ops.shapes import Shapes
from hcq.frontend.ops.signs import Signs
from hcq.frontend.ops.special_values import SpecialValues
from hcq.frontend.ops.statistics import Statistics
from hcq.frontend.ops.strided import Strided
from hcq.frontend.ops.synonyms import Synonyms

class Late(Angles, Asking, Bits, Counting, Drawing, Factoring, Gates, Gathering, History, Initial, Logarithms, Margins, Matrices, Ordering, Padding, Parts, Pooling, Rearranging, Scattering, Shapes, Signs, SpecialValues, Statistics, Strided, Synonyms):
    __slots__ = ()
