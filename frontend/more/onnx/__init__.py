"""ONNX: models of other people, read and run.

In       a file, or its bytes
Out      `OnnxModel`: called with inputs by name, it gives tensors by name
Changes  nothing on import
Next     model.py (the model), graph.py (what a file says), table.py (operators), docs/onnx.md
"""

from hcq.frontend.more.onnx.model import OnnxModel as OnnxModel
