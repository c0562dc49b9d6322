"""ONNX: models of other people, read and run.

In       a file, or its bytes
Out      `OnnxModel`: called with inputs by name, it gives tensors by name; `export`, which is refused
Changes  nothing on import
Next     model.py (the model), graph.py (what a file says), table.py (operators), docs/onnx.md
"""

from __future__ import annotations

from typing import Any

from hcq.errors import UsageError
from hcq.frontend.more.onnx.model import OnnxModel as OnnxModel


def export(*args: Any, **kwargs: Any) -> None:
    """Refused: nothing writes ONNX.

    >>> hcq.onnx.export(nn.ReLU(), Tensor([1.0]), "relu.onnx")
    Traceback (most recent call last):
        ...
    hcq.errors.UsageError: [onnx.export] ...
    """
    raise UsageError(
        "[onnx.export] nothing writes ONNX. Save model.state_dict(), or a program that runs alone: hcq.save_program."
    )
