# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.fx."""

from typing import Any
def wrap(*args: Any, **options: Any) -> Any: ...
Proxy: Any
def symbolic_trace(*args: Any, **options: Any) -> Any: ...
