# ruff: noqa: E501
# fmt: off
"""Written by `make docs` from table.py; change that, not this file."""

from hcq.frontend.ops.angles import Angles
from hcq.frontend.ops.asking import Asking
from hcq.frontend.ops.attention import Attention
from hcq.frontend.ops.bits import Bits
from hcq.frontend.ops.conversion import Conversion
from hcq.frontend.ops.counting import Counting
from hcq.frontend.ops.creation import Creation
from hcq.frontend.ops.cutting import Cutting
from hcq.frontend.ops.deviations import Deviations
from hcq.frontend.ops.drawing import Drawing
from hcq.frontend.ops.extremes import Extremes
from hcq.frontend.ops.factoring import Factoring
from hcq.frontend.ops.functions import Functions
from hcq.frontend.ops.gates import Gates
from hcq.frontend.ops.gathering import Gathering
from hcq.frontend.ops.history import History
from hcq.frontend.ops.in_place import InPlace
from hcq.frontend.ops.index_writes import IndexWrites
from hcq.frontend.ops.indexing import Indexing
from hcq.frontend.ops.initial import Initial
from hcq.frontend.ops.joining import Joining
from hcq.frontend.ops.logarithms import Logarithms
from hcq.frontend.ops.loss import Loss
from hcq.frontend.ops.margins import Margins
from hcq.frontend.ops.matrices import Matrices
from hcq.frontend.ops.normalisation import Normalisation
from hcq.frontend.ops.ordering import Ordering
from hcq.frontend.ops.padding import Padding
from hcq.frontend.ops.parts import Parts
from hcq.frontend.ops.pooling import Pooling
from hcq.frontend.ops.power import Power
from hcq.frontend.ops.random import Random
from hcq.frontend.ops.rearranging import Rearranging
from hcq.frontend.ops.repeating import Repeating
from hcq.frontend.ops.scattering import Scattering
from hcq.frontend.ops.shapes import Shapes
from hcq.frontend.ops.signs import Signs
from hcq.frontend.ops.smooth import Smooth
from hcq.frontend.ops.special_values import SpecialValues
from hcq.frontend.ops.statistics import Statistics
from hcq.frontend.ops.strided import Strided
from hcq.frontend.ops.synonyms import Synonyms
from hcq.frontend.ops.transfer import Transfer
from hcq.frontend.ops.window import Window
from hcq.frontend.ops.writing import Writing

class Late(Angles, Asking, Attention, Bits, Conversion, Counting, Creation, Cutting, Deviations, Drawing, Extremes, Factoring, Functions, Gates, Gathering, History, InPlace, IndexWrites, Indexing, Initial, Joining, Logarithms, Loss, Margins, Matrices, Normalisation, Ordering, Padding, Parts, Pooling, Power, Random, Rearranging, Repeating, Scattering, Shapes, Signs, Smooth, SpecialValues, Statistics, Strided, Synonyms, Transfer, Window, Writing):
    __slots__ = ()
