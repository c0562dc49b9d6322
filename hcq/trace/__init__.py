"""Traces: what a program submitted, in a file that survives it.

In       submissions, memory, code, signals, ioctls, faults
Out      a trace file, and the same things read back, typed
Changes  the file named by HCQ_TRACE
Next     observe/trace_writer.py (writes), records.py (every byte declared), file.py (reads), observe/contents.py (what
         was in memory, for replays), frames.py (whole records), memory.py (what lay where, when)
"""
