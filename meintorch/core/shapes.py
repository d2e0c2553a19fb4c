"""Shape arithmetic: what every rule needs to know about axes, broadcasting and dtypes.

All functions take plain arrays and traced ones alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meintorch._typing import Axis, Shape
from meintorch.core.large import product

ndarray = np.ndarray


def shape_of(x: Any) -> Shape:
    """Return the shape of an array, a traced value, a scalar or a nested list."""
    try:
        shape: Shape = x.shape
    except AttributeError:
        return np.shape(x)
    return shape


def shapes_of(xs: Sequence[Any]) -> tuple[Shape, ...]:
    """Return the shape of each element of a sequence."""
    return tuple([shape_of(x) for x in xs])


def dtype_of(x: Any) -> np.dtype[Any]:
    """Return the dtype of an array or a traced value; Python numbers have that of ``np.asarray``."""
    try:
        dtype: np.dtype[Any] = x.dtype
    except AttributeError:
        return np.asarray(x).dtype
    return dtype


def dtypes_of(xs: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """Return the dtype of each element of a sequence."""
    return tuple([dtype_of(x) for x in xs])


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return an ``axis`` argument as a tuple of non-negative axes; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple):
        return tuple([operator_index(a) % ndim for a in axis]) if ndim else ()
    return (operator_index(axis) % ndim,) if ndim else ()


def operator_index(axis: Any) -> int:
    """Return an axis as an int, numpy integers included."""
    return int(axis.__index__())


def count(shape: Shape, axes: tuple[int, ...]) -> int:
    """Return how many entries a reduction over ``axes`` combines."""
    return math.prod([shape[a] for a in axes])


def expand(g: Any, shape: Shape) -> Any:
    """Return ``g`` stretched to ``shape`` without copying it.

    The same as ``np.broadcast_to``; for plain arrays four times as fast, because the view is made directly. It is not
    to be written to.
    """
    if g.__class__ is not ndarray:
        if not isinstance(g, np.generic):
            return np.broadcast_to(g, shape)
        g = np.array(g)
    if g.shape == shape:
        return g
    lead = len(shape) - g.ndim
    strides = [0] * lead
    for have, want, stride in zip(g.shape, shape[lead:], g.strides, strict=True):
        if have == want:
            strides.append(stride)
        elif have == 1:
            strides.append(0)
        else:
            raise ValueError(f"cannot broadcast a cotangent of shape {g.shape} to shape {shape}")
    if not g.flags.forc or 0 in shape:  # ndarray() wants one contiguous buffer that is long enough
        return np.broadcast_to(g, shape)
    return ndarray(shape, g.dtype, g, 0, strides)


def expand_reduced(g: Any, shape: Shape, axis: Axis, keepdims: Any) -> Any:
    """Undo a reduction's change of shape: stretch ``g`` back over the axes that were reduced."""
    if axis is not None and not keepdims and shape_of(g) != shape:
        g = restore_axes(g, axes_of(axis, len(shape)))
    return expand(g, shape)


def restore_axes(g: Any, axes: tuple[int, ...]) -> Any:
    """Put axes of length one back where a reduction without ``keepdims`` removed them."""
    shape = list(shape_of(g))
    for a in sorted(axes):
        shape.insert(a, 1)
    return g.reshape(tuple(shape))


def unbroadcast(grad: Any, shape: Shape) -> Any:
    """Sum a cotangent over the axes along which an operand of ``shape`` was broadcast.

    Parameters
    ----------
    grad : array of any shape to which an operand of the given shape broadcasts
    shape : tuple of int

    Returns
    -------
    array of the given shape, in the dtype of grad; grad itself where nothing was broadcast
    """
    have = shape_of(grad)
    if have == tuple(shape):
        return grad
    lead = len(have) - len(shape)
    stretched = [lead + i for i, (n, m) in enumerate(zip(have[lead:], shape, strict=True)) if n != m]
    axes = (*range(lead), *stretched)
    large = grad.__class__ is ndarray and grad.size > 4096 and grad.dtype == np.float64 and grad.flags.c_contiguous
    if large and axes == tuple(range(axes[0], axes[-1] + 1)):
        return block_sum(grad, axes[0], axes[-1] + 1).reshape(shape)
    total: Any = np.add.reduce(grad, axis=axes)
    return total.reshape(shape) if stretched else total


