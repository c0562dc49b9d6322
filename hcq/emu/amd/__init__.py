"""An emulated AMD GPU: the kernel driver's answers, the packet processors, and a shader core that runs machine code.

spec.py                                                                 HCQ_EMULATE=amd:gfx1100:seed=7, and each chip
kfd.py, kfd_process.py                                                  the kernel driver; what it keeps for a process
kfd_answers.py, kfd_calls.py, kfd_memory.py, kfd_queues.py              ioctls of /dev/kfd, and their answers
kfd_events.py, kfd_topology.py, render_node.py                          events, sysfs, /dev/dri/renderD*
memory.py                                                               allocations, page tables
gpu.py, process_gpu.py                                                  a GPU; the GPU as one process has it
pm4_processor.py, aql_processor.py, sdma_processor.py                   rings, doorbells, packets
engine.py                                                               handlers on declared packets, unordered work
caches.py                                                               what is stale or hidden (amd:gfx1100:caches)
dispatch.py, launch.py                                                  from a packet to the shader core
shader/                                                                 the shader core

Nothing here is imported by `import hcq`; NumPy is needed only when there is an emulated GPU.
"""
