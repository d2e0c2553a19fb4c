"""Linear algebra: norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.batching import BatchCall, flat, shifted
from meintorch.core.primitive import general
from meintorch.core.shapes import axes_of, expand_reduced
from meintorch.rules.matrices import matrix_norm_vjp


def _norm_vjp(g: Any, ans: Any, x: Any, ord: Any, axis: Any, keepdims: Any) -> Any:
    """The least subgradient where there is a kink."""
    matrix = x.ndim == 2 if axis is None else isinstance(axis, tuple) and len(axis) == 2
    flat = ord is None or (ord == "fro" and matrix)
    if matrix and not flat:
        axes = axes_of(axis, x.ndim)
        g = np.squeeze(g, axes) if keepdims else g
        return np.moveaxis(matrix_norm_vjp(g, np.moveaxis(x, axes, (-2, -1)), ord), (-2, -1), axes)

    def full(small: Any) -> Any:
        return expand_reduced(small, x.shape, axis, keepdims)

    if flat or ord == 2:
        return full(g / np.where(ans == 0, 1, ans)) * np.conjugate(x)
    if ord == 0:
        return np.zeros_like(x)
    size = np.abs(x)
    direction = np.conjugate(x) / np.where(size == 0, 1, size)
    if ord in (np.inf, -np.inf):
        hit = size == full(ans)
        ties = np.sum(hit, axis=axes_of(axis, x.ndim), keepdims=True, dtype=size.dtype)
        return np.where(hit, full(g) / ties, 0) * direction
    # d/dx (sum |x|**p)**(1/p) = (|x| / ans)**(p - 1); entries that are 0 have no share for p > 1 and at a kink
    ratio = np.where(size == 0, 1, size) / full(np.where(ans == 0, 1, ans))
    return full(g) * np.where(size == 0, 0, ratio ** (ord - 1)) * direction


def _norm_batch(call: BatchCall) -> Any:
    x, order, axis, keepdims = [call.get(name) for name in ("x", "ord", "axis", "keepdims")]
    n = x.ndim - 1
    if axis is not None:
        return np.linalg.norm(x, order, shifted(axis, n), keepdims)
    if order is None:
        ans = np.linalg.norm(flat(x), axis=1)
        return ans.reshape(call.size, *(1,) * n) if keepdims else ans
    return np.linalg.norm(x, order, (1, 2) if n == 2 else 1, keepdims) if n in {1, 2} else None


general(np.linalg.norm, x=_norm_vjp, batch=_norm_batch)
