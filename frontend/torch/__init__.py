"""PyTorch's names, as tables: what hcq.torch has, and where in this package each name is written.

In       a name of PyTorch's
Out      what it is here
Next     names.py (names of `torch` itself), modules.py (its modules), rows.py (names that mean little here),
         cuda/, accelerator.py, hub.py, settings.py, testing.py, native.py (what only PyTorch's programs ask for),
         ../../hcq/torch/__init__.py (the door, which programs import)
"""
