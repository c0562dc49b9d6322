"""jit: a function of tensors is called and watched, and from then on what it submitted is submitted again.

In       a function of tensors
Out      `jit`, and the function that it makes
Changes  nothing by itself
Next     function.py (which call is replayed), capture.py (what a call does), replay.py (how it is done again);
         saving.py (a recording as a file), closure.py (the variables around a function), contents.py (what is in them),
         references.py (who holds a tensor), pytree.py (nested containers)
"""

from hcq.frontend.jit.function import Jit as Jit
from hcq.frontend.jit.function import jit as jit
from hcq.frontend.jit.saving import save_program as save_program
