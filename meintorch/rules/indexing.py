"""Indexing: reading entries of an array, and choosing among arrays by conditions.

The transpose of reading is scattering: cotangents are added up at the places that were read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.stride_tricks import sliding_window_view

from meintorch._typing import Array, Shape
from meintorch.core.primitive import composite, linear, registry
from meintorch.core.trace import Traced, bind, top_trace

# ---------------------------------------------------------------- scattering


def may_repeat(index: Any) -> bool:
    """Tell whether an index may read an entry twice; only integer arrays may."""
    for part in index if isinstance(index, tuple) else (index,):
        if part is None or part is Ellipsis or isinstance(part, (int, slice, np.generic)):
            continue
        part = np.asarray(part)  # noqa: PLW2901 - a list, as a rule
        if part.ndim and part.dtype.kind != "b":
            return True
    return False


def scatter_into(buffer: Array, g: Any, b: Any) -> None:
    """Add ``g`` to ``buffer[b]`` in place, as often as the index ``b`` names an entry."""
    kind = b.__class__
    if kind is int or kind is slice or not may_repeat(b):
        buffer[b] += g
    elif kind is np.ndarray and buffer.ndim > 1 and buffer.flags.c_contiguous:
        # np.add.at is several times as fast on one axis. Negative rows stay right: they count from the end.
        row = math.prod(buffer.shape[1:])
        entries = b.reshape(-1, 1).astype(np.intp) * row + np.arange(row)
        np.add.at(buffer.reshape(-1), entries.reshape(-1), g.reshape(-1))
    else:
        np.add.at(buffer, b, g)


def scatter(g: Any, shape: Shape, index: Any) -> Any:
    """Return zeros of ``shape`` to which ``g`` is added at ``index``."""
    if top_trace((g, index)) is not None:
        return bind(registry[scatter], (g, shape, index), {})
    buffer = np.zeros(shape, g.dtype)
    if may_repeat(index):
        scatter_into(buffer, g, index)
    else:
        buffer[index] = g
    return buffer


def scatter_flat(g: Any, shape: Shape, positions: Array) -> Any:
    """Return an array of ``shape`` to whose entries, counted in C order, ``g`` is added."""
    return scatter(g.reshape(-1), (math.prod(shape),), positions.reshape(-1)).reshape(shape)


def positions_in(shape: Shape) -> Array:
    """Return the number of each entry, counted in C order."""
    return np.arange(math.prod(shape)).reshape(shape)


linear(scatter, g=lambda g, index: bind(registry[operator.getitem], (g, index), {}))

# ---------------------------------------------------------------- reading entries


_row = linear(
    operator.getitem, signature="a, b, /", into={"a": scatter_into}, a=lambda g, a_shape, b: scatter(g, a_shape, b)
)
_row.name, _row.symbol = "indexing", "[]"


def _take_transpose(g: Any, a_shape: Any, indices: Any, axis: Any, mode: Any) -> Any:
    n = math.prod(a_shape) if axis is None else a_shape[axis]
    indices = array_of(indices)
    if mode == "wrap":
        indices = indices % n
    elif mode == "clip":
        indices = np.clip(indices, 0, n - 1)
    if axis is None:
        return scatter(g, (n,), indices).reshape(a_shape)
    before = (slice(None),) * normalize_axis_index(axis, len(a_shape))
    return scatter(g, a_shape, (*before, indices) if before else indices)


def _take_along_axis_transpose(g: Any, arr_shape: Any, indices: Any, axis: Any) -> Any:
    if axis is None:
        return scatter(g, (math.prod(arr_shape),), indices).reshape(arr_shape)
    axis = normalize_axis_index(axis, len(arr_shape))
    index = list(np.indices(arr_shape, sparse=True))
    index[axis] = indices
    return scatter(g, arr_shape, tuple(index))


def _compress_transpose(g: Any, a_shape: Any, condition: Any, axis: Any) -> Any:
    return _take_transpose(g, a_shape, np.flatnonzero(condition), axis, "raise")


linear(np.take, a=_take_transpose)
linear(np.take_along_axis, signature="arr, indices, axis=-1", arr=_take_along_axis_transpose)
linear(np.compress, a=_compress_transpose)
linear(np.extract, arr=lambda g, arr_shape, condition: _compress_transpose(g, arr_shape, condition, None))


def _windows_transpose(g: Any, x_shape: Any, axis: Any) -> Any:
    return scatter_flat(g, x_shape, sliding_window_view(positions_in(x_shape), g.shape[len(x_shape) :], axis))


linear(sliding_window_view, x=_windows_transpose)

# ---------------------------------------------------------------- choosing among arrays
# Written with np.where and a literal 0: what was not chosen contributes nothing, whatever g is.


def _choose_transpose(g: Any, a: Any, choices_shape: Any, mode: Any) -> list[Any]:
    n = len(choices_shape)
    a = array_of(a)
    if mode == "wrap":
        a = a % n
    elif mode == "clip":
        a = np.clip(a, 0, n - 1)
    return [np.where(a == k, g, 0) for k in range(n)]


def _first_true(condlist: Any) -> list[Any]:
    """Return for each condition where it is the first one that holds; last, where none does."""
    firsts, rest = [], np.bool_(1)
    for condition in condlist:
        firsts.append(np.logical_and(rest, condition))
        rest = np.logical_and(rest, np.logical_not(condition))
    return [*firsts, rest]


linear(np.choose, choices_=_choose_transpose)
linear(
    np.select,
    choicelist_=lambda g, condlist: [np.where(first, g, 0) for first in _first_true(condlist)],
    default=lambda g, condlist: np.where(_first_true(condlist)[-1], g, 0),
)


def cast(x: Any, dtype: Any) -> Any:
    """Return ``x``, which may be a number, in a dtype."""
    x = x if isinstance(x, Traced) else np.asarray(x)
    return x if x.dtype == dtype else x.astype(dtype)


@composite(np.piecewise)
def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    if np.isscalar(condlist) or (not isinstance(condlist[0], (list, np.ndarray)) and np.ndim(x)):
        condlist = [condlist]
    conditions = [*np.asarray(condlist, bool)]
    if len(conditions) == len(funclist) - 1:
        conditions.append(~np.any(conditions, axis=0))
    if len(conditions) != len(funclist):
        raise ValueError(f"with {len(conditions)} condition(s), as many functions or one more are expected")
    # All pieces end to end, after a zero; and for each entry of the result where in there it is found.
    pieces, size = [np.zeros(1, x.dtype)], 1
    where = np.zeros_like(x, np.intp)  # laid out in memory as x, like the result
    for condition, fun in zip(conditions, funclist, strict=True):
        chosen = where[condition]
        values = fun
        if callable(fun):
            values = fun(x[condition], *args, **kw) if chosen.size else 0
        pieces.append(np.broadcast_to(cast(values, x.dtype), chosen.shape).reshape(-1))
        where[condition] = np.arange(size, size + chosen.size).reshape(chosen.shape)
        size += chosen.size
    return np.concatenate(pieces)[where[None]][0, ...]


# ---------------------------------------------------------------- functions along an axis


def array_of(x: Any) -> Any:
    """Return a list that may hold traced values as one array."""
    if x.__class__ in {list, tuple} and top_trace(x) is not None:
        return np.stack([array_of(e) for e in x])
    return x if isinstance(x, Traced) else np.asanyarray(x)


@composite(np.apply_along_axis)
def _apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    arr = array_of(arr)
    axis = normalize_axis_index(axis, arr.ndim)
    lines = np.moveaxis(arr, axis, -1)
    outer = lines.shape[:-1]
    results = [array_of(func1d(lines[(*i, Ellipsis)], *args, **kwargs)) for i in np.ndindex(*outer)]
    if not results:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    first = results[0]
    whole = np.stack([cast(r, first.dtype) for r in results]).reshape(outer + first.shape)
    inner = tuple(range(len(outer), whole.ndim))
    return np.transpose(whole, (*range(axis), *inner, *range(axis, len(outer))))
