"""Libraries: the switches that PyTorch has for the libraries it calls, under its names: `hcq.backends.cudnn`.

In       assignments
Out      modules of flags that nothing reads: no such library is called here
Changes  nothing but the flags
Next     cudnn.py, cuda.py, mps.py, ...; ../../hcq/backends.py (hcq.backends, the registry of device drivers)
"""
