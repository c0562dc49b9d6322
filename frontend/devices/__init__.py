"""Several devices: tensors whose values are on several of them, and what these tell each other.

In       a tensor and the devices that are to have a part of it
Out      sharding/: layouts of values, a plan for each device; collectives/: how the parts get to who needs them
Changes  nothing on import
Next     ../run/realize.py (who asks), docs/devices.md
"""
