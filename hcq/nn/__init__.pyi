# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn."""

from hcq.frontend.nn import *
from hcq.frontend.nn import functional as functional
from hcq.frontend.nn import init as init
from hcq.frontend.nn import parameter as parameter
from hcq.frontend.nn import utils as utils
