"""An emulated AMD GPU: the kernel driver's answers, the packet processors, and a shader core that runs machine code.

spec.py                                                                 HCQ_EMULATE=amd:gfx1100:seed=7, and each chip
kfd.py, kfd_topology.py, kfd_events.py, kfd_queues.py                   what /dev/kfd and sysfs answer
memory.py                                                               allocations, page tables
gpu.py, pm4_processor.py, aql_processor.py, sdma_processor.py           rings, doorbells, packets
engine.py                                                               handlers on declared packets, unordered work
caches.py                                                               what is stale or hidden (amd:gfx1100:caches)
dispatch.py, launch.py                                                  from a packet to the shader core
shader/                                                                 the shader core

Nothing here is imported by `import hcq`; NumPy is needed only when there is an emulated GPU.
"""
