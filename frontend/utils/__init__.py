"""Utils: tools of training that are no modules, under PyTorch's names.

In       functions of tensors, data sets
Out      `checkpoint` (values computed again instead of kept), `data` (data sets and batches)
Changes  nothing
Next     checkpoint.py, data.py
"""
