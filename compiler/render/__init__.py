"""Renderers: a linear program becomes the text of one target language. A renderer only spells.

Next     llvm.py (LLVM IR for CPUs)
"""
