# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.utils.data."""

from typing import Any
from hcq.frontend.data import *
dataloader: Any
dataset: Any
sampler: Any
