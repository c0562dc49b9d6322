"""Other projects' own tests of their operators, computed by us: PyTorch's and ONNX's."""
