"""GPU: code that the AMD and NVIDIA drivers share: all but packets and kernel driver calls.

In       an AmdDevice or an NvDevice
Out      its signals, buffers of its peers, reads through its copy engine, arguments of its kernels, its graphs
Changes  as each file says
Next     device.py (the device), queue.py, graph.py, program.py, staging.py, addresses.py
"""
