# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.optim."""

from typing import Any
from hcq.frontend.optim import *
from hcq.torch.optim import lr_scheduler as lr_scheduler
from hcq.torch.optim import swa_utils as swa_utils
from hcq.torch.optim import optimizer as optimizer
SparseAdam: Any
