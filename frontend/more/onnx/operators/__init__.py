"""ONNX's operators by groups: one function for each form, in terms of Tensor's methods.

In       tensors, numbers on the host, attributes
Out      tensors
Changes  table.py's table, when a group is imported
Next     ../table.py (how a function says which operator it is), ../lookup.py (imports these),
         docs/onnx.md (all of them)
"""
