"""Work: the order in which recorded commands run, on the queues of one device or on several devices.

In       the commands of queues and graphs, with the memory that they read and write
Out      for each command its queue, and the signals that it waits for
Changes  signals of the devices
Next     dependences.py (order of commands), hardware_queues.py (one device), multi_device_graph.py (several devices)
"""
