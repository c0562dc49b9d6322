"""System: access to the operating system and to native code: system calls, files, function pointers, child processes.

In       requests of devices, caches and compilers
Out      results, or a DriverError that names the call
Changes  nothing by being imported
Next     port.py (the only door to the kernel's drivers), native.py (the only border to native code)
"""
