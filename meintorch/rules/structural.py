"""Functions without a derivative: what depends on shapes and dtypes only, and what is piecewise constant."""

from __future__ import annotations

import operator

import numpy as np

from meintorch.core.primitive import constant, structural

structural(np.shape, np.ndim, np.size, np.zeros_like, np.ones_like, np.empty_like)
structural(np.result_type, np.can_cast, np.common_type, np.min_scalar_type)
structural(np.isfortran, np.may_share_memory, np.shares_memory)

constant(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
constant(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
constant(np.logical_and, np.logical_or, np.logical_xor, np.logical_not)
constant(np.all, np.any, np.allclose, np.isclose, np.array_equal, np.array_equiv)
constant(np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.argpartition, np.lexsort)
constant(np.argwhere, np.nonzero, np.flatnonzero, np.count_nonzero, np.searchsorted, np.digitize)
constant(np.isin, np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d, np.histogram_bin_edges)
constant(np.unique_all, np.unique_counts, np.unique_inverse)
constant(np.linalg.matrix_rank, np.einsum_path)
constant(np.array2string, np.array_repr, np.array_str)
constant(np.diag_indices_from, np.tril_indices_from, np.triu_indices_from, np.ix_)
