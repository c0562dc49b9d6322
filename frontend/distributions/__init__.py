"""hcq.distributions: densities, draws with gradients, entropies and divergences, under PyTorch's names.

In       parameters
Out      Normal, Categorical, Gamma, ...; kl_divergence
Changes  nothing
Next     distribution.py (what all have), continuous.py, discrete.py, gamma.py, vectors.py, kl.py
"""

from hcq.frontend.distributions.continuous import Cauchy as Cauchy
from hcq.frontend.distributions.continuous import Exponential as Exponential
from hcq.frontend.distributions.continuous import Gumbel as Gumbel
from hcq.frontend.distributions.continuous import HalfNormal as HalfNormal
from hcq.frontend.distributions.continuous import Laplace as Laplace
from hcq.frontend.distributions.continuous import LogNormal as LogNormal
from hcq.frontend.distributions.continuous import Normal as Normal
from hcq.frontend.distributions.continuous import Uniform as Uniform
from hcq.frontend.distributions.discrete import Bernoulli as Bernoulli
from hcq.frontend.distributions.discrete import Categorical as Categorical
from hcq.frontend.distributions.discrete import Geometric as Geometric
from hcq.frontend.distributions.discrete import OneHotCategorical as OneHotCategorical
from hcq.frontend.distributions.discrete import Poisson as Poisson
from hcq.frontend.distributions.distribution import Distribution as Distribution
from hcq.frontend.distributions.gamma import Beta as Beta
from hcq.frontend.distributions.gamma import Chi2 as Chi2
from hcq.frontend.distributions.gamma import Dirichlet as Dirichlet
from hcq.frontend.distributions.gamma import Gamma as Gamma
from hcq.frontend.distributions.kl import kl_divergence as kl_divergence
from hcq.frontend.distributions.kl import register_kl as register_kl
from hcq.frontend.distributions.vectors import Independent as Independent
from hcq.frontend.distributions.vectors import MultivariateNormal as MultivariateNormal
