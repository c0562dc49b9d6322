"""Events: what devices, kernel drivers and emulated GPUs report to observers, and the interfaces of observers.

In       events on a device, as they happen
Out      calls of the registered observers
Changes  nothing by being imported
Next     observer.py (events of our devices), kernel_observer.py (of any process), hcq/observe/ (the observers)
"""
