# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.onnx."""

from typing import Any
from hcq.frontend.more.onnx import *
def export(*args: Any, **options: Any) -> Any: ...
