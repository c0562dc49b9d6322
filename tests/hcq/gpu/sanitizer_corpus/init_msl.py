"""Uses of what nobody wrote in Metal's language: of threadgroup memory.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (`out` is the buffer, `t` the thread)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

WAIT = "threadgroup_barrier(mem_flags::mem_threadgroup);"
TEXTS = {
    "a part of a tile is filled, and all of it is stored": f"""
        threadgroup int tile[256];
        - if (t < 100) tile[t] = t;
        + tile[t] = t;
        {WAIT}
        out[t] = tile[t];""",
    "a sum with what is behind": f"""
        threadgroup float tile[512];
        tile[t] = (float)t;
        {WAIT}
        - float sum = tile[t] + tile[256 + t];
        + float sum = tile[t] + tile[255 - t];
        out[t] = (int)sum;""",
    "a place that nobody chose": f"""
        threadgroup int order[256];
        - if (t < 128) order[t] = t;
        + order[t] = t;
        {WAIT}
        out[order[255 - t] & 255] = 1;""",
    "a flag that nobody set": f"""
        threadgroup int flag[2];
        - if (t == 0) flag[1] = 1;
        + if (t == 0) flag[0] = 1;
        {WAIT}
        if (flag[0] > 0) out[t] = 1;""",
    "bits of a word that nobody wrote": f"""
        threadgroup int word[256];
        - if (t < 10) word[t] = t;
        + word[t] = t;
        {WAIT}
        out[t] = (word[t] & 255) << 3;""",
    "one more than was written is chosen": f"""
        threadgroup int word[256];
        if (t < 10) word[t] = t;
        {WAIT}
        - int chosen = t < 11 ? word[t] : 0;
        + int chosen = t < 10 ? word[t] : 0;
        out[t] = chosen;""",
}
ROWS = tuple(
    Row(name, "msl", "init", "uninitialised-read", text, buffers=(8192,)) for name, text in TEXTS.items()
)
