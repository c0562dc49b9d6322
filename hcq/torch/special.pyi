# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.special."""

from hcq.frontend.functions.special import *
from hcq.frontend.tensor import Tensor
from hcq.frontend.functions.special import airy_ai as airy_ai
from hcq.frontend.functions.special import bessel_j0 as bessel_j0
from hcq.frontend.functions.special import bessel_j1 as bessel_j1
from hcq.frontend.functions.special import bessel_y0 as bessel_y0
from hcq.frontend.functions.special import bessel_y1 as bessel_y1
from hcq.frontend.functions.special import chebyshev_polynomial_t as chebyshev_polynomial_t
from hcq.frontend.functions.special import chebyshev_polynomial_u as chebyshev_polynomial_u
from hcq.frontend.functions.special import chebyshev_polynomial_v as chebyshev_polynomial_v
from hcq.frontend.functions.special import chebyshev_polynomial_w as chebyshev_polynomial_w
from hcq.frontend.functions.special import hermite_polynomial_h as hermite_polynomial_h
from hcq.frontend.functions.special import hermite_polynomial_he as hermite_polynomial_he
from hcq.frontend.functions.special import laguerre_polynomial_l as laguerre_polynomial_l
from hcq.frontend.functions.special import legendre_polynomial_p as legendre_polynomial_p
from hcq.frontend.functions.special import modified_bessel_k0 as modified_bessel_k0
from hcq.frontend.functions.special import modified_bessel_k1 as modified_bessel_k1
from hcq.frontend.functions.special import scaled_modified_bessel_k0 as scaled_modified_bessel_k0
from hcq.frontend.functions.special import scaled_modified_bessel_k1 as scaled_modified_bessel_k1
from hcq.frontend.functions.special import shifted_chebyshev_polynomial_t as shifted_chebyshev_polynomial_t
from hcq.frontend.functions.special import shifted_chebyshev_polynomial_u as shifted_chebyshev_polynomial_u
from hcq.frontend.functions.special import shifted_chebyshev_polynomial_v as shifted_chebyshev_polynomial_v
from hcq.frontend.functions.special import shifted_chebyshev_polynomial_w as shifted_chebyshev_polynomial_w
digamma = Tensor.digamma
entr = Tensor.entr
erf = Tensor.erf
erfc = Tensor.erfc
erfcx = Tensor.erfcx
erfinv = Tensor.erfinv
exp2 = Tensor.exp2
expit = Tensor.sigmoid
expm1 = Tensor.expm1
gammainc = Tensor.igamma
gammaincc = Tensor.igammac
gammaln = Tensor.lgamma
i0 = Tensor.i0
i0e = Tensor.i0e
i1 = Tensor.i1
i1e = Tensor.i1e
log1p = Tensor.log1p
log_ndtr = Tensor.log_ndtr
log_softmax = Tensor.log_softmax
logit = Tensor.logit
logsumexp = Tensor.logsumexp
modified_bessel_i0 = Tensor.i0
modified_bessel_i1 = Tensor.i1
multigammaln = Tensor.mvlgamma
ndtr = Tensor.ndtr
ndtri = Tensor.ndtri
polygamma = Tensor.polygamma
psi = Tensor.digamma
round = Tensor.round
sinc = Tensor.sinc
softmax = Tensor.softmax
xlog1py = Tensor.xlog1py
xlogy = Tensor.xlogy
