# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.signal."""

from hcq.torch.signal import windows as windows
