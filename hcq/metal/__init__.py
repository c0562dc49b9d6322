"""Apple GPUs through Metal command buffers.

Nothing lives here yet. It will hold the same files as hcq/cpu: device, packets, encode, program.
"""
