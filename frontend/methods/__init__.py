"""Methods: what a Tensor can do, one idea a file, stacked by inheritance in the order they need each other.

In       tensors and Python values
Out      lazy tensors; nothing runs
Changes  nothing
Next     movement, conversion, elementwise, functions, power, activation, reduction, joining, indexing, product, window,
         normalisation, creation, loss: each uses those before it; random stands beside them; ../tensor.py is the top
"""
