"""The operating system and native code: calls, files, functions at an address, children of this process.

In       what devices, caches and compilers ask of Linux
Out      results, or a DriverError that names the call
Changes  nothing by being imported
Next     port.py (the only door to the kernel's drivers), native.py (the only border to native code)
"""
