# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.utils."""

from hcq.frontend.utils import *
from hcq.frontend.utils import checkpoint as checkpoint
from hcq.frontend.utils import data as data
