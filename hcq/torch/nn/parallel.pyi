# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.parallel."""

from typing import Any
from hcq.frontend.nn.parallel import *
DistributedDataParallel: Any
