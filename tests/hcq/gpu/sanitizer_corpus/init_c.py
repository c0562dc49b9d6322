"""Uses of what nobody wrote in C, for CUDA and for HIP alike.

In       nothing
Out      `ROWS`
Changes  nothing
Next     row.py, languages.py
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a part of a tile is filled, and all of it is stored": """
        SHARED int tile[256];
        - if (T < 100) tile[T] = T;
        + tile[T] = T;
        BARRIER();
        out[T] = tile[T];""",
    "a sum that begins with what was there": """
        SHARED int sums[256];
        + sums[T] = 0;
        for (int k = 0; k < n / 64; k++) { sums[T] += k; KEEP(); }
        out[T] = sums[T];""",
    "a place that nobody chose": """
        SHARED int order[256];
        - if (T > n) order[T - n] = T;
        + order[T] = n - 1 - T;
        KEEP();
        out[order[T] & 127] = T;""",
    "a flag that nobody set": """
        SHARED int flag;
        - if (T == n) flag = n;
        + if (T == 0) flag = n;
        BARRIER();
        if (flag > 7) out[T] = 1;""",
    "a column for padding": """
        SHARED int tile[16][17];
        tile[T / 16][T % 16] = T;
        BARRIER();
        - out[T] = tile[T % 16][T / 16 + 1];
        + out[T] = tile[T % 16][T / 16];""",
    "the cells beyond the ends of a stencil": """
        SHARED int cells[258];
        cells[T + 1] = T;
        + if (T == 0) cells[0] = cells[n + 1] = 0;
        BARRIER();
        out[T] = cells[T] + cells[T + 2];""",
    "a reduction over more than was read": """
        SHARED int part[256];
        - if (T < n - 56) part[T] = T;
        + part[T] = T < n - 56 ? T : 0;
        BARRIER();
        for (int half = n / 2; half > 0; half /= 2) {
            if (T < half) part[T] += part[T + half];
            BARRIER();
        }
        if (T == 0) out[0] = part[0];""",
    "the second buffer before it is filled": """
        SHARED int buffers[2][256];
        buffers[0][T] = T;
        BARRIER();
        - out[T] = buffers[n & 1 ? 0 : 1][T];
        + out[T] = buffers[n & 1][T];""",
}
ROWS = tuple(
    Row(name, language, "init", "uninitialised-read", text, numbers=(256,))
    for name, text in TEXTS.items()
    for language in ("cuda", "hip")
)
