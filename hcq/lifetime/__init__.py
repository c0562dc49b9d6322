"""Lifetime: how devices open, recover from a fault, close and die, and the list of open devices.

In       a device's name; faults, forks, the end of the process
Out      open devices; one clear error from every call to a device that is dead
Changes  the list of open devices
Next     opening.py (`hcq.open`), open_devices.py (which are open), recovery.py (after a fault), hcq/device.py
"""
