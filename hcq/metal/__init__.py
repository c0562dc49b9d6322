"""Apple GPUs through Metal command buffers.

abi/          what the Objective-C runtime and Metal declare: messages, functions, numbers
objc.py       the runtime's door: classes, selectors, messages, pools of what is to be released
packets.py    a queue's words: what becomes messages to command buffers and encoders; encode.py makes and reads them
device.py     opening, memory, submission, recovery
event.py      signals: shared events
commands.py   packets become command buffers and encoders
stamps.py     the GPU's time, stored between two command buffers
kernels.py    copies and fills that a blit encoder does not do
program.py    libraries and pipelines, and where a kernel's arguments go
validate.py   what packets do, for the rules
doctor.py     what can be said before a device opens

Graphs are those of hcq/graph.py: Metal has no memory of commands that both sides write, so a replay encodes its
packets anew.
"""
