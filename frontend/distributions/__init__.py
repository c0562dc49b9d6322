"""Distributions: densities, draws with gradients, entropies, divergences and transforms, under PyTorch's names.

In       parameters
Out      Normal, Categorical, Gamma, ...; kl_divergence; transforms, constraints, biject_to and transform_to
Changes  nothing
Next     distribution.py (what all have), continuous.py, tails.py, bounded.py, discrete.py, counts.py, gamma.py,
         vectors.py, matrices.py, mixtures.py, transformed.py, transforms.py, kl.py
"""

from hcq.frontend.distributions import constraints as constraints
from hcq.frontend.distributions.bounded import ContinuousBernoulli as ContinuousBernoulli
from hcq.frontend.distributions.bounded import Kumaraswamy as Kumaraswamy
from hcq.frontend.distributions.bounded import VonMises as VonMises
from hcq.frontend.distributions.constraint_registry import biject_to as biject_to
from hcq.frontend.distributions.constraint_registry import transform_to as transform_to
from hcq.frontend.distributions.continuous import Cauchy as Cauchy
from hcq.frontend.distributions.continuous import Exponential as Exponential
from hcq.frontend.distributions.continuous import Gumbel as Gumbel
from hcq.frontend.distributions.continuous import HalfNormal as HalfNormal
from hcq.frontend.distributions.continuous import Laplace as Laplace
from hcq.frontend.distributions.continuous import LogNormal as LogNormal
from hcq.frontend.distributions.continuous import Normal as Normal
from hcq.frontend.distributions.continuous import Uniform as Uniform
from hcq.frontend.distributions.counts import Binomial as Binomial
from hcq.frontend.distributions.counts import Multinomial as Multinomial
from hcq.frontend.distributions.counts import NegativeBinomial as NegativeBinomial
from hcq.frontend.distributions.discrete import Bernoulli as Bernoulli
from hcq.frontend.distributions.discrete import Categorical as Categorical
from hcq.frontend.distributions.discrete import Geometric as Geometric
from hcq.frontend.distributions.discrete import OneHotCategorical as OneHotCategorical
from hcq.frontend.distributions.discrete import (
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from hcq.frontend.distributions.discrete import Poisson as Poisson
from hcq.frontend.distributions.distribution import Distribution as Distribution
from hcq.frontend.distributions.gamma import Beta as Beta
from hcq.frontend.distributions.gamma import Chi2 as Chi2
from hcq.frontend.distributions.gamma import Dirichlet as Dirichlet
from hcq.frontend.distributions.gamma import Gamma as Gamma
from hcq.frontend.distributions.kl import kl_divergence as kl_divergence
from hcq.frontend.distributions.kl import register_kl as register_kl
from hcq.frontend.distributions.matrices import LKJCholesky as LKJCholesky
from hcq.frontend.distributions.matrices import Wishart as Wishart
from hcq.frontend.distributions.mixtures import MixtureSameFamily as MixtureSameFamily
from hcq.frontend.distributions.tails import FisherSnedecor as FisherSnedecor
from hcq.frontend.distributions.tails import GeneralizedPareto as GeneralizedPareto
from hcq.frontend.distributions.tails import HalfCauchy as HalfCauchy
from hcq.frontend.distributions.tails import InverseGamma as InverseGamma
from hcq.frontend.distributions.tails import Pareto as Pareto
from hcq.frontend.distributions.tails import StudentT as StudentT
from hcq.frontend.distributions.tails import Weibull as Weibull
from hcq.frontend.distributions.transformed import LogisticNormal as LogisticNormal
from hcq.frontend.distributions.transformed import RelaxedBernoulli as RelaxedBernoulli
from hcq.frontend.distributions.transformed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from hcq.frontend.distributions.transformed import TransformedDistribution as TransformedDistribution
from hcq.frontend.distributions.transforms import AbsTransform as AbsTransform
from hcq.frontend.distributions.transforms import AffineTransform as AffineTransform
from hcq.frontend.distributions.transforms import ComposeTransform as ComposeTransform
from hcq.frontend.distributions.transforms import (
    CumulativeDistributionTransform as CumulativeDistributionTransform,
)
from hcq.frontend.distributions.transforms import ExpTransform as ExpTransform
from hcq.frontend.distributions.transforms import IndependentTransform as IndependentTransform
from hcq.frontend.distributions.transforms import PowerTransform as PowerTransform
from hcq.frontend.distributions.transforms import ReshapeTransform as ReshapeTransform
from hcq.frontend.distributions.transforms import SigmoidTransform as SigmoidTransform
from hcq.frontend.distributions.transforms import SoftplusTransform as SoftplusTransform
from hcq.frontend.distributions.transforms import TanhTransform as TanhTransform
from hcq.frontend.distributions.transforms import Transform as Transform
from hcq.frontend.distributions.transforms import identity_transform as identity_transform
from hcq.frontend.distributions.transforms_of_vectors import CatTransform as CatTransform
from hcq.frontend.distributions.transforms_of_vectors import CorrCholeskyTransform as CorrCholeskyTransform
from hcq.frontend.distributions.transforms_of_vectors import LowerCholeskyTransform as LowerCholeskyTransform
from hcq.frontend.distributions.transforms_of_vectors import (
    PositiveDefiniteTransform as PositiveDefiniteTransform,
)
from hcq.frontend.distributions.transforms_of_vectors import SoftmaxTransform as SoftmaxTransform
from hcq.frontend.distributions.transforms_of_vectors import StackTransform as StackTransform
from hcq.frontend.distributions.transforms_of_vectors import StickBreakingTransform as StickBreakingTransform
from hcq.frontend.distributions.vectors import Independent as Independent
from hcq.frontend.distributions.vectors import LowRankMultivariateNormal as LowRankMultivariateNormal
from hcq.frontend.distributions.vectors import MultivariateNormal as MultivariateNormal
