"""Complex tensors: two real tensors, the real and the imaginary part, that are computed with together.

In       pairs of real tensors, complex Python numbers and arrays
Out      `Complex`, a Tensor of dtype complex64 or complex128
Changes  nothing; imported when complex numbers first appear (frontend/ops/complex_arguments.py, ../tensor.py)
Next     pair.py (what a complex tensor is), tensor.py (the groups joined, and what is refused)

Only this folder knows complex numbers: nodes, kernels and devices see two real tensors.
"""
