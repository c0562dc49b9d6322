"""An emulated Objective-C runtime with Metal in it: messages are checked, command buffers executed, and MSL is run.

spec.py        HCQ_EMULATE=metal:m3, and what each family is
runtime.py     libobjc's and Metal's functions: classes, selectors, objects with their counts, pools, messages
objects.py     what objects of Foundation are: strings, arrays, errors
gpu.py         what every object of a GPU needs of it; device.py the same as an object that answers
resources.py   buffers, events, libraries, pipelines
commands.py    MTLCommandQueue, MTLCommandBuffer and its encoders: what they refuse, and what they keep for later
checks.py      HCQ_SANITIZE=memory: each launch inside of its buffers
processor.py   the thread of a command queue
driver.py      all of it together
shader/        MSL: parsed, translated to NumPy over all threads at once, and run

What breaks a rule of Metal's or of Objective-C's is a DriverError that names the message: where a Mac would end the
process (an exception, Metal's validation layer), or go on with memory that is not its own any more.
"""
