"""A corpus of kernels with one planted fault each, beside their right twins, for the words of HCQ_SANITIZE.

In       nothing
Out      `ROWS`: all of them; a row is run by ../test_sanitizer_corpus.py on every machine that its language has
Next     row.py (how a row is written), languages.py (how each language is compiled), race_c.py and its neighbours (the
         kernels, a file for each word and language)

To add a row, write it into the file of its word and language: text in which a line that begins with - is in the wrong
kernel alone, and one with + in the right one alone. A new file is named in FILES.
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus import (
    faults_c,
    faults_msl,
    faults_ptx,
    hazard_assembly,
    idioms_cuda,
    idioms_hip,
    idioms_msl,
    init_assembly,
    init_buffers,
    init_c,
    init_msl,
    init_ptx,
    memory_c,
    race_assembly,
    race_c,
    race_copies,
    race_global_c,
    race_msl,
    race_ptx,
    race_steps,
    race_tcgen05,
    sync_ptx,
    unequal_c,
    wait_assembly,
    wait_ptx,
)
from tests.hcq.gpu.sanitizer_corpus.row import Row

FILES = (
    faults_c,
    faults_msl,
    faults_ptx,
    hazard_assembly,
    idioms_cuda,
    idioms_hip,
    idioms_msl,
    init_assembly,
    init_buffers,
    init_c,
    init_msl,
    init_ptx,
    memory_c,
    race_c,
    race_copies,
    race_global_c,
    race_ptx,
    race_assembly,
    race_msl,
    race_steps,
    race_tcgen05,
    sync_ptx,
    unequal_c,
    wait_assembly,
    wait_ptx,
)
ROWS: tuple[Row, ...] = tuple(row for file in FILES for row in file.ROWS)
