# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.utils."""

from hcq.frontend.utils import *
from hcq.torch.utils import checkpoint as checkpoint
from hcq.torch.utils import data as data
