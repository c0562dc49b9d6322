"""Distributions: densities, draws with gradients, entropies, divergences and transforms, under PyTorch's names.

In       parameters
Out      Normal, Categorical, Gamma, ...; kl_divergence; transforms, constraints, biject_to and transform_to
Next     distribution.py (what all have), continuous.py, tails.py, bounded.py, discrete.py, counts.py, gamma.py,
         vectors.py, matrices.py, mixtures.py, transformed.py, transforms.py, kl.py
"""

from typing import TYPE_CHECKING

from hcq.lazy_module import late_names

if TYPE_CHECKING:  # as LATE has them
    from hcq.frontend.more.distributions import constraints as constraints
    from hcq.frontend.more.distributions.bounded import *
    from hcq.frontend.more.distributions.constraint_registry import *
    from hcq.frontend.more.distributions.continuous import *
    from hcq.frontend.more.distributions.counts import *
    from hcq.frontend.more.distributions.discrete import *
    from hcq.frontend.more.distributions.distribution import *
    from hcq.frontend.more.distributions.gamma import *
    from hcq.frontend.more.distributions.kl import *
    from hcq.frontend.more.distributions.matrices import *
    from hcq.frontend.more.distributions.mixtures import *
    from hcq.frontend.more.distributions.tails import *
    from hcq.frontend.more.distributions.transformed import *
    from hcq.frontend.more.distributions.transforms import *
    from hcq.frontend.more.distributions.transforms_of_vectors import *
    from hcq.frontend.more.distributions.vectors import *

# a file -> its names: it is imported when one is first asked for
LATE = {
    "bounded": "ContinuousBernoulli Kumaraswamy VonMises",
    "constraint_registry": "biject_to transform_to",
    "continuous": "Cauchy Exponential Gumbel HalfNormal Laplace LogNormal Normal Uniform",
    "counts": "Binomial Multinomial NegativeBinomial",
    "discrete": "Bernoulli Categorical Geometric OneHotCategorical OneHotCategoricalStraightThrough Poisson",
    "distribution": "Distribution",
    "gamma": "Beta Chi2 Dirichlet Gamma",
    "kl": "kl_divergence register_kl",
    "matrices": "LKJCholesky Wishart",
    "mixtures": "MixtureSameFamily",
    "tails": "FisherSnedecor GeneralizedPareto HalfCauchy InverseGamma Pareto StudentT Weibull",
    "transformed": "LogisticNormal RelaxedBernoulli RelaxedOneHotCategorical TransformedDistribution",
    "transforms": (
        "AbsTransform AffineTransform ComposeTransform CumulativeDistributionTransform ExpTransform "
        "IndependentTransform PowerTransform ReshapeTransform SigmoidTransform SoftplusTransform "
        "TanhTransform Transform identity_transform"
    ),
    "transforms_of_vectors": (
        "CatTransform CorrCholeskyTransform LowerCholeskyTransform PositiveDefiniteTransform "
        "SoftmaxTransform StackTransform StickBreakingTransform"
    ),
    "vectors": "Independent LowRankMultivariateNormal MultivariateNormal",
}
__getattr__, __dir__ = late_names(__name__, LATE, ("constraints",))
