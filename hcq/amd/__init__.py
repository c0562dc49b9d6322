"""AMD GPUs through the KFD: compute rings with PM4 packets, SDMA copy rings, code objects loaded by hand.

Nothing lives here yet. It will hold the same files as hcq/cpu: device, packets, encode, program.
"""
