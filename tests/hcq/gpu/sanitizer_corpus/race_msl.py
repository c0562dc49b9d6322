"""Races in threadgroup memory in Metal's language. The emulated GPU stops the kernel at the first of
them.

In       nothing
Out      `ROWS`
Next     row.py, languages.py (`out` is the buffer, `t` the thread, `n` how many there are)
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

WAIT = "threadgroup_barrier(mem_flags::mem_threadgroup);"
TEXTS = {
    "a tile is read before all of it is written": f"""
        threadgroup int tile[256];
        tile[t] = t;
        + {WAIT}
        out[t] = tile[255 - t];""",
    "a tile is written again while others read it": f"""
        threadgroup int tile[256];
        tile[t] = t;
        {WAIT}
        int first = tile[255 - t];
        + {WAIT}
        tile[t] = first + 1;
        {WAIT}
        out[t] = tile[(t + 32) % 256];""",
    "all write one place": f"""
        threadgroup int place[256];
        - place[0] = t;
        + place[t] = t;
        {WAIT}
        out[t] = place[0];""",
    "the steps of a reduction do not wait for each other": f"""
        threadgroup int part[256];
        part[t] = t;
        {WAIT}
        for (uint step = 0; step < 8; ++step) {{
            uint reach = 128u >> step;
            if (t < reach) part[t] = part[t] + part[t + reach];
            + {WAIT}
        }}
        if (t == 0) out[0] = part[0];""",
    "two arrays overlap": f"""
        threadgroup int memory[512];
        - uint second = 128;
        + uint second = 256;
        memory[t] = t;
        memory[second + t] = 1;
        {WAIT}
        out[t] = memory[t];""",
}
ROWS = tuple(Row(name, "msl", "race", "shared-race", text) for name, text in TEXTS.items())
