"""Kernel logs: what amdgpu, KFD and NVIDIA's driver wrote of faults, hangs and resets, as events."""

from hcq.tools.trace.kernel_log.log_lines import clean, recognises
from hcq.tools.trace.kernel_log.read import events
from hcq.tools.trace.kernel_log.show import json, lines

__all__ = ["clean", "events", "json", "lines", "recognises"]
