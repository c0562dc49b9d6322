"""The checks of hw_check, one idea a file; tools/hw_check.py is the program that a person runs."""
