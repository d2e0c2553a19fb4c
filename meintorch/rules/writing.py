"""Functions that write into arrays, and those that make arrays to be written into.

All of them come down to assigning by an index, which every trace knows how to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meintorch.core.memory import layout_of
from meintorch.core.primitive import composite
from meintorch.core.shapes import dtype_of
from meintorch.core.storage import constant
from meintorch.core.trace import Traced, array_of, here, top_trace
from meintorch.errors import InPlaceError

# ---------------------------------------------------------------- buffers


def like(fun: Callable[..., Any], a: Any, *args: Any, **options: Any) -> Any:
    """Return a new array laid out like ``a``; a traced value can be assigned into it."""
    trace = top_trace((a,))
    made = fun(layout_of(a).blank(), *args, **options)
    return made if made.dtype.kind not in "fc" or (trace is not None and trace.level == 0) else constant(made)


@composite(np.zeros_like)
def _zeros_like(a: Any, *args: Any, **options: Any) -> Any:
    return like(np.zeros_like, a, *args, **options)


@composite(np.ones_like)
def _ones_like(a: Any, *args: Any, **options: Any) -> Any:
    return like(np.ones_like, a, *args, **options)


@composite(np.empty_like)
def _empty_like(prototype: Any, *args: Any, **options: Any) -> Any:
    return like(np.empty_like, prototype, *args, **options)


@composite(np.full_like)
def _full_like(a: Any, fill_value: Any, *args: Any, **options: Any) -> Any:
    made = like(np.empty_like, a, *args, **options)
    if isinstance(fill_value, Traced) and not isinstance(made, Traced):  # integers, or the object style
        return np.broadcast_to(fill_value, made.shape).astype(made.dtype)  # type: ignore[call-overload]
    made[...] = fill_value
    return made


# ---------------------------------------------------------------- writing


def buffer(a: Any, name: str) -> Any:
    """Return an array that can take traced values, or say that it cannot."""
    if not isinstance(a, Traced):
        raise InPlaceError(
            f"{here()}: np.{name} was asked to write traced values into a plain array, which cannot hold their derivative. "
            f"Begin with np.zeros_like(t) of a traced array t, or with zeros of meintorch.numpy (np.full_like(a, t) of a plain "
            f"array a comes here too: use a * 0 + t)."
        )
    return a


@composite(np.put)
def _put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    a, v = buffer(a, "put"), np.ravel(array_of(v))
    ind = np.ravel(ind)
    if ind.size and v.size:
        n = a.size
        ind = (
            ind % n if mode == "wrap" else np.clip(ind, 0, n - 1) if mode == "clip" else np.where(ind < 0, ind + n, ind)
        )
        set_entries(a, ind, repeated(v, ind.size))


@composite(np.place)
def _place(arr: Any, mask: Any, vals: Any) -> None:
    arr, vals = buffer(arr, "place"), np.ravel(array_of(vals))
    mask = np.reshape(mask, arr.shape).astype(bool)
    n = int(np.count_nonzero(mask))
    if n and not vals.size:
        raise ValueError("Cannot insert from an empty array!")
    if n:
        arr[mask] = repeated(vals, n)


@composite(np.putmask)
def _putmask(a: Any, mask: Any, values: Any) -> None:
    a, values = buffer(a, "putmask"), np.ravel(array_of(values))
    if values.size and a.size:
        mask = np.reshape(mask, a.shape).astype(bool)
        a[...] = np.where(mask, repeated(values, a.size).reshape(a.shape).astype(a.dtype), a)


@composite(np.copyto)
def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    dst, src = buffer(dst, "copyto"), array_of(src)
    if not np.can_cast(dtype_of(src), dst.dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {dtype_of(src)!r} to {dst.dtype!r} according to the rule '{casting}'"
        )
    dst[...] = src if where is True else np.where(where, src.astype(dst.dtype), dst)


@composite(np.put_along_axis)
def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    arr = buffer(arr, "put_along_axis")
    if axis is None:
        np.put(arr, indices, values)
        return
    axis %= arr.ndim
    places = [np.arange(n).reshape([-1 if k == i else 1 for k in range(arr.ndim)]) for i, n in enumerate(arr.shape)]
    arr[tuple([indices if k == axis else place for k, place in enumerate(places)])] = values


@composite(np.fill_diagonal)
def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    a, val = buffer(a, "fill_diagonal"), np.ravel(array_of(val))
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = a.shape[1] + 1 if a.ndim == 2 else 1 + sum([math.prod(a.shape[:k]) for k in range(1, a.ndim)])
    end = None if wrap or a.ndim > 2 else a.shape[1] * a.shape[1]
    places = np.arange(a.size)[:end:step]
    set_entries(a, places, repeated(val, places.size))


def set_entries(a: Any, places: Any, values: Any) -> None:
    """Set entries, counted in C order."""
    if a.ndim:
        a[np.unravel_index(places, a.shape)] = values
    elif places.size:
        a[...] = values[-1]


def repeated(values: Any, size: int) -> Any:
    """Return the first ``size`` values, beginning again where they end."""
    return values[np.arange(size) % values.size] if values.size != size else values
