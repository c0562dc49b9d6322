"""Disassembly: machine code as text, one file for each family; each backend names its own (hcq/backends.py)."""
