"""What large arrays are spared: fresh memory, and temporary arrays of their size.

Fresh memory costs a page fault for every few kilobytes, which takes as long as the arithmetic. So the arrays that large
results were put into are remembered, and when nobody else holds one any more, the next result of its shape goes there.
Whether somebody does is told by the number of references: each view, node, variable and frame is one, and so is the variable
of another thread that is looking at it. Small arrays come from NumPy, which keeps memory for them itself.

The rule of an elementwise operation is run block by block, so that what it computes in between stays in the cache.
"""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meintorch._typing import Shape

ndarray = np.ndarray
DTYPES = {np.dtype(np.float64), np.dtype(np.float32)}
LARGE = 8192  # entries
BLOCK = 16384  # entries
KEPT = int(os.environ.get("MEINTORCH_KEEP", "64")) << 20  # bytes that are remembered at most
# Counts are only exact with a global lock.
COUNTS = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
AROUND = (0, -1, 1, -2, 2, -3, 3)  # where to look for a free array: they become free like plates of a stack


class Stock:
    """The arrays of one shape and dtype that are remembered; ``at`` is which was taken last."""

    __slots__ = ("arrays", "at")

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.at = 0


stocks: dict[tuple[Shape, Any], Stock] = {}
remembered = 0  # bytes


def empty(shape: Shape, dtype: Any) -> Any:
    """Return an array that nobody else holds, with any entries in it."""
    stock = stocks.get((shape, dtype))
    if stock is None:
        stock = stocks[shape, dtype] = Stock()
    arrays, at = stock.arrays, stock.at
    if arrays:
        for step in AROUND:
            k = (at + step) % len(arrays)
            x = arrays[k]
            if sys.getrefcount(x) == FREE:
                stock.at = k
                return x
    x = np.empty(shape, dtype)
    if COUNTS:
        remember(stock, x)
    return x


def remember(stock: Stock, x: Any) -> None:
    """Remember an array; when they are too many, forget all."""
    global remembered  # noqa: PLW0603 - threads may at worst miscount
    remembered += x.nbytes
    if remembered > KEPT:
        empty_cache()
    else:
        stock.at = len(stock.arrays)
        stock.arrays.append(x)


def empty_cache() -> None:
    """Give back the memory that is kept for large results to come.

    Arrays of more than 8,192 entries that a transform has made and that nobody holds any more are kept, 64 MB of them at
    most, or as many megabytes as the environment variable ``MEINTORCH_KEEP`` says when meintorch is imported. What your
    program holds is never touched.

    Examples
    --------
    >>> from meintorch import grad
    >>> g = grad(lambda x: np.sum(np.sin(x)))(np.linspace(0.0, 1.0, 100_000))
    >>> empty_cache()
    """
    global remembered  # noqa: PLW0603 - threads may at worst miscount
    stocks.clear()
    remembered = 0


def free_count() -> int:
    """Return the number of references to an array that only the list of a stock holds, as `empty` sees it."""
    arrays = [np.empty(1)]
    x = arrays[0]
    return sys.getrefcount(x) if COUNTS else 0


FREE = free_count()


def is_remembered(x: Any) -> bool:
    """Tell whether an array is one of those that are remembered, which is a reference more."""
    stock = stocks.get((x.shape, x.dtype)) if x.size >= LARGE else None
    return stock is not None and any([x is y for y in stock.arrays])


def zeros(shape: Shape, dtype: Any) -> Any:
    """Return zeros, in memory that was used before if they are many."""
    if math.prod(shape) < LARGE or dtype not in DTYPES:
        return np.zeros(shape, dtype)
    x = empty(shape, dtype)
    x.fill(0)
    return x


# ---------------------------------------------------------------- operations


class Pooled(dict[Any, Any]):
    """The ufunc to call for a function whose result can be put somewhere; None for all others."""

    def __missing__(self, fun: Any) -> Any:
        found = None
        if isinstance(fun, np.ufunc) and fun.signature is None and fun.nout == 1 and fun.nin <= 2:
            single, double = [f"{c * fun.nin}->{c}" for c in "fd"]
            # NumPy takes the first that fits, and SciPy lists some the other way round
            keeps = {single, double} <= set(fun.types) and fun.types.index(single) < fun.types.index(double)
            found = fun if keeps else None
        self[fun] = found
        return found


ufuncs = Pooled(
    {
        operator.add: np.add,
        operator.sub: np.subtract,
        operator.mul: np.multiply,
        operator.truediv: np.divide,
        operator.neg: np.negative,
    }
)


def unary(ufunc: Any, x: Any) -> Any:
    """Return ``ufunc(x)`` of a large array."""
    if x.dtype not in DTYPES or not is_ordered(x):
        return ufunc(x)
    return ufunc(x, out=empty(x.shape, x.dtype))


