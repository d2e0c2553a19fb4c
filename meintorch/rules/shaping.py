"""Shaping: functions that move entries to other places, join arrays, split them or repeat entries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from meintorch._typing import Shape
from meintorch.core.primitive import composite, general, linear
from meintorch.core.shapes import astype, expand, fit, shape_of, unbroadcast
from meintorch.errors import NoRuleError
from meintorch.rules.indexing import array_of, positions_in, scatter, scatter_flat

# ---------------------------------------------------------------- copies

linear(np.copy, a=lambda g: g)
linear(astype, x=lambda g, x_shape, x_dtype: fit(g, x_shape, x_dtype))

if hasattr(np, "astype"):  # since NumPy 2.1

    @composite(np.astype)
    def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:  # noqa: ARG001
        return x.astype(dtype, copy=copy)


# ---------------------------------------------------------------- shapes and axes


def _reshape_transpose(g: Any, a_shape: Any, order: Any) -> Any:
    if order == "C":
        return g.reshape(a_shape)
    if order == "F":
        return g.reshape(a_shape, order="F")
    raise NoRuleError(f"there is no derivative rule for order={order!r}, which depends on memory. Use 'C' or 'F'.")


def _axes_transpose(g: Any, axes: Any) -> Any:
    if axes is None:
        return g.T
    inverse = [0] * len(g.shape)
    for k, axis in enumerate((axes,) if isinstance(axes, int) else axes):
        inverse[axis] = k
    return g.transpose(inverse)


def _rollaxis_transpose(g: Any, axis: Any, start: Any) -> Any:
    n = len(g.shape)
    axis = normalize_axis_index(axis, n)
    start = start + n if start < 0 else start
    return np.moveaxis(g, start - 1 if axis < start else start, axis)


def _variadic_reshape_transpose(g: Any, arys_shape: Any) -> list[Any]:
    return [h.reshape(shape) for h, shape in zip(g if len(arys_shape) > 1 else [g], arys_shape, strict=True)]


def _reshape_jvp(t: Any, ans_shape: Any, order: Any) -> Any:
    return _reshape_transpose(t, ans_shape, order)


# Linear, but not by the function itself: a tangent may lie in memory in another order than its value.
general(
    np.reshape,
    signature="a, shape=None, order='C', newshape=None, copy=None",
    a=_reshape_transpose,
    jvp={"a": _reshape_jvp},
)
general(np.ravel, a=_reshape_transpose, jvp={"a": _reshape_jvp})
linear(np.transpose, a=_axes_transpose)  # np.permute_dims is the same function
linear(np.matrix_transpose, x=lambda g: g.swapaxes(-1, -2))
linear(np.swapaxes, a=lambda g, axis1, axis2: g.swapaxes(axis1, axis2))
linear(np.moveaxis, a=lambda g, source, destination: np.moveaxis(g, destination, source))
linear(np.rollaxis, a=_rollaxis_transpose)
linear(np.expand_dims, a=lambda g, a_shape: g.reshape(a_shape))
linear(np.squeeze, a=lambda g, a_shape: g.reshape(a_shape))
linear(np.broadcast_to, array=lambda g, array_shape: unbroadcast(g, array_shape))
linear(np.broadcast_arrays, args_=lambda g, args_shape: [unbroadcast(h, s) for h, s in zip(g, args_shape, strict=True)])
for _atleast in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    linear(_atleast, arys_=_variadic_reshape_transpose)

# ---------------------------------------------------------------- joining


def _concatenate_transpose(g: Any, arrays_shape: Any, axis: Any, wanted: Any) -> list[Any]:
    sizes = [math.prod(s) if axis is None else s[axis] for s in arrays_shape]
    ends = list(itertools.accumulate(sizes, initial=0))
    before = () if axis is None else (slice(None),) * normalize_axis_index(axis, len(g.shape))
    parts: list[Any] = [None] * len(sizes)
    for i in wanted:
        part = g[(*before, slice(ends[i], ends[i + 1]))]
        parts[i] = part.reshape(arrays_shape[i]) if axis is None else part
    return parts


linear(
    np.concatenate,  # np.concat is the same function
    signature="arrays, axis=0, out=None, dtype=None, casting='same_kind'",
    arrays_=_concatenate_transpose,
)
linear(np.stack, arrays_=lambda g, axis: list(g if axis == 0 else np.moveaxis(g, axis, 0)))


composite(np.vstack)(lambda tup, **options: np.concatenate([np.atleast_2d(a) for a in tup], 0, **options))
composite(np.dstack)(lambda tup: np.concatenate([np.atleast_3d(a) for a in tup], 2))
composite(np.column_stack)(lambda tup: np.concatenate([np.atleast_2d(a).T if np.ndim(a) < 2 else a for a in tup], 1))


@composite(np.hstack)
def _hstack(tup: Any, **options: Any) -> Any:
    arrays = [np.atleast_1d(a) for a in tup]
    return np.concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1, **options)


@composite(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    arr, values = array_of(arr), array_of(values)
    if axis is None:
        arr, values, axis = np.ravel(arr), np.ravel(values), 0
    return np.concatenate((arr, values), axis=axis)


@composite(np.block)
def _block(arrays: Any) -> Any:
    depth, first = 0, arrays
    while isinstance(first, list) and first:
        depth, first = depth + 1, first[0]
    ndim = max(depth, _deepest(arrays))
    return _joined(arrays, depth, ndim) if depth else np.copy(arrays)


def _deepest(arrays: Any) -> int:
    """Return the greatest number of axes of the arrays in nested lists."""
    return max([_deepest(a) for a in arrays], default=0) if isinstance(arrays, list) else len(shape_of(arrays))


def _joined(arrays: Any, depth: int, ndim: int) -> Any:
    if isinstance(arrays, tuple) or isinstance(arrays, list) != (depth > 0):
        raise ValueError("np.block takes lists that are all nested to the same depth")
    if depth:
        return np.concatenate([_joined(a, depth - 1, ndim) for a in arrays], axis=-depth)
    shape = shape_of(arrays)
    return np.reshape(arrays, (1,) * (ndim - len(shape)) + shape)


# ---------------------------------------------------------------- splitting


def _split_transpose(g: Any, ary_shape: Any, indices_or_sections: Any, axis: Any) -> Any:
    axis = normalize_axis_index(axis, len(ary_shape))
    if sum([h.shape[axis] for h in g]) == ary_shape[axis]:
        return np.concatenate(g, axis=axis)
    # Indices that are not ascending make pieces that overlap.
    bounds = [0, *indices_or_sections, None]
    before = (slice(None),) * axis
    parts = [scatter(h, ary_shape, (*before, slice(bounds[k], bounds[k + 1]))) for k, h in enumerate(g)]
    return sum(parts[1:], start=parts[0])


linear(np.split, ary=_split_transpose)
linear(np.array_split, ary=_split_transpose)
linear(
    np.hsplit,
    ary=lambda g, ary_shape, indices_or_sections: _split_transpose(
        g, ary_shape, indices_or_sections, min(1, len(ary_shape) - 1)
    ),
)
linear(np.vsplit, ary=lambda g, ary_shape, indices_or_sections: _split_transpose(g, ary_shape, indices_or_sections, 0))
linear(np.dsplit, ary=lambda g, ary_shape, indices_or_sections: _split_transpose(g, ary_shape, indices_or_sections, 2))
if hasattr(np, "unstack"):  # since NumPy 2.1
    linear(np.unstack, x=lambda g, axis: np.stack(g, axis=axis))

# ---------------------------------------------------------------- repeating


def _tile_transpose(g: Any, A_shape: Any, reps: Any) -> Any:
    reps = tuple(reps) if np.ndim(reps) else (int(reps),)
    n = max(len(reps), len(A_shape))
    shape, reps = (1,) * (n - len(A_shape)) + A_shape, (1,) * (n - len(reps)) + reps
    pairs = [k for pair in zip(reps, shape, strict=True) for k in pair]
    return np.add.reduce(g.reshape(pairs), axis=tuple(range(0, 2 * n, 2))).reshape(A_shape)


def _repeat_transpose(g: Any, a_shape: Any, repeats: Any, axis: Any) -> Any:
    if axis is None:
        return _repeat_transpose(g, (math.prod(a_shape),), repeats, 0).reshape(a_shape)
    axis = normalize_axis_index(axis, len(a_shape))
    n = a_shape[axis]
    if np.ndim(repeats) == 0:
        return np.add.reduce(g.reshape(*a_shape[: axis + 1], int(repeats), *a_shape[axis + 1 :]), axis=axis + 1)
    return scatter(g, a_shape, (slice(None),) * axis + (np.repeat(np.arange(n), repeats),))


linear(np.tile, A=_tile_transpose)
linear(np.repeat, a=_repeat_transpose)


@composite(np.resize)
def _resize(a: Any, new_shape: Any) -> Any:
    shape = (new_shape,) if np.ndim(new_shape) == 0 else tuple(new_shape)
    if any(n < 0 for n in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    a, size = np.ravel(a), math.prod(shape)
    if a.size == 0 or size == 0:
        return np.zeros_like(a, shape=shape)
    return np.concatenate((a,) * -(-size // a.size))[:size].reshape(shape)


# ---------------------------------------------------------------- rearranging

linear(np.flip, m=lambda g, axis: np.flip(g, axis))
linear(np.fliplr, m=lambda g: np.fliplr(g))
linear(np.flipud, m=lambda g: np.flipud(g))
linear(np.rot90, m=lambda g, k, axes: np.rot90(g, -k, axes))
linear(np.roll, a=lambda g, shift, axis: np.roll(g, np.negative(shift), axis))
linear(np.fft.fftshift, x=lambda g, axes: np.fft.ifftshift(g, axes))
linear(np.fft.ifftshift, x=lambda g, axes: np.fft.fftshift(g, axes))


def _meshgrid_transpose(g: Any, xi_shape: Any, indexing: Any) -> list[Any]:
    n = len(xi_shape)
    own = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else range(n)
    others = [tuple([a for a in range(n) if a != axis]) for axis in own]
    return [np.add.reduce(h, axis=axes).reshape(s) for h, axes, s in zip(g, others, xi_shape, strict=True)]


linear(np.meshgrid, xi_=_meshgrid_transpose)

# ---------------------------------------------------------------- diagonals and triangles


def _onto_diagonal(g: Any, shape: Shape, offset: int, axis1: int, axis2: int) -> Any:
    """Return zeros of ``shape`` with ``g`` on a diagonal, which is a slice of the two axes taken as one."""
    axis1, axis2 = normalize_axis_tuple((axis1, axis2), len(shape))
    batch = tuple([n for k, n in enumerate(shape) if k not in {axis1, axis2}])
    rows, columns = shape[axis1], shape[axis2]
    start = offset if offset >= 0 else -offset * columns
    diagonal = slice(start, start + g.shape[-1] * (columns + 1), columns + 1)
    placed = scatter(g, (*batch, rows * columns), (Ellipsis, diagonal)).reshape(*batch, rows, columns)
    return placed if not batch and axis1 < axis2 else np.moveaxis(placed, (-2, -1), (axis1, axis2))


def _trace_transpose(g: Any, a_shape: Any, a_dtype: Any, offset: Any, axis1: Any, axis2: Any) -> Any:
    n = max(0, min(a_shape[axis1] + min(offset, 0), a_shape[axis2] - max(offset, 0)))
    return fit(_onto_diagonal(expand(g[..., None], (*g.shape, n)), a_shape, offset, axis1, axis2), a_shape, a_dtype)


linear(np.diag, v=lambda g, v_shape, k: g.diagonal(k) if len(v_shape) == 1 else _onto_diagonal(g, v_shape, k, 0, 1))
linear(np.diagflat, v=lambda g, v_shape, k: g.diagonal(k).reshape(v_shape))
linear(np.diagonal, a=lambda g, a_shape, offset, axis1, axis2: _onto_diagonal(g, a_shape, offset, axis1, axis2))
linear(np.trace, a=_trace_transpose)
linear(np.tril, m=lambda g, m_shape, k: unbroadcast(np.tril(g, k), m_shape))
linear(np.triu, m=lambda g, m_shape, k: unbroadcast(np.triu(g, k), m_shape))

# ---------------------------------------------------------------- adding and removing entries
# Where the entries went is found by applying the function to the numbers of the entries.


def _delete_transpose(g: Any, arr_shape: Any, obj: Any, axis: Any) -> Any:
    if axis is None:
        return _delete_transpose(g, (math.prod(arr_shape),), obj, 0).reshape(arr_shape)
    axis = normalize_axis_index(axis, len(arr_shape))
    kept = np.zeros(arr_shape[axis], bool)
    kept[np.delete(np.arange(arr_shape[axis]), obj)] = True
    return scatter(g, arr_shape, (slice(None),) * axis + (kept,))


def _insertion(g: Any, arr_shape: Any, obj: Any, axis: Any) -> tuple[Any, Any, int]:
    """Return the parts of ``g`` that come from the array and from the values, and the axis."""
    axis = 0 if axis is None else normalize_axis_index(axis, len(arr_shape))
    n = arr_shape[axis]
    numbers = np.insert(np.full(n, -1), obj, np.arange(g.shape[axis] - n))
    order = np.argsort(numbers, kind="stable")
    return np.take(g, order[:n], axis), np.take(g, order[n:], axis), axis


def _insert_arr(g: Any, arr_shape: Any, obj: Any, axis: Any) -> Any:
    shape = (math.prod(arr_shape),) if axis is None else arr_shape
    return _insertion(g, shape, obj, axis)[0].reshape(arr_shape)


def _insert_values(g: Any, arr_shape: Any, values_shape: Any, obj: Any, axis: Any) -> Any:
    shape = (math.prod(arr_shape),) if axis is None else arr_shape
    _, part, axis = _insertion(g, shape, obj, axis)
    if np.ndim(obj) == 0 and not isinstance(obj, slice):  # the values' first axis is the one that is inserted
        part = np.moveaxis(part, axis, 0)
    return unbroadcast(part, values_shape)


linear(np.delete, arr=_delete_transpose)
linear(np.insert, arr=_insert_arr, values=_insert_values)


def _pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        given = {axis % ndim: width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(given.get(axis, 0), 2) for axis in range(ndim)]
    return [(int(before), int(after)) for before, after in np.broadcast_to(pad_width, (ndim, 2))]


def _pad_array(g: Any, array_shape: Any, pad_width: Any, mode: Any, reflect_type: Any) -> Any:
    if mode in {"constant", "empty"}:
        widths = _pad_widths(pad_width, len(array_shape))
        return g[tuple([slice(before, before + n) for (before, _), n in zip(widths, array_shape, strict=True)])]
    if mode not in {"edge", "reflect", "symmetric", "wrap"} or reflect_type != "even":
        raise NoRuleError(f"np.pad has no derivative rule for mode={mode!r}, reflect_type={reflect_type!r}.")
    return scatter_flat(g, array_shape, np.pad(positions_in(array_shape), pad_width, mode))


def _pad_constants(g: Any, array_shape: Any, pad_width: Any, constant_values_shape: Any) -> Any:
    """Add up the padding by axis and side; the last axis owns the corners."""
    ndim = len(array_shape)
    sides = np.arange(1, 2 * ndim + 1).reshape(ndim, 2)
    sides = np.pad(np.zeros(array_shape, np.intp), pad_width, constant_values=sides)
    totals = scatter(g.reshape(-1), (2 * ndim + 1,), sides.reshape(-1))
    return unbroadcast(totals[1:].reshape(ndim, 2), constant_values_shape)


general(  # some modes are not linear
    np.pad,
    signature="array, pad_width, mode='constant', *, constant_values=0, reflect_type='even', **options",
    array=_pad_array,
    constant_values=_pad_constants,
)


@composite(np.trim_zeros)
def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    inside, axes = np.nonzero(filt), normalize_axis_tuple(range(filt.ndim) if axis is None else axis, filt.ndim)
    trim = trim.lower()
    index = [slice(None)] * filt.ndim
    for k in axes:
        empty = inside[k].size == 0
        start = (0 if empty else int(inside[k].min())) if empty or "f" in trim else None
        stop = (0 if empty else int(inside[k].max()) + 1) if empty or "b" in trim else None
        index[k] = slice(start, stop)
    return filt[tuple(index)] if axes else filt


# ---------------------------------------------------------------- differences


def _extent(x: Any, axis: int) -> int:
    """Return the length of what np.diff prepends or appends; a number stands for one slice."""
    shape = shape_of(x)
    return 0 if x is None else shape[axis] if shape else 1


def _diff_transpose(g: Any, n: int, axis: int, start: int, length: int) -> Any:
    """Return the cotangent of one of the arrays that are joined and then differenced."""
    axis = normalize_axis_index(axis, len(g.shape))
    for _ in range(n):
        zero = np.zeros((*g.shape[:axis], 1, *g.shape[axis + 1 :]), g.dtype)
        g = -np.diff(np.concatenate([zero, g, zero], axis), axis=axis)
    return g if g.shape[axis] == length else g[(slice(None),) * axis + (slice(start, start + length),)]


linear(
    np.diff,
    a=lambda g, a_shape, n, axis, prepend: _diff_transpose(g, n, axis, _extent(prepend, axis), a_shape[axis]),
    prepend=lambda g, n, axis, prepend: _diff_transpose(g, n, axis, 0, _extent(prepend, axis)),
    append=lambda g, a_shape, n, axis, prepend, append: _diff_transpose(
        g, n, axis, _extent(prepend, axis) + a_shape[axis], _extent(append, axis)
    ),
)


@composite(np.ediff1d)
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    ary = np.ravel(array_of(ary))
    parts = [ary[1:] - ary[:-1]]
    if to_begin is not None:
        parts.insert(0, np.ravel(array_of(to_begin)))
    if to_end is not None:
        parts.append(np.ravel(array_of(to_end)))
    return np.concatenate(parts, dtype=ary.dtype, casting="same_kind") if len(parts) > 1 else parts[0]
