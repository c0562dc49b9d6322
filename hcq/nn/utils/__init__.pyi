# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn.utils."""

from hcq.frontend.nn.utils import *
from hcq.frontend.nn.utils import parametrizations as parametrizations
from hcq.frontend.nn.utils import parametrize as parametrize
from hcq.frontend.nn.utils import rnn as rnn
