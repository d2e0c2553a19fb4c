"""Functions without a derivative: what depends on shapes and dtypes only, and what is piecewise constant."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from meintorch.core.batching import (
    BatchCall,
    axis_batch,
    elementwise_batch,
    entries_batch,
    flat_axis_batch,
    in_front,
    matrix_batch,
    shifted,
)
from meintorch.core.primitive import constant, structural
from meintorch.core.shapes import discretize


def _search_batch(call: BatchCall) -> Any:
    return call.run() if call.only("v") else None


def _lexsort_batch(call: BatchCall) -> Any:
    keys = [in_front(x, batched, call.size) for x, batched in call.many("keys")]
    return np.lexsort(keys, shifted(call.get("axis"), keys[0].ndim - 1)) if keys[0].ndim > 1 else None


structural(np.shape, np.ndim, np.size)
structural(np.result_type, np.can_cast, np.common_type, np.min_scalar_type)
structural(np.isfortran, np.may_share_memory, np.shares_memory)
structural(np.diag_indices_from, np.tril_indices_from, np.triu_indices_from, np.einsum_path)

constant(discretize, batch=entries_batch)
constant(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, batch=elementwise_batch)
constant(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
constant(operator.and_, operator.or_, operator.xor, operator.invert, batch=elementwise_batch)
constant(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift, np.gcd, np.lcm)
constant(np.logical_and, np.logical_or, np.logical_xor, np.logical_not)
constant(np.all, np.any, np.count_nonzero, batch=axis_batch)
constant(np.isclose, batch=elementwise_batch)
constant(np.allclose, np.array_equal, np.array_equiv)
constant(np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.argpartition, batch=flat_axis_batch)
constant(np.searchsorted, batch=_search_batch)
constant(np.digitize, np.isin, batch=entries_batch)
constant(np.lexsort, batch=_lexsort_batch)
constant(np.argwhere, np.nonzero, np.flatnonzero)
constant(np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d, np.histogram_bin_edges)
constant(np.linalg.matrix_rank, batch=matrix_batch)
constant(np.array2string, np.array_repr, np.array_str)
constant(np.ix_)
