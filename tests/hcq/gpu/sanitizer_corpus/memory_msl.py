"""Accesses outside of memory in Metal's language. The emulated GPU stops the kernel at the first of them.

In       nothing
Out      `ROWS`
Changes  nothing
Next     row.py, languages.py (`out` is the buffer, of 256 integers, `t` the thread)

A Metal buffer of the driver holds many of the program's, so what is near behind one of these is not found.
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "far behind": """
        - out[t * 1000000u] = t;
        + out[t] = t;""",
    "a neighbour that the first thread does not have": """
        - int left = out[int(t) - 1000000];
        + int left = out[t > 0u ? int(t) - 1 : 0];
        out[t] = left;""",
}
ROWS = tuple(
    Row(name, "msl", "memory", "buffer-overrun", text, buffers=(1024,)) for name, text in TEXTS.items()
)
