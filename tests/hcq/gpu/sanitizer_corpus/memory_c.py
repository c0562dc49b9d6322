"""Accesses outside of memory in C, for CUDA and for HIP alike: `out` has 200 integers, and n is 200. The pool
rounds its 800 bytes up to 1,024, so what is near behind them is nobody's, and nothing
stores farther than that.

In       nothing
Out      `ROWS`, each twice but for those of one vendor
Next     row.py, languages.py
"""

from __future__ import annotations

from typing import NamedTuple

from tests.hcq.gpu.sanitizer_corpus.row import Row


class _Text(NamedTuple):
    rule: str
    text: str
    grid: int = 1
    languages: tuple[str, ...] = ("cuda", "hip")


OVERRUN = "buffer-overrun"
TEXTS = {
    "one behind": _Text(
        OVERRUN,
        """
        - out[T + 1] = T;
        + out[T] = T;""",
    ),
    "more threads than elements": _Text(
        OVERRUN,
        """
        int i = B * 25 + T;
        - out[i] = i;
        + if (i < n) out[i] = i;""",
        grid=2,
    ),
    "a loop that includes its end": _Text(
        OVERRUN,
        """
        - for (int i = T; i <= n; i += n) out[i] = i;
        + for (int i = T; i < n; i += n) out[i] = i;""",
    ),
    "twice as far apart": _Text(
        OVERRUN,
        """
        - if (T < 120) out[T * 2] = T;
        + if (T < 100) out[T * 2] = T;""",
    ),
    "a neighbour that the last thread does not have": _Text(
        OVERRUN,
        """
        - int right = out[T + 1];
        + int right = out[T + 1 < n ? T + 1 : T];
        out[T] = right;""",
    ),
    "an atomic behind the end": _Text(
        OVERRUN,
        """
        - ADD(&out[n + T % 4], 1);
        + ADD(&out[n - 1 - T % 4], 1);""",
    ),
    "rows of another width": _Text(
        OVERRUN,
        """
        - out[T / 10 * 11 + T % 10] = T;
        + out[T / 10 * 10 + T % 10] = T;""",
    ),
    "elements of another type": _Text(
        OVERRUN,
        """
        - if (T < n / 2 + 20) ((long long *) out)[T] = T;
        + if (T < n / 2) ((long long *) out)[T] = T;""",
    ),
    "a count that was rounded up": _Text(
        OVERRUN,
        """
        - for (int i = T; i < (n + 63) / 64 * 64; i += n) out[i] = i;
        + for (int i = T; i < n; i += n) out[i] = i;""",
    ),
    "columns and rows exchanged": _Text(
        OVERRUN,
        """
        int x = T % 16, y = T / 16;
        - if (y < 12) out[x * 16 + y] = T;
        + if (y < 12) out[y * 16 + x] = T;""",
    ),
    "a table of where to store": _Text(
        OVERRUN,
        """
        SHARED int order[256];
        - order[T] = (T * 3) % (2 * n);
        + order[T] = (T * 3) % n;
        BARRIER();
        out[order[T]] = T;""",
    ),
    "a null pointer": _Text(
        "null-access",
        """
        - int *place = (int *) (long long) (n - 200);
        + int *place = out;
        place[T] = T;""",
    ),
    "an address from nowhere": _Text(
        "stray-access",
        """
        - int *far = (int *) ((long long) n << 36);
        + int *far = out;
        far[T] = T;""",
    ),
    "more shared memory than there is": _Text(
        "shared-beyond",
        """
        SHARED int tile[64];
        - tile[T + n - 200] = T;
        + if (T < 64) tile[T + n - 200] = T;
        BARRIER();
        out[T] = tile[T % 64];""",
    ),
    "an array of its own, and too far in it": _Text(
        "local-overrun",
        """
        int own[100];
        for (int i = 0; i < 100; i++) own[(i * 7 + T) % 100] = i;
        - out[T] = own[n * 256 + T];
        + out[T] = own[(n * 256 + T) % 100];""",
        languages=("cuda",),
    ),
    "what malloc gave, and one more": _Text(
        "buffer-overrun",
        """
        int *own = (int *) malloc(4 * n);
        for (int i = 0; i < n; i++) own[i] = i;
        - out[T] = ((volatile int *) own)[n];
        + out[T] = ((volatile int *) own)[n - 1];
        free(own);""",
        languages=("cuda",),
    ),
    "what malloc gave, after free": _Text(
        "use-after-free",
        """
        volatile int *own = (int *) malloc(4 * n);
        own[T] = T;
        + out[T] = own[T];
        free((void *) own);
        - out[T] = own[T];""",
        languages=("cuda",),
    ),
    "an address that is not aligned": _Text(
        "misaligned-access",
        """
        - *(int *) ((char *) out + T * 2 + 1) = T;
        + *(int *) ((char *) out + T * 2 / 4 * 4) = 1;""",
        languages=("cuda",),
    ),
}
ROWS = tuple(
    Row(
        name, language, "memory", one.rule, one.text, grid=one.grid, buffers=(800,), numbers=(200,), block=200
    )
    for name, one in TEXTS.items()
    for language in one.languages
)
