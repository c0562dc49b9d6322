# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.cuda."""

from typing import Any
from hcq.frontend.torch.cuda import *
from hcq.torch.cuda import amp as amp
def empty_cache(*args: Any, **options: Any) -> Any: ...
