"""Artefacts: a program of tensors as a file that runs without the compiler, and without the tensor layer.

In       a file that `hcq.save_program` wrote (frontend/jit/saving.py)
Out      `load_program`: a program that is called with bytes or buffers
Changes  nothing by itself
Next     file.py (every byte of the file, and reading it), program.py (what runs it), command.py (`python -m hcq run`),
         docs/artefact.md
"""

from hcq.artefact.program import LoadedProgram as LoadedProgram
from hcq.artefact.program import load_program as load_program
