"""More: whole subjects that stand on tensors and that most programs do without; each is imported when it is asked for.

In       tensors, files
Out      complex/, distributed/, distributions/, fourier/, linalg/, llm/, onnx/, transforms/
Changes  nothing on import
Next     ../tensor.py, docs/architecture.md
"""
