"""ROCm's texts: faults that its runtime tells, waves that its debug agent and its debugger print."""

from hcq.tools.trace.rocm.dump import Dump, read, recognises
from hcq.tools.trace.rocm.show import as_json, lines

__all__ = ["Dump", "as_json", "lines", "read", "recognises"]
