"""The files that the labs begin with, each with a fault in it. See tools/labs/labs.py."""
