"""The scheduler: from a lazy graph to kernels in order. Pure functions: nothing here touches a device.

In       the nodes somebody wants in memory
Out      a Schedule: numbered values and kernels
Next     core/structure.py (what a graph says, apart from its memory), ../rewrites/ (forms that devices compute faster),
         simplify.py (the same in fewer words), fuse.py (which nodes share a kernel), schedule.py (kernels
         in order)
"""
