# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.utils."""

from hcq.torch.utils import checkpoint as checkpoint
from hcq.torch.utils import data as data
