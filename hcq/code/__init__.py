"""Code: the formats in which compilers deliver kernels and files carry them.

In       bytes that somebody else wrote
Out      their parts, with every offset checked before it is followed
Changes  nothing by being imported
Next     elf.py (objects), containers.py (fat binaries), hcq/program.py (what a dispatch needs to know of a kernel)
"""
