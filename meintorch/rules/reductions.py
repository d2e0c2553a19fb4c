"""Reductions: functions that combine the entries along one or several axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.primitive import composite, general, linear
from meintorch.core.shapes import axes_of, count, expand_reduced, restore_axes

# ---------------------------------------------------------------- sums and means


def _kept(g: Any, where: Any) -> Any:
    """Only entries that ``where`` let in have a share."""
    return g if where is None else np.where(where, g, 0)


def _sum_transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    return _kept(expand_reduced(_cast(g, a_dtype), a_shape, axis, keepdims), where)


def _cast(g: Any, dtype: Any) -> Any:
    """Undo a reduction's dtype= option."""
    if g.dtype == dtype:
        return g
    return g.astype(dtype) if dtype.kind == "c" or g.dtype.kind != "c" else np.real(g).astype(dtype)


linear(np.sum, a=_sum_transpose)
