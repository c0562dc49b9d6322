"""What the drivers of AMD's and NVIDIA's GPUs share: everything that is not about packets or about one kernel driver.

In       an AmdDevice or an NvDevice
Out      its signals, buffers of its peers, reads through its copy engine, arguments of its kernels, its graphs
Changes  as each file says
Next     device.py (the device), queue.py, graph.py, program.py, staging.py, addresses.py
"""
