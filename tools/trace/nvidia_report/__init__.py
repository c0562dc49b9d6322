"""NVIDIA's reports: what nvidia-bug-report.sh collects, and what nvidia-smi prints, as what went wrong and where."""

from hcq.tools.trace.nvidia_report.read import Report, read, recognises
from hcq.tools.trace.nvidia_report.show import as_json, lines

__all__ = ["Report", "as_json", "lines", "read", "recognises"]
