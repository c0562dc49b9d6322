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
    from hcq.frontend.more.linalg import over_complex  # only for those who have complex matrices

    found: Callable[..., Any] = getattr(over_complex, name)
    return found


complex_functions(_over_complex)
