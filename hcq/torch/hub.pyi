# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.hub."""

from typing import Any
from hcq.frontend.torch.hub import *
def load(*args: Any, **options: Any) -> Any: ...
