"""Uses of what nobody wrote in C, for CUDA and for HIP alike.

In       nothing
Out      `ROWS`
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
    "a maximum that begins with what was there": """
        SHARED int most;
        + if (T == 0) most = 0;
        BARRIER();
        MAX(&most, T);
        BARRIER();
        if (T == 0) out[0] = most;""",
    "one half of each word": """
        SHARED short halves[512];
        halves[2 * T] = T;
        + halves[2 * T + 1] = T;
        BARRIER();
        out[T] = halves[T] + halves[T + 256];""",
    "half of a double": """
        SHARED double numbers[256];
        ((int *)numbers)[2 * T] = T;
        + ((int *)numbers)[2 * T + 1] = 0;
        BARRIER();
        out[T] = (int)(numbers[255 - T] * 2);""",
    "the second buffer before it is filled": """
        SHARED int buffers[2][256];
        buffers[0][T] = T;
        BARRIER();
        - out[T] = buffers[n & 1 ? 0 : 1][T];
        + out[T] = buffers[n & 1][T];""",
}
ODD = """
        SHARED int odd[256];
        - if (T & 1) odd[T] = T;
        + odd[T] = T;
        BARRIER();
"""
# through the lanes of a warp
CUDA = {
    "a lane that was not written": f"""{ODD}
        out[T] = __shfl_sync(-1, odd[T], 0);""",
    "a vote of what was not written": f"""{ODD}
        out[T] = __ballot_sync(-1, odd[T] > 100);""",
    "a barrier's count, and what was not written": f"""{ODD}
        out[T] = __syncthreads_count(T & 1) + odd[255 - T];""",
    "a lane that has ended": """
        - if ((T & 31) >= 16) return;
        out[T] = __shfl_down_sync(-1, T, 8);""",
    "a lane outside of the mask": """
        if ((T & 31) < 16) {
            - out[T] = __shfl_sync(0xffff, T, (T & 15) + 8);
            + out[T] = __shfl_sync(0xffff, T, (T + 8) & 15);
        }""",
}
HIP = {
    "a neighbour that was not written": f"""{ODD}
        out[T] = __builtin_amdgcn_mov_dpp(odd[T], 0x101, 0xf, 0xf, true);""",
    "a lane that was not written": f"""{ODD}
        out[T] = __builtin_amdgcn_ds_bpermute((T ^ 1) * 4, odd[T]);""",
    "the first lane, which was not written": f"""{ODD}
        out[T] = __builtin_amdgcn_readfirstlane(odd[T]);""",
    "what an atomic gives back, and what was not written": f"""{ODD}
        int before = ADD(&out[1000], 1);
        if (before >= 0) out[T] = odd[255 - T];""",
    "a lane by its number": f"""{ODD}
        out[T] = __builtin_amdgcn_readlane(odd[T], 4);""",
    "a swizzle of what was not written": f"""{ODD}
        out[T] = __builtin_amdgcn_ds_swizzle(odd[T], 0x041f);""",
}
ROWS = tuple(
    Row(name, language, "init", "uninitialised-read", text, numbers=(256,))
    for languages, texts in ((("cuda", "hip"), TEXTS), (("cuda",), CUDA), (("hip",), HIP))
    for name, text in texts.items()
    for language in languages
)
