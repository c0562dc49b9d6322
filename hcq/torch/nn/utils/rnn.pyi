# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils.rnn."""

from hcq.frontend.nn.utils.rnn import *
