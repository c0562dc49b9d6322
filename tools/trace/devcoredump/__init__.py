"""Devcoredumps of amdgpu: what the kernel writes to /sys/class/drm/card<n>/device/devcoredump/data after a hang.

dump.py    the text -> Dump: chip, fault, registers, rings, indirect buffers
place.py   where the GPU stands: the packet at the read pointer of the ring that hangs, or in the buffer that it runs
show.py    all of it for a person, and for a program
"""

from hcq.tools.trace.devcoredump.dump import Dump as Dump
from hcq.tools.trace.devcoredump.dump import read as read
from hcq.tools.trace.devcoredump.dump import recognises as recognises
from hcq.tools.trace.devcoredump.show import as_json as as_json
from hcq.tools.trace.devcoredump.show import lines as lines
