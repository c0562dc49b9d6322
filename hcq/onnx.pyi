# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.onnx."""

from hcq.frontend.onnx import *
