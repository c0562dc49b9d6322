# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.distributions."""

from typing import Any
from hcq.frontend.more.distributions import *
from hcq.torch.distributions import kl as kl
from hcq.torch.distributions import transforms as transforms
constraint_registry: Any
constraints: Any
distribution: Any
