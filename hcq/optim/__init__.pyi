# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn.optim."""

from hcq.frontend.nn.optim import *
from hcq.frontend.nn.optim import lr_scheduler as lr_scheduler
from hcq.frontend.nn.optim import swa_utils as swa_utils
