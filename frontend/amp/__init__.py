"""Mixed precision: products in 16 bits, sums and losses in 32, gradients scaled so that small ones do not vanish.

In       a training step
Out      `autocast`, `GradScaler`, `custom_fwd` and `custom_bwd`
Changes  nothing by itself
Next     casting.py, scaler.py, custom.py
"""

from hcq.frontend.amp.casting import autocast as autocast
from hcq.frontend.amp.casting import is_autocast_available as is_autocast_available
from hcq.frontend.amp.custom import custom_bwd as custom_bwd
from hcq.frontend.amp.custom import custom_fwd as custom_fwd
from hcq.frontend.amp.scaler import GradScaler as GradScaler
