"""Events: what devices, kernel drivers and emulated GPUs report to observers, and the interfaces of observers.

In       what happens on a device, as it happens
Out      calls of observers, none of which is known here
Changes  nothing by being imported
Next     observer.py (events of our devices), kernel_observer.py (of any process's), hcq/observe/ (the observers)
"""
