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
from meintorch.core.batching import (
    BatchCall,
    BatchTrace,
    axes_batch,
    flat,
    flat_axis_batch,
    in_front,
    is_apart,
    is_slicing,
    lift,
    shifted,
)
from meintorch.core.large import zeros
from meintorch.core.primitive import composite, linear, registry
from meintorch.core.shapes import may_repeat
from meintorch.core.trace import Traced, array_of, bind, here, top_trace
from meintorch.errors import BatchError

# ---------------------------------------------------------------- reading from a batch


def read(a: Any, index: Any) -> Any:
    """Return ``a[index]``, also where only the index is traced, which a plain array would not see."""
    return a[index] if top_trace((index,)) is None else bind(registry[operator.getitem], (a, index), {})


def index_parts(call: BatchCall, index: Any, place: int) -> list[tuple[Any, bool]]:
    """Return the parts of an index, each with whether it is batched."""
    if place not in call.batched and index.__class__ is tuple:
        return [call.array(part, (place, i)) for i, part in enumerate(index)]
    return [call.array(index, place)]


def index_ndim(part: Any) -> int:
    """Return how many axes a part of an index that is not slicing makes; a mask counts as its numbers."""
    if part.__class__ is int or isinstance(part, np.integer):
        return 0
    part = part if hasattr(part, "dtype") else np.asarray(part)
    return 1 if part.dtype.kind == "b" else int(part.ndim)


def read_batch(a: Any, batched: bool, parts: list[tuple[Any, bool]], size: int) -> Any:
    """Read the same entries of each example, or of each example its own."""
    if any([b for _, b in parts]):
        return read_own(a, batched, parts, size)
    index = [part for part, _ in parts]
    ans = read(a, (slice(None), *index))
    if not is_apart(index):
        return ans
    return np.moveaxis(ans, max([index_ndim(part) for part in index if not is_slicing(part)]), 0)


def read_own(a: Any, batched: bool, parts: list[tuple[Any, bool]], size: int) -> Any:
    """Read by an index that differs from example to example: all arrays in it get a batch axis, the batch's number too."""
    items: list[tuple[Any, bool]] = []
    for part, b in parts:
        if is_slicing(part):
            items.append((part, False))
            continue
        x = part if hasattr(part, "dtype") else np.asarray(part, None if np.size(part) else np.intp)
        if x.dtype.kind != "b":
            items.append((x, b))
        elif b:
            raise masked("an index that is a mask")
        elif x.ndim == 0:
            return None
        else:
            items += [(numbers, False) for numbers in np.nonzero(x)]
    index = [x for x, _ in items]
    there = [k for k, x in enumerate(index) if not is_slicing(x)]
    ndim = max([index[k].ndim - items[k][1] for k in there])
    for k in there:
        index[k] = lift(*items[k], ndim)
    apart, first = is_apart(index), there[0]
    # Axes of the result in front of those that the arrays make.
    before = 0 if apart else first
    if any([x is Ellipsis for x in index[:before]]):
        taken = len([x for x in index if x is not None and x is not Ellipsis])
        before += a.ndim - batched - taken - 1
    if not batched:
        ans = read(a, tuple(index))
        return np.moveaxis(ans, before, 0) if before else ans
    ans = read(a, (np.arange(size).reshape(size, *(1,) * ndim), *index))
    if not before or not ndim:
        return ans
    return np.moveaxis(ans, range(1, ndim + 1), range(before + 1, before + ndim + 1))


def masked(what: str) -> BatchError:
    """Make the error for choosing entries by a condition that differs from example to example."""
    return BatchError(
        f"{here()}: inside vmap {what} picks another number of entries for each example, so the result has no shape. Use "
        f"np.where(condition, x, 0) and go on with all entries, or loop over the examples instead of vmap."
    )


# ---------------------------------------------------------------- scattering


def scatter_into(buffer: Any, g: Any, b: Any) -> None:
    """Add ``g`` to ``buffer[b]`` in place, as often as the index ``b`` names an entry."""
    kind = b.__class__
    if isinstance(buffer, Traced) or isinstance(g, Traced):
        np.add.at(buffer, b, g)
    elif kind is int or kind is slice or not may_repeat(b):
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
        if isinstance(g, Traced):  # as NumPy would ask for one of its own functions
            return g.__array_function__(scatter, (), (g, shape, index), {})  # type: ignore[attr-defined]
        return bind(registry[scatter], (g, shape, index), {})
    buffer = zeros(shape, g.dtype)
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


def _scatter_batch(call: BatchCall) -> Any:
    """Scatter into one long array, in which the examples lie end to end."""
    (g, g_batched), shape = call.array(call.args[0], 0), call.args[1]
    parts, size = index_parts(call, call.args[2], 2), call.size
    g = in_front(g, g_batched, size)
    index = tuple([part for part, _ in parts])
    own = any([batched for _, batched in parts])
    if not own and top_trace(index) is None and not may_repeat(index):
        if is_apart(index):
            g = np.moveaxis(g, 0, max([index_ndim(part) for part in index if not is_slicing(part)]))
        return scatter(g, (size, *shape), (slice(None), *index))
    places = positions_in(shape)
    numbers = read_own(places, False, parts, size) if own else read(places, index)[None]
    if numbers is None:
        return None
    entries = np.arange(size).reshape(size, 1) * places.size + flat(numbers)
    return scatter(g.reshape(-1), (size * places.size,), entries.reshape(-1)).reshape(size, *shape)


