"""Work: the order in which recorded commands run, on the queues of one device or on several devices.

In       the commands of queues and graphs, with the memory that they read and write
Out      which command runs on which queue, and what it waits for
Changes  signals of the devices
Next     dependences.py (who needs whom), hardware_queues.py (one device), multi_device_graph.py (several devices)
"""
