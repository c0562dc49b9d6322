# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.linalg."""

from hcq.frontend.more.linalg.functions import *
from hcq.frontend.tensor import Tensor
from hcq.frontend.more.linalg.factors import cholesky as cholesky
from hcq.frontend.more.linalg.factors import cholesky_ex as cholesky_ex
from hcq.frontend.more.linalg.factors import cholesky_inverse as cholesky_inverse
from hcq.frontend.more.linalg.factors import cholesky_solve as cholesky_solve
from hcq.frontend.more.linalg.spectra import cond as cond
from hcq.frontend.more.linalg.solving import det as det
from hcq.frontend.more.linalg.eigen import eig as eig
from hcq.frontend.more.linalg.spectra import eigh as eigh
from hcq.frontend.more.linalg.eigen import eigvals as eigvals
from hcq.frontend.more.linalg.spectra import eigvalsh as eigvalsh
from hcq.frontend.more.linalg.orthogonal import geqrf as geqrf
from hcq.frontend.more.linalg.orthogonal import householder_product as householder_product
from hcq.frontend.more.linalg.solving import inv as inv
from hcq.frontend.more.linalg.solving import inv_ex as inv_ex
from hcq.frontend.more.linalg.indefinite import ldl_factor as ldl_factor
from hcq.frontend.more.linalg.indefinite import ldl_factor_ex as ldl_factor_ex
from hcq.frontend.more.linalg.indefinite import ldl_solve as ldl_solve
from hcq.frontend.more.linalg.solving import logdet as logdet
from hcq.frontend.more.linalg.spectra import lstsq as lstsq
from hcq.frontend.more.linalg.factors import lu as lu
from hcq.frontend.more.linalg.factors import lu_factor as lu_factor
from hcq.frontend.more.linalg.factors import lu_factor_ex as lu_factor_ex
from hcq.frontend.more.linalg.factors import lu_packed as lu_packed
from hcq.frontend.more.linalg.factors import lu_solve as lu_solve
from hcq.frontend.more.linalg.factors import lu_unpack as lu_unpack
from hcq.frontend.more.linalg.exponential import matrix_exp as matrix_exp
from hcq.frontend.more.linalg.solving import matrix_power as matrix_power
from hcq.frontend.more.linalg.spectra import matrix_rank as matrix_rank
from hcq.frontend.more.linalg.orthogonal import ormqr as ormqr
from hcq.frontend.more.linalg.spectra import pca_lowrank as pca_lowrank
from hcq.frontend.more.linalg.spectra import pinv as pinv
from hcq.frontend.more.linalg.spectra import plain_svd as plain_svd
from hcq.frontend.more.linalg.orthogonal import qr as qr
from hcq.frontend.more.linalg.orthogonal import qr_some as qr_some
from hcq.frontend.more.linalg.spectra import singular_norm as singular_norm
from hcq.frontend.more.linalg.solving import slogdet as slogdet
from hcq.frontend.more.linalg.solving import solve as solve
from hcq.frontend.more.linalg.solving import solve_ex as solve_ex
from hcq.frontend.more.linalg.factors import solve_triangular as solve_triangular
from hcq.frontend.more.linalg.spectra import svd as svd
from hcq.frontend.more.linalg.spectra import svd_lowrank as svd_lowrank
from hcq.frontend.more.linalg.spectra import svdvals as svdvals
from hcq.frontend.more.linalg.solving import tensorinv as tensorinv
from hcq.frontend.more.linalg.solving import tensorsolve as tensorsolve
from hcq.frontend.more.linalg.factors import triangular_solve as triangular_solve
matmul = Tensor.matmul
