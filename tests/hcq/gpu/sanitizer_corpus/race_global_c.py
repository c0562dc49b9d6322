"""Races in global memory in C, for CUDA and for HIP alike.

In       nothing
Out      `ROWS`
Changes  nothing
Next     row.py, languages.py (B is the block)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "blocks write one place": """
        - if (T == 0) out[0] = B;
        + if (T == 0) out[B * 64] = B;""",
    "blocks count without an atomic": """
        - if (T == 0) out[0] = out[0] + 1;
        + if (T == 0) ADD(&out[0], 1);""",
    "a block reads what another writes": """
        out[B * 256 + T] = T;
        KEEP();
        - int other = out[(1 - B) * 256 + T];
        + int other = out[B * 256 + T];
        out[512 + B * 256 + T] = other;""",
    "threads of a block meet in global memory with no barrier": """
        int *mine = out + B * 256;
        mine[T] = T;
        KEEP();
        + BARRIER();
        int other = mine[n - 1 - T];
        out[512 + B * 256 + T] = other;""",
    "a stencil in place": """
        int i = B * 256 + T;
        int left = i > 0 ? out[i - 1] : 0;
        KEEP();
        - out[i] = left + 1;
        + out[512 + i] = left + 1;""",
    "a maximum over blocks is compared and stored": """
        int mine = (T * 7 + B) % n;
        - if (mine > out[0]) out[0] = mine;
        + MAX(&out[0], mine);""",
    "the edges of two blocks overlap": """
        - int first = B * 248;
        + int first = B * 256;
        out[first + T] = B;""",
    "a flag that says nothing is ordered": """
        - if (B == 0) out[T] = T; else out[512 + T] = out[T];
        + if (B == 0) out[T] = T; else out[512 + T] = T;""",
}
ROWS = tuple(
    Row(name, language, "race", "global-race", text, grid=2, buffers=(8192,), numbers=(256,))
    for name, text in TEXTS.items()
    for language in ("cuda", "hip")
)
