# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.more.onnx."""

from hcq.frontend.more.onnx import *
