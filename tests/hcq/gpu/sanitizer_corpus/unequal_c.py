"""Stores of unequal values that race, in C for CUDA and for HIP alike; in the right kernels the values are equal.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (B is the block)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "threads store what they are": (
        "shared-race",
        """
        SHARED int place;
        - place = T;
        + place = n;
        BARRIER();
        out[B * 256 + T] = place;""",
    ),
    "a flag that one thread sets otherwise": (
        "shared-race",
        """
        SHARED int flag;
        if (T == 0) flag = 0;
        BARRIER();
        - if (T % 5 == 0) flag = T == 255 ? 2 : 1;
        + if (T % 5 == 0) flag = 1;
        BARRIER();
        out[B * 256 + T] = flag;""",
    ),
    "blocks store who they are": (
        "global-race",
        """
        - if (T == 0) out[600] = B;
        + if (T == 0) out[600] = n;""",
    ),
    "bytes of a word": (
        "global-race",
        """
        char *bytes = (char *) out;
        - bytes[2400] = T;
        + bytes[2400] = n / 4;""",
    ),
}
ROWS = tuple(
    Row(name, language, "unequal", rule, text, grid=2, buffers=(8192,), numbers=(256,))
    for name, (rule, text) in TEXTS.items()
    for language in ("cuda", "hip")
)
