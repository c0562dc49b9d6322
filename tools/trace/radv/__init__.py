"""RADV's hang reports: the folder that RADV_DEBUG=hang makes, the same as one text, and each of its files alone."""

from hcq.tools.trace.radv.report import Report, read, recognises
from hcq.tools.trace.radv.show import as_json, lines

__all__ = ["Report", "as_json", "lines", "read", "recognises"]
