"""Assemblers: the text of a target language becomes an object that a device's loader accepts.

Next     llvm_cpu.py (LLVM IR to a relocatable ELF object for the host)
"""
