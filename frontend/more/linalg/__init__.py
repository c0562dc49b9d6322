"""Linear algebra: matrices taken apart, and what follows from that. `hcq.torch.linalg` has the functions.

In       batches of matrices, real or complex
Out      lazy tensors of factors, solutions, values
Next     factors.py, solving.py, orthogonal.py, spectra.py, indefinite.py, eigen.py, exponential.py (the functions),
         over_complex.py (the same of complex matrices), parts.py, functions.py (`hcq.torch.linalg`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.more.linalg.parts import complex_functions


def _over_complex(name: str) -> Callable[..., Any]:
    # only for those who have complex matrices
    from hcq.frontend.more.linalg import complex_systems, over_complex, unitary

    places = (vars(module) for module in (over_complex, complex_systems, unitary))
    found: Callable[..., Any] = next(place[name] for place in places if name in place)
    return found


complex_functions(_over_complex)
