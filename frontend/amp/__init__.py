"""Mixed precision: products in 16 bits, sums and losses in 32, gradients scaled so that small ones do not vanish.

In       a training step
Out      `autocast`, `GradScaler`
Changes  nothing by itself
Next     casting.py, scaler.py
"""

from hcq.frontend.amp.casting import autocast as autocast
from hcq.frontend.amp.scaler import GradScaler as GradScaler
