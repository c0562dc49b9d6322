"""An emulated NVIDIA GPU: the kernel driver's answers, channels with their engines, and a shader core that runs PTX.

The driver
    spec.py                                   HCQ_EMULATE=nv:sm_90:seed=7, and what each architecture is
    memory.py                                 allocations, page tables, a GPU's view of them
    rm_objects.py                             the tree of objects, and what each is made from
    rm_state.py                               what the driver remembers: files, clients, GPUs, mappings
    rm_calls.py, rm_controls.py               its answers: escapes, controls
    foreign_calls.py                          what drivers other than ours ask
    uvm.py                                    /dev/nvidia-uvm: ranges, mappings, channels
    rm.py                                     /dev/nvidiactl, /dev/nvidiaN, /proc/driver/nvidia: all of it together
The GPU
    card.py                                   what a GPU is: chip, names and numbers, registers, clock
    channel.py                                a channel as engines see it: address space, work not ordered yet
    engine.py                                 handlers on declared methods: host_processor.py, copy_processor.py,
                                              compute_processor.py
    semaphores.py                             what semaphores store
    launch.py                                 from a launch description to a kernel and its parameters
    caches.py                                 what is stale (nv:sm_90:caches)
    pbdma.py                                  ring entries and pushbuffers, fetched and handed to engines
    gpu.py                                    the doorbell and the thread
    watch.py                                  what those who watch are told
    errors.py                                 what stops a channel
    shader/                                   the shader core: PTX by NumPy over all threads at once

Nothing here is imported by `import hcq`; NumPy is needed only when there is an emulated GPU.
"""
