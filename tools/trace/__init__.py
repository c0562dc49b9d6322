"""The verbs of hcq-trace, one idea a file; tools/hcq_trace.py is the program that a person runs."""
