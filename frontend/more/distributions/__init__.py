"""Distributions: densities, draws with gradients, entropies, divergences and transforms, under PyTorch's names.

In       parameters
Out      Normal, Categorical, Gamma, ...; kl_divergence; transforms, constraints, biject_to and transform_to
Next     distribution.py (what all have), continuous.py, tails.py, bounded.py, discrete.py, counts.py, gamma.py,
         vectors.py, matrices.py, mixtures.py, transformed.py, transforms.py, kl.py
"""

from hcq.frontend.more.distributions import constraints as constraints
from hcq.frontend.more.distributions.bounded import ContinuousBernoulli as ContinuousBernoulli
from hcq.frontend.more.distributions.bounded import Kumaraswamy as Kumaraswamy
from hcq.frontend.more.distributions.bounded import VonMises as VonMises
from hcq.frontend.more.distributions.constraint_registry import biject_to as biject_to
from hcq.frontend.more.distributions.constraint_registry import transform_to as transform_to
from hcq.frontend.more.distributions.continuous import Cauchy as Cauchy
from hcq.frontend.more.distributions.continuous import Exponential as Exponential
from hcq.frontend.more.distributions.continuous import Gumbel as Gumbel
from hcq.frontend.more.distributions.continuous import HalfNormal as HalfNormal
from hcq.frontend.more.distributions.continuous import Laplace as Laplace
from hcq.frontend.more.distributions.continuous import LogNormal as LogNormal
from hcq.frontend.more.distributions.continuous import Normal as Normal
from hcq.frontend.more.distributions.continuous import Uniform as Uniform
from hcq.frontend.more.distributions.counts import Binomial as Binomial
from hcq.frontend.more.distributions.counts import Multinomial as Multinomial
from hcq.frontend.more.distributions.counts import NegativeBinomial as NegativeBinomial
from hcq.frontend.more.distributions.discrete import Bernoulli as Bernoulli
from hcq.frontend.more.distributions.discrete import Categorical as Categorical
from hcq.frontend.more.distributions.discrete import Geometric as Geometric
from hcq.frontend.more.distributions.discrete import OneHotCategorical as OneHotCategorical
from hcq.frontend.more.distributions.discrete import (
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from hcq.frontend.more.distributions.discrete import Poisson as Poisson
from hcq.frontend.more.distributions.distribution import Distribution as Distribution
from hcq.frontend.more.distributions.gamma import Beta as Beta
from hcq.frontend.more.distributions.gamma import Chi2 as Chi2
from hcq.frontend.more.distributions.gamma import Dirichlet as Dirichlet
from hcq.frontend.more.distributions.gamma import Gamma as Gamma
from hcq.frontend.more.distributions.kl import kl_divergence as kl_divergence
from hcq.frontend.more.distributions.kl import register_kl as register_kl
from hcq.frontend.more.distributions.matrices import LKJCholesky as LKJCholesky
from hcq.frontend.more.distributions.matrices import Wishart as Wishart
from hcq.frontend.more.distributions.mixtures import MixtureSameFamily as MixtureSameFamily
from hcq.frontend.more.distributions.tails import FisherSnedecor as FisherSnedecor
from hcq.frontend.more.distributions.tails import GeneralizedPareto as GeneralizedPareto
from hcq.frontend.more.distributions.tails import HalfCauchy as HalfCauchy
from hcq.frontend.more.distributions.tails import InverseGamma as InverseGamma
from hcq.frontend.more.distributions.tails import Pareto as Pareto
from hcq.frontend.more.distributions.tails import StudentT as StudentT
from hcq.frontend.more.distributions.tails import Weibull as Weibull
from hcq.frontend.more.distributions.transformed import LogisticNormal as LogisticNormal
from hcq.frontend.more.distributions.transformed import RelaxedBernoulli as RelaxedBernoulli
from hcq.frontend.more.distributions.transformed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from hcq.frontend.more.distributions.transformed import TransformedDistribution as TransformedDistribution
from hcq.frontend.more.distributions.transforms import AbsTransform as AbsTransform
from hcq.frontend.more.distributions.transforms import AffineTransform as AffineTransform
from hcq.frontend.more.distributions.transforms import ComposeTransform as ComposeTransform
from hcq.frontend.more.distributions.transforms import (
    CumulativeDistributionTransform as CumulativeDistributionTransform,
)
from hcq.frontend.more.distributions.transforms import ExpTransform as ExpTransform
from hcq.frontend.more.distributions.transforms import IndependentTransform as IndependentTransform
from hcq.frontend.more.distributions.transforms import PowerTransform as PowerTransform
from hcq.frontend.more.distributions.transforms import ReshapeTransform as ReshapeTransform
from hcq.frontend.more.distributions.transforms import SigmoidTransform as SigmoidTransform
from hcq.frontend.more.distributions.transforms import SoftplusTransform as SoftplusTransform
from hcq.frontend.more.distributions.transforms import TanhTransform as TanhTransform
from hcq.frontend.more.distributions.transforms import Transform as Transform
from hcq.frontend.more.distributions.transforms import identity_transform as identity_transform
from hcq.frontend.more.distributions.transforms_of_vectors import CatTransform as CatTransform
from hcq.frontend.more.distributions.transforms_of_vectors import (
    CorrCholeskyTransform as CorrCholeskyTransform,
)
from hcq.frontend.more.distributions.transforms_of_vectors import (
    LowerCholeskyTransform as LowerCholeskyTransform,
)
from hcq.frontend.more.distributions.transforms_of_vectors import (
    PositiveDefiniteTransform as PositiveDefiniteTransform,
)
from hcq.frontend.more.distributions.transforms_of_vectors import SoftmaxTransform as SoftmaxTransform
from hcq.frontend.more.distributions.transforms_of_vectors import StackTransform as StackTransform
from hcq.frontend.more.distributions.transforms_of_vectors import (
    StickBreakingTransform as StickBreakingTransform,
)
from hcq.frontend.more.distributions.vectors import Independent as Independent
from hcq.frontend.more.distributions.vectors import LowRankMultivariateNormal as LowRankMultivariateNormal
from hcq.frontend.more.distributions.vectors import MultivariateNormal as MultivariateNormal
