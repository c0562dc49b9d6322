"""The compiler: a kernel graph becomes a loop nest, a linear program, target text, and a code object.

In       a kernel, as the scheduler hands it over: SINK(STORE(target, value), ...)
Out      a `CodeObject` that a device loads
Next     compile.py (the road from end to end), loops/loop_nest.py (what a schedule is), loops/heuristic.py (who
         chooses one)
"""
