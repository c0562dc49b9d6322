"""Races in shared memory in C, for CUDA and for HIP alike: the words in capitals are those of languages.py.

In       nothing
Out      `ROWS`, each twice: as "cuda" and as "hip"
Next     row.py, languages.py

KEEP() keeps the compiler from moving accesses over it, or from remembering what was stored; it orders no threads. Where
warps matter, threads are 64 apart, or more: HIP's machine has waves of 64.
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.row import Row

TEXTS = {
    "a tile is read before all of it is written": """
        SHARED int tile[256];
        tile[T] = T;
        KEEP();
        + BARRIER();
        out[T] = tile[n - 1 - T];""",
    "a tile is written again while others read it": """
        SHARED int tile[256];
        int sum = 0;
        for (int k = 0; k < 3; k++) {
            tile[T] = T + k;
            BARRIER();
            sum += tile[n - 1 - T];
            KEEP();
            + BARRIER();
        }
        out[T] = sum;""",
    "one thread writes what all read": """
        SHARED int found;
        if (T == 0) found = n;
        KEEP();
        + BARRIER();
        out[T] = found;""",
    "a histogram is counted without atomics": """
        SHARED int bins[16];
        if (T < 16) bins[T] = 0;
        BARRIER();
        - bins[T & 15] += 1;
        + ADD(&bins[T & 15], 1);
        BARRIER();
        if (T < 16) out[T] = bins[T];""",
    "a histogram is counted before it is zeroed": """
        SHARED int bins[16];
        if (T < 16) bins[T] = 0;
        KEEP();
        + BARRIER();
        ADD(&bins[T & 15], 1);
        BARRIER();
        if (T < 16) out[T] = bins[T];""",
    "a histogram is read while others count": """
        SHARED int bins[16];
        if (T < 16) bins[T] = 0;
        BARRIER();
        ADD(&bins[T & 15], 1);
        KEEP();
        + BARRIER();
        out[T] = bins[T & 15];""",
    "the steps of a reduction do not wait for each other": """
        SHARED int part[256];
        part[T] = T;
        BARRIER();
        for (int half = n / 2; half > 0; half /= 2) {
            if (T < half) part[T] += part[T + half];
            KEEP();
            + BARRIER();
        }
        if (T == 0) out[0] = part[0];""",
    "the result of a reduction is read by all too early": """
        SHARED int part[256];
        part[T] = T;
        BARRIER();
        for (int half = n / 2; half > 0; half /= 2) {
            if (T < half) part[T] += part[T + half];
            - if (half > 1) BARRIER();
            + BARRIER();
        }
        KEEP();
        out[T] = part[0];""",
    "a scan adds where its neighbour still reads": """
        SHARED int sums[256];
        sums[T] = T;
        BARRIER();
        for (int step = 1; step < n; step *= 2) {
            int left = T >= step ? sums[T - step] : 0;
            KEEP();
            + BARRIER();
            sums[T] += left;
            BARRIER();
        }
        out[T] = sums[T];""",
    "a tile is transposed without waiting": """
        SHARED int tile[16][17];
        tile[T / 16][T % 16] = T;
        KEEP();
        + BARRIER();
        out[T] = tile[T % 16][T / 16];""",
    "a stencil reads its neighbours' cells too early": """
        SHARED int cells[258];
        cells[T + 1] = T;
        if (T == 0) cells[0] = cells[n + 1] = 0;
        KEEP();
        + BARRIER();
        out[T] = cells[T] + cells[T + 2];""",
    "one buffer where two are needed": """
        SHARED int buffers[2][256];
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            - int which = 0;
            + int which = k & 1;
            buffers[which][T] = T + k;
            BARRIER();
            sum += buffers[which][n - 1 - T];
            KEEP();
        }
        out[T] = sum;""",
    "consumers do not wait for producers": """
        SHARED int queue[128];
        if (T < 128) queue[T] = T * n;
        KEEP();
        + BARRIER();
        if (T >= 128) out[T] = queue[T - 128];""",
    "a slot is drawn without an atomic": """
        SHARED int next, slots[256];
        if (T == 0) next = 0;
        BARRIER();
        - int slot = next; KEEP(); next = slot + 1;
        + int slot = ADD(&next, 1);
        KEEP();
        slots[slot & 255] = T;
        BARRIER();
        out[T] = slots[T];""",
    "a maximum is compared and stored": """
        SHARED int most;
        if (T == 0) most = 0;
        BARRIER();
        - if ((T * 7) % n > most) most = (T * 7) % n;
        + MAX(&most, (T * 7) % n);
        BARRIER();
        out[T] = most;""",
    "a product loads its next tile over the one in use": """
        SHARED int a[16][16];
        int x = T % 16, y = T / 16, sum = 0;
        for (int tile = 0; tile < 4; tile++) {
            a[y][x] = out[256 + tile * 16 + x] + y;
            BARRIER();
            for (int k = 0; k < 16; k++) sum += a[k][x];
            KEEP();
            + BARRIER();
        }
        out[T] = sum;""",
    "two phases share memory with no barrier between": """
        SHARED int scratch[256];
        scratch[T] = T;
        BARRIER();
        int first = scratch[n - 1 - T];
        KEEP();
        + BARRIER();
        scratch[T] = first * 2;
        BARRIER();
        out[T] = scratch[(T + 64) % n];""",
    "a sorting network's stages do not wait": """
        SHARED int keys[256];
        keys[T] = (T * 37) % n;
        BARRIER();
        for (int size = 2; size <= n; size *= 2)
            for (int apart = size / 2; apart > 0; apart /= 2) {
                int other = T ^ apart;
                if (other > T) {
                    int low = keys[T], high = keys[other];
                    if ((low > high) == ((T & size) == 0)) { keys[T] = high; keys[other] = low; }
                }
                KEEP();
                + BARRIER();
            }
        out[T] = keys[T];""",
    "a place for sums is used again for the maximum": """
        SHARED int parts[4];
        if (T % 64 == 0) parts[T / 64] = T;
        BARRIER();
        int most = parts[0] + parts[1] + parts[2] + parts[3];
        KEEP();
        + BARRIER();
        if (T % 64 == 0) parts[T / 64] = most - T;
        BARRIER();
        out[T] = parts[3] - parts[0];""",
    "two arrays overlap": """
        SHARED int memory[512];
        int *a = memory;
        - int *b = memory + 128;
        + int *b = memory + 256;
        a[T] = T;
        KEEP();
        b[T] = -T;
        KEEP();
        out[T] = a[T] + b[T];""",
    "bytes of a word that others write": """
        SHARED unsigned char flags[256];
        - flags[(T + 64) % n] = (unsigned char) T;
        + flags[T] = (unsigned char) T;
        KEEP();
        out[T] = flags[T];""",
    "a barrier that only looks as if it were for all": """
        SHARED int tile[256];
        tile[T] = T;
        KEEP();
        - if (n < 0) BARRIER();
        + if (n > 0) BARRIER();
        out[T] = tile[(T + 128) % n];""",
    "a bitonic sort that waits for the wide steps alone": """
        SHARED int v[256];
        v[T] = n - T;
        BARRIER();
        for (int k = 2; k <= 256; k *= 2)
            for (int j = k / 2; j > 0; j /= 2) {
                int p = T ^ j;
                if (p > T) {
                    int a = v[T], b = v[p];
                    if ((a > b) == ((T & k) == 0)) { v[T] = b; v[p] = a; }
                }
                - if (j > 64) BARRIER();
                + BARRIER();
            }
        out[T] = v[T];""",
    "a tile that is filled again in the next round": """
        SHARED int m[16][17];
        for (int round = 0; round < 2; round++) {
            m[T / 16][T % 16] = out[T] + round;
            BARRIER();
            out[512 + T] = m[T % 16][T / 16];
            + BARRIER();
        }""",
}
ROWS = tuple(
    Row(name, language, "race", "shared-race", text, buffers=(8192,), numbers=(256,))
    for name, text in TEXTS.items()
    for language in ("cuda", "hip")
)