linear(scatter, dead="all", g=lambda g, index: bind(registry[operator.getitem], (g, index), {}), batch=_scatter_batch)

# ---------------------------------------------------------------- reading entries


def _getitem_batch(call: BatchCall) -> Any:
    return read_batch(call.args[0], 0 in call.batched, index_parts(call, call.args[1], 1), call.size)


_row = linear(
    operator.getitem,
    dead="all",
    signature="a, b, /",
    into={"a": scatter_into},
    a=lambda g, a_shape, b: scatter(g, a_shape, b),
    batch=_getitem_batch,
)
_row.name, _row.symbol = "indexing", "[]"


def _take_transpose(g: Any, a_shape: Any, indices: Any, axis: Any, mode: Any) -> Any:
    n = math.prod(a_shape) if axis is None else a_shape[axis]
    indices = array_of(indices)
    if indices.size == 0:
        indices = indices.astype(np.intp)  # an empty list is float64
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


def _take_batch(call: BatchCall) -> Any:
    a, batched = call.operand("a")
    indices, own = call.operand("indices")
    axis, mode = call.get("axis"), call.get("mode")
    if not own:
        return flat_axis_batch(call)
    if indices.dtype.kind == "b":
        return None
    if axis is None:
        a, axis = (flat(a) if batched else a.reshape(-1)), 0
    axis = normalize_axis_index(axis, a.ndim - batched)
    if not batched and axis == 0:
        return np.take(a, indices, 0, mode=mode)
    n = a.shape[axis + batched]
    indices = indices % n if mode == "wrap" else np.clip(indices, 0, n - 1) if mode == "clip" else indices
    return read_own(a, batched, [(slice(None), False)] * axis + [(indices, True)], call.size)


def _take_along_axis_batch(call: BatchCall) -> Any:
    arr, indices, axis = call.operand("arr"), call.operand("indices"), call.get("axis")
    # What is not batched gets a batch axis of length one, along which it is broadcast.
    x, i = [x if batched else x[None] for x, batched in (arr, indices)]
    if axis is None:
        return np.take_along_axis(flat(x), i, 1) if i.ndim == 2 else None
    return np.take_along_axis(x, i, shifted(axis, x.ndim - 1)) if x.ndim == i.ndim else None


def _compress_batch(call: BatchCall) -> Any:
    if call.is_batched("condition"):
        raise masked(call.prim.name)
    a, _ = call.operand("a")
    axis = call.get("axis")
    if axis is None:
        return np.compress(call.get("condition"), flat(a), axis=1)
    return np.compress(call.get("condition"), a, axis=shifted(axis, a.ndim - 1))


def _extract_batch(call: BatchCall) -> Any:
    if call.is_batched("condition"):
        raise masked(call.prim.name)
    return np.compress(np.ravel(call.get("condition")), flat(call.get("arr")), axis=1)


linear(np.take, dead="all", a=_take_transpose, batch=_take_batch)
linear(
    np.take_along_axis,
    dead="all",
    signature="arr, indices, axis=-1",
    arr=_take_along_axis_transpose,
    batch=_take_along_axis_batch,
)
linear(np.compress, dead="all", a=_compress_transpose, batch=_compress_batch)
linear(
    np.extract,
    dead="all",
    arr=lambda g, arr_shape, condition: _compress_transpose(g, arr_shape, condition, None),
    batch=_extract_batch,
)


def _windows_transpose(g: Any, x_shape: Any, axis: Any) -> Any:
    return scatter_flat(g, x_shape, sliding_window_view(positions_in(x_shape), g.shape[len(x_shape) :], axis))


linear(sliding_window_view, dead="all", x=_windows_transpose, batch=axes_batch("axis"))

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


def _choose_batch(call: BatchCall) -> Any:
    a, *choices = aligned([call.operand("a"), *call.many("choices")])
    return np.choose(a, choices, mode=call.get("mode"))


def _select_batch(call: BatchCall) -> Any:
    conditions, choices = call.many("condlist"), call.many("choicelist")
    *arrays, default = aligned([*conditions, *choices, call.array(call.get("default"), call.place("default"))])
    return np.select(arrays[: len(conditions)], arrays[len(conditions) :], default)


def aligned(operands: Sequence[tuple[Any, bool]]) -> list[Any]:
    """Return operands of which some are batched, so that they broadcast with the batch in front."""
    ndim = max([np.ndim(x) - batched for x, batched in operands])
    return [lift(x, batched, ndim) for x, batched in operands]


linear(np.choose, dead="all", choices_=_choose_transpose, batch=_choose_batch)
linear(
    np.select,
    dead="all",
    batch=_select_batch,
    choicelist_=lambda g, condlist: [np.where(first, g, 0) for first in _first_true(condlist)],
    default=lambda g, condlist: np.where(_first_true(condlist)[-1], g, 0),
)


def cast(x: Any, dtype: Any) -> Any:
    """Return ``x``, which may be a number, in a dtype."""
    x = x if isinstance(x, Traced) else np.asarray(x)
    return x if x.dtype == dtype else x.astype(dtype)


@composite(np.piecewise)
def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    if isinstance(top_trace((condlist,)), BatchTrace):
        raise masked("np.piecewise")
    x = array_of(x)
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
