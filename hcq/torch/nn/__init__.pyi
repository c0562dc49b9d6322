# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn."""

from hcq.frontend.nn import *
from hcq.torch.nn import functional as functional
from hcq.torch.nn import init as init
from hcq.torch.nn import parameter as parameter
from hcq.torch.nn import attention as attention
from hcq.torch.nn import parallel as parallel
from hcq.torch.nn import modules as modules
from hcq.torch.nn import utils as utils
