"""Lab 1: a queue that hangs.

`run` copies a to b by one queue, and b to c by another one, which has to wait for the first. It hangs. Why?
Say what each signal is set to, and what is waited for; the error of the check helps. Then mend it. Keep both
queues and the signal: the second copy must not begin before the first has ended.

    python -m hcq.tools.labs check 1
"""

from typing import Any


def run(dev: Any, a: Any, b: Any, c: Any) -> None:
    """Copy a to b, and then b to c."""
    ready = dev.signal("ready")
    dev.queue().copy(b, a, a.size_bytes).signal(ready, 1).submit()
    done = dev.queue().wait(ready, 2).copy(c, b, b.size_bytes).submit()
    done.wait()