def binary(ufunc: Any, x1: Any, x2: Any) -> Any:
    """Return ``ufunc(x1, x2)`` of operands of which one may be large."""
    array, other = (x1, x2) if x1.__class__ is ndarray else (x2, x1)
    kind = other.__class__
    if array.__class__ is not ndarray or array.dtype not in DTYPES or not is_ordered(array):
        return ufunc(x1, x2)
    shape = array.shape
    if kind is ndarray:
        if other.dtype is not array.dtype or not is_ordered(other):
            return ufunc(x1, x2)
        if other.shape != shape:
            try:
                shape = np.broadcast(x1, x2).shape
            except ValueError:
                return ufunc(x1, x2)  # which says what is wrong
    elif not (kind is float or kind is int or (kind is np.float64 and array.dtype.char == "d")):
        return ufunc(x1, x2)
    return ufunc(x1, x2, out=empty(shape, array.dtype))


def call(fun: Any, operands: Sequence[Any]) -> Any:
    """Return ``fun(*operands)``."""
    ufunc = ufuncs[fun] if any([x.__class__ is ndarray and x.size >= LARGE for x in operands]) else None
    if ufunc is None:
        return fun(*operands)
    return unary(ufunc, *operands) if len(operands) == 1 else binary(ufunc, *operands)


def matmul(x1: Any, x2: Any) -> Any:
    """Return ``np.matmul(x1, x2)`` of matrices or stacks of them."""
    if x1.__class__ is ndarray and x2.__class__ is ndarray and x1.dtype is x2.dtype and x1.dtype in DTYPES:
        rows, columns = x1.shape, x2.shape
        if 2 <= len(rows) == len(columns) <= 3 and rows[:-2] == columns[:-2] and rows[-1] == columns[-2]:
            shape = (*rows[:-1], columns[-1])
            if math.prod(shape) >= LARGE:
                return np.matmul(x1, x2, empty(shape, x1.dtype))
    return np.matmul(x1, x2)


def copied(x: Any) -> Any:
    """Return a copy of an array, whose entries lie end to end."""
    if x.size < LARGE or x.dtype not in DTYPES:
        return x.copy()
    copy = empty(x.shape, x.dtype)
    copy[...] = x
    return copy


def plus(a: Any, b: Any) -> Any:
    """Return ``a + b``."""
    return a + b if b.__class__ is not ndarray or b.size < LARGE else binary(np.add, a, b)


def minus(a: Any, b: Any) -> Any:
    """Return ``a - b``."""
    return a - b if b.__class__ is not ndarray or b.size < LARGE else binary(np.subtract, a, b)


def is_ordered(x: Any) -> bool:
    """Tell whether an array's entries follow each other in memory in the order of its axes, so that those of a result do."""
    if x.flags.c_contiguous:
        return True
    last = sys.maxsize
    for n, stride in zip(x.shape, x.strides, strict=True):
        if n > 1 and stride != 0:
            if not 0 < stride <= last:
                return False
            last = stride
    return True


def distinct(x: Any) -> Any:
    """Return an array as a plain one, without the axes that only repeat it."""
    x = np.asarray(x)
    return x[tuple([slice(1 if stride == 0 else None) for stride in x.strides])] if 0 in x.strides else x


def product(x: Any, g: Any) -> Any:
    """Return ``x * g``."""
    return x * g if g.__class__ is not ndarray or g.size < LARGE else binary(np.multiply, x, g)


def by_blocks(rule: Callable[..., Any], residuals: Sequence[Any], g: Any, owned: Any, given: bool) -> Any:
    """Run the rule of an elementwise operation: ``rule(g, *residuals)`` if it is ``given`` g, else ``rule(*residuals) * g``.

    The result takes the place of ``g`` if that is ``owned``, an array of the walk's own.
    """
    dtype, shape, whole = g.dtype, g.shape, g.flags.c_contiguous
    if (
        dtype not in DTYPES
        or not (whole or not any(g.strides))
        or not all(
            [fits(r, shape, dtype) if r.__class__ is ndarray else r.__class__ in {float, int} for r in residuals]
        )
    ):
        return rule(g, *residuals) if given else rule(*residuals) * g
    out = g if owned and whole else empty(shape, dtype)
    flat = out.reshape(-1)
    g = g.reshape(-1) if whole else np.broadcast_to(g[(0,) * g.ndim], flat.shape)  # a sum's is one number
    parts = [r.reshape(-1) if r.__class__ is ndarray else r for r in residuals]
    for start in range(0, flat.size, BLOCK):
        block = slice(start, start + BLOCK)
        taken = [r[block] if r.__class__ is ndarray else r for r in parts]
        if given:
            flat[block] = rule(g[block], *taken)
        else:
            np.multiply(rule(*taken), g[block], flat[block])
    return out


def fits(r: Any, shape: Shape, dtype: Any) -> bool:
    """Tell whether an array can be cut into the same blocks as another."""
    same: bool = r.shape == shape and r.dtype is dtype and r.flags.c_contiguous
    return same