def block_sum(x: Any, start: int, stop: int) -> Any:
    """Return the sum over neighbouring axes as a product with ones, many times as fast as NumPy's where they are short."""
    before, along, after = math.prod(x.shape[:start]), math.prod(x.shape[start:stop]), math.prod(x.shape[stop:])
    if after == 1 and along > 64:  # where they are long, NumPy adds up neighbours fast
        return np.add.reduce(x.reshape(before, along), axis=1)
    ones = np.ones(along)
    if after == 1:
        return np.dot(x.reshape(before, along), ones)
    if before == 1:
        return np.dot(ones, x.reshape(along, after))
    return np.matmul(ones, x.reshape(before, along, after))


def fit(h: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Give a cotangent the shape and dtype of the operand it belongs to.

    A real operand of a complex result takes the real part: its imaginary perturbations do not exist.
    """
    if h.shape != shape:
        h = unbroadcast(h, shape)
    if h.dtype != dtype:
        if h.dtype.kind == "c" and dtype.kind != "c":
            h = np.real(h)
        if h.dtype != dtype:
            h = h.astype(dtype)
    return h


def select(mask: Any, g: Any) -> Any:
    """Return ``np.where(mask, g, 0)``; of large arrays by a product, which takes a third of the time.

    A product is right unless it meets an infinity, which shows as a NaN.
    """
    plain = g.__class__ is ndarray and mask.__class__ is ndarray
    if plain and g.size > UNSURE and g.shape == mask.shape and g.dtype.kind == "f" and mask.dtype == bool:
        h = mask.astype(g.dtype)
        h *= g
        h += 0.0  # makes 0 of -0
        if not np.isnan(np.minimum.reduce(h, axis=None)):
            return h
    return np.where(mask, g, 0)


def contract(x: Any, g: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Return ``fit(x * g, shape, dtype)``: of large arrays without ever making the product that is then summed."""
    if (
        g.__class__ is ndarray
        and x.__class__ is ndarray
        and g.size > SUMMED
        and x.dtype == g.dtype == dtype
        and dtype == np.float64  # einsum does not sum in pairs, which single precision would notice
        and len(shape) == g.ndim
        and shape != g.shape
        and x.ndim == g.ndim
    ):
        letters = "abcdefghijklmnopqrstuvwxyz"[: g.ndim]
        of_x = "".join([c for c, n, m in zip(letters, x.shape, g.shape, strict=True) if n == m])
        kept = "".join([c for c, n, m in zip(letters, shape, g.shape, strict=True) if n == m])
        x = x.reshape([n for n, m in zip(x.shape, g.shape, strict=True) if n == m])
        return np.einsum(f"{of_x},{letters}->{kept}", x, g).reshape(shape)
    return fit(product(x, g), shape, dtype)


UNSURE = 4096  # entries; of fewer the processor remembers which way each went, and np.where is as fast
SUMMED = 200_000  # entries; below, the call of einsum costs more than it saves


def may_repeat(index: Any) -> bool:
    """Tell whether an index may read an entry twice; only integer arrays may."""
    for part in index if isinstance(index, tuple) else (index,):
        if part is None or part is Ellipsis or isinstance(part, (int, slice, np.generic)):
            continue
        x = part if hasattr(part, "dtype") else np.asarray(part)
        if x.ndim and x.dtype.kind != "b":
            return True
    return False


def astype(x: Any, dtype: Any, **options: Any) -> Any:
    """Return ``x.astype(dtype)``: the function that stands for the method."""
    return x.astype(dtype, **options)


def discretize(x: Any, dtype: Any, **options: Any) -> Any:
    """Return ``x.astype(dtype)`` for a dtype without derivatives: integers, bool, strings, objects."""
    return x.astype(dtype, **options)
