"""umr's texts: rings and buffers, waves and registers of AMD GPUs as AMD's debugger for them prints them."""

from hcq.tools.trace.umr.dump import Dump, read, recognises
from hcq.tools.trace.umr.show import as_json, lines, places

__all__ = ["Dump", "as_json", "lines", "places", "read", "recognises"]
