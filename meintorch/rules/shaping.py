"""Shaping: functions that move entries to other places, join arrays, split them or repeat entries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from meintorch._typing import Shape
from meintorch.core.batching import (
    BatchCall,
    axes_batch,
    axis_batch,
    elementwise_batch,
    entries_batch,
    flat,
    flat_axis_batch,
    in_front,
    lift,
    matrix_batch,
    shifted,
)
from meintorch.core.primitive import composite, general, linear
from meintorch.core.shapes import astype, expand, fit, shape_of, unbroadcast
from meintorch.core.trace import array_of, top_trace
from meintorch.errors import NoRuleError
from meintorch.rules.indexing import positions_in, scatter, scatter_flat

# ---------------------------------------------------------------- copies

linear(np.copy, dead="all", a=lambda g: g, batch=entries_batch)
linear(astype, dead="all", x=lambda g, x_shape, x_dtype: fit(g, x_shape, x_dtype), batch=entries_batch)

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


def _reshape_batch(call: BatchCall) -> Any:
    if not call.only("a") or call.get("order") != "C":
        return None
    name = "shape" if call.get("shape") is not None else "newshape"
    a, shape = call.get("a"), call.get(name)
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if -1 in shape and not a.size:  # what -1 stands for is found from one example
        shape = np.empty(a.shape[1:], bool).reshape(shape).shape
    call.set(name, (call.size, *shape))
    return call.run()


def _ravel_batch(call: BatchCall) -> Any:
    return flat(call.get("a")) if call.get("order") == "C" else None


def _transpose_batch(call: BatchCall) -> Any:
    a, axes = call.get("a"), call.get("axes")
    n = a.ndim - 1
    axes = range(n, 0, -1) if axes is None else shifted((axes,) if np.ndim(axes) == 0 else tuple(axes), n)
    return np.transpose(a, (0, *axes))


def _rollaxis_batch(call: BatchCall) -> Any:
    a, start = call.get("a"), call.get("start")
    n = a.ndim - 1
    start = start + n if start < 0 else start
    return np.rollaxis(a, shifted(call.get("axis"), n), start + 1) if 0 <= start <= n else None


def _expand_dims_batch(call: BatchCall) -> Any:
    a, axis = call.get("a"), call.get("axis")
    return np.expand_dims(a, shifted(axis, a.ndim - 1 + (len(axis) if np.ndim(axis) else 1)))


def _squeeze_batch(call: BatchCall) -> Any:
    a, axis = call.get("a"), call.get("axis")
    short = tuple([k for k in range(1, a.ndim) if a.shape[k] == 1])
    return np.squeeze(a, short if axis is None else shifted(axis, a.ndim - 1))


def _broadcast_to_batch(call: BatchCall) -> Any:
    x, shape = call.get("array"), call.get("shape")
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    return np.broadcast_to(lift(x, True, len(shape)), (call.size, *shape)) if len(shape) >= x.ndim - 1 else None


def _atleast_batch(call: BatchCall) -> Any:
    """Give each array the shape that NumPy gives to one of that of an example."""
    results = []
    for x, batched in call.many("arys"):
        y = in_front(x, batched, call.size)
        results.append(y.reshape(call.size, *call.prim.fun(np.broadcast_to(False, y.shape[1:])).shape))
    return tuple(results) if len(results) > 1 else results[0]


# Linear, but not by the function itself: a tangent may lie in memory in another order than its value.
general(
    np.reshape,
    dead="all",
    signature="a, shape=None, order='C', newshape=None, copy=None",
    a=_reshape_transpose,
    jvp={"a": _reshape_jvp},
    batch=_reshape_batch,
)
general(np.ravel, dead="all", a=_reshape_transpose, jvp={"a": _reshape_jvp}, batch=_ravel_batch)
linear(np.transpose, dead="all", a=_axes_transpose, batch=_transpose_batch)  # np.permute_dims is the same function
linear(np.matrix_transpose, dead="all", x=lambda g: g.swapaxes(-1, -2), batch=matrix_batch)
linear(np.swapaxes, dead="all", a=lambda g, axis1, axis2: g.swapaxes(axis1, axis2), batch=axes_batch("axis1", "axis2"))
linear(
    np.moveaxis,
    dead="all",
    a=lambda g, source, destination: np.moveaxis(g, destination, source),
    batch=axes_batch("source", "destination"),
)
linear(np.rollaxis, dead="all", a=_rollaxis_transpose, batch=_rollaxis_batch)
linear(np.expand_dims, dead="all", a=lambda g, a_shape: g.reshape(a_shape), batch=_expand_dims_batch)
linear(np.squeeze, dead="all", a=lambda g, a_shape: g.reshape(a_shape), batch=_squeeze_batch)
linear(np.broadcast_to, dead="all", array=lambda g, array_shape: unbroadcast(g, array_shape), batch=_broadcast_to_batch)
linear(
    np.broadcast_arrays,
    dead="all",
    args_=lambda g, args_shape: [unbroadcast(h, s) for h, s in zip(g, args_shape, strict=True)],
    batch=elementwise_batch,
)
for _atleast in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    linear(_atleast, arys_=_variadic_reshape_transpose, batch=_atleast_batch)

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


def _concatenate_batch(call: BatchCall) -> Any:
    arrays = [in_front(x, batched, call.size) for x, batched in call.many("arrays")]
    axis = call.get("axis")
    if axis is None:
        arrays, axis = [flat(x) for x in arrays], 0
    axis = shifted(axis, arrays[0].ndim - 1)
    return np.concatenate(arrays, axis, dtype=call.get("dtype"), casting=call.get("casting"))


def _stack_batch(call: BatchCall) -> Any:
    arrays = [in_front(x, batched, call.size) for x, batched in call.many("arrays")]
    axis = shifted(call.get("axis"), arrays[0].ndim)
    return np.stack(arrays, axis, dtype=call.get("dtype"), casting=call.get("casting"))


linear(
    np.concatenate,
    dead="all",  # np.concat is the same function
    signature="arrays, axis=0, out=None, dtype=None, casting='same_kind'",
    arrays_=_concatenate_transpose,
    batch=_concatenate_batch,
)
linear(
    np.stack, dead="all", arrays_=lambda g, axis: list(g if axis == 0 else np.moveaxis(g, axis, 0)), batch=_stack_batch
)


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


def _hvdsplit_batch(call: BatchCall) -> Any:
    x, least = call.get("ary"), {np.hsplit: 1, np.vsplit: 2, np.dsplit: 3}[call.prim.fun]
    if not call.only("ary") or x.ndim <= least:
        return None
    axis = {np.hsplit: min(2, x.ndim - 1), np.vsplit: 1, np.dsplit: 3}[call.prim.fun]
    return np.split(x, call.get("indices_or_sections"), axis)


linear(np.split, dead="all", ary=_split_transpose, batch=axes_batch("axis"))
linear(np.array_split, dead="all", ary=_split_transpose, batch=axes_batch("axis"))
linear(
    np.hsplit,
    dead="all",
    batch=_hvdsplit_batch,
    ary=lambda g, ary_shape, indices_or_sections: _split_transpose(
        g, ary_shape, indices_or_sections, min(1, len(ary_shape) - 1)
    ),
)
linear(
    np.vsplit,
    dead="all",
    ary=lambda g, ary_shape, indices_or_sections: _split_transpose(g, ary_shape, indices_or_sections, 0),
    batch=_hvdsplit_batch,
)
linear(
    np.dsplit,
    dead="all",
    ary=lambda g, ary_shape, indices_or_sections: _split_transpose(g, ary_shape, indices_or_sections, 2),
    batch=_hvdsplit_batch,
)
if hasattr(np, "unstack"):  # since NumPy 2.1
    linear(np.unstack, x=lambda g, axis: np.stack(g, axis=axis), batch=axes_batch("axis"))

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


def _tile_batch(call: BatchCall) -> Any:
    if not call.only("A"):
        return None
    reps = call.get("reps")
    reps = tuple(reps) if np.ndim(reps) else (reps,)
    x = lift(call.get("A"), True, len(reps))
    return np.tile(x, (1,) * (x.ndim - len(reps)) + reps)


linear(np.tile, dead="all", A=_tile_transpose, batch=_tile_batch)
linear(np.repeat, dead="all", a=_repeat_transpose, batch=flat_axis_batch)


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


def _fliplr_batch(call: BatchCall) -> Any:
    return np.flip(call.get("m"), 2) if call.get("m").ndim > 2 else None


def _flipud_batch(call: BatchCall) -> Any:
    return np.flip(call.get("m"), 1) if call.get("m").ndim > 1 else None


def _roll_batch(call: BatchCall) -> Any:
    if not call.only("a"):
        return None
    a, shift, axis = [call.get(name) for name in ("a", "shift", "axis")]
    if axis is None:
        return np.roll(flat(a), shift, 1).reshape(a.shape)
    return np.roll(a, shift, shifted(axis, a.ndim - 1))


linear(np.flip, dead="all", m=lambda g, axis: np.flip(g, axis), batch=axis_batch)
linear(np.fliplr, dead="all", m=lambda g: np.fliplr(g), batch=_fliplr_batch)
linear(np.flipud, dead="all", m=lambda g: np.flipud(g), batch=_flipud_batch)
linear(np.rot90, dead="all", m=lambda g, k, axes: np.rot90(g, -k, axes), batch=axes_batch("axes"))
linear(np.roll, dead="all", a=lambda g, shift, axis: np.roll(g, np.negative(shift), axis), batch=_roll_batch)
linear(np.fft.fftshift, dead="all", x=lambda g, axes: np.fft.ifftshift(g, axes), batch=axes_batch("axes"))
linear(np.fft.ifftshift, dead="all", x=lambda g, axes: np.fft.fftshift(g, axes), batch=axes_batch("axes"))


def _meshgrid_transpose(g: Any, xi_shape: Any, indexing: Any) -> list[Any]:
    n = len(xi_shape)
    own = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else range(n)
    others = [tuple([a for a in range(n) if a != axis]) for axis in own]
    return [np.add.reduce(h, axis=axes).reshape(s) for h, axes, s in zip(g, others, xi_shape, strict=True)]


def _meshgrid_batch(call: BatchCall) -> Any:
    arrays = [flat(in_front(x, batched, call.size)) for x, batched in call.many("xi")]
    n = len(arrays)
    own = [1, 0, *range(2, n)] if call.get("indexing") == "xy" and n > 1 else range(n)
    spread = [
        x.reshape(-1, *[x.shape[1] if k == axis else 1 for k in range(n)]) for x, axis in zip(arrays, own, strict=True)
    ]
    return tuple(spread) if call.get("sparse") else np.broadcast_arrays(*spread)


linear(np.meshgrid, dead="all", xi_=_meshgrid_transpose, batch=_meshgrid_batch)

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


def _diag_batch(call: BatchCall) -> Any:
    v, k = call.get("v"), call.get("k")
    if v.ndim == 3 and call.prim.fun is np.diag:
        return np.diagonal(v, k, 1, 2)
    if v.ndim != 2 and call.prim.fun is np.diag:
        return None
    v = flat(v)
    n = v.shape[1] + abs(k)
    return _onto_diagonal(v, (call.size, n, n), k, 1, 2)


def _triangle_batch(call: BatchCall) -> Any:
    m = call.get("m")
    if m.ndim == 2:  # a vector stands for a square matrix with equal rows
        call.set("m", np.broadcast_to(m[:, None], (call.size, m.shape[1], m.shape[1])))
    return call.run() if m.ndim > 1 and call.only("m") else None


linear(
    np.diag,
    dead="all",
    v=lambda g, v_shape, k: g.diagonal(k) if len(v_shape) == 1 else _onto_diagonal(g, v_shape, k, 0, 1),
    batch=_diag_batch,
)
linear(np.diagflat, dead="all", v=lambda g, v_shape, k: g.diagonal(k).reshape(v_shape), batch=_diag_batch)
linear(
    np.diagonal,
    dead="all",
    a=lambda g, a_shape, offset, axis1, axis2: _onto_diagonal(g, a_shape, offset, axis1, axis2),
    batch=axes_batch("axis1", "axis2"),
)
linear(np.trace, dead="all", a=_trace_transpose, batch=axes_batch("axis1", "axis2"))
linear(np.tril, dead="all", m=lambda g, m_shape, k: unbroadcast(np.tril(g, k), m_shape), batch=_triangle_batch)
linear(np.triu, dead="all", m=lambda g, m_shape, k: unbroadcast(np.triu(g, k), m_shape), batch=_triangle_batch)

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


def _insert_batch(call: BatchCall) -> Any:
    if not call.only("arr", "values"):
        return None
    parts = [call.operand("arr"), call.operand("values")]
    arr, values = [in_front(x, batched, call.size) for x, batched in parts]
    first, second = positions_in(arr.shape[1:]), positions_in(values.shape[1:])
    numbers = np.insert(first, call.get("obj"), second + first.size, call.get("axis"))
    entries = np.concatenate([flat(arr), flat(values).astype(arr.dtype, copy=False)], 1)
    return np.take(entries, numbers, 1)


linear(np.delete, dead="all", arr=_delete_transpose, batch=flat_axis_batch)
linear(np.insert, arr=_insert_arr, values=_insert_values, batch=_insert_batch)


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


def _pad_batch(call: BatchCall) -> Any:
    """Pad all axes but the batch; constants that are traced go where the padding's numbers say."""
    array, batched = call.operand("array")
    widths, mode = _pad_widths(call.get("pad_width"), array.ndim - batched), call.get("mode")
    if not call.only("array", "constant_values") or callable(mode) or array.ndim == batched:
        return None
    constants = call.get("constant_values")
    if top_trace((constants,)) is None and not call.is_batched("constant_values"):
        options = {k: v for k, v in call.kwargs.items() if k not in {"array", "pad_width", "mode"}}
        for name in {
            "constant_values",
            "end_values",
            "stat_length",
        } & options.keys():  # by axis and side, as the widths
            if options[name] is not None:
                options[name] = [(0, 0), *np.broadcast_to(options[name], (array.ndim - 1, 2))]
        return np.pad(array, [(0, 0), *widths], mode, **options)
    array = in_front(array, batched, call.size)
    constants = lift(constants, call.is_batched("constant_values"), 2)
    constants = np.broadcast_to(constants, (call.size, array.ndim - 1, 2))
    first = positions_in(array.shape[1:])
    numbers = np.pad(first, widths, constant_values=first.size + positions_in(constants.shape[1:]))
    return np.take(np.concatenate([flat(array), flat(constants).astype(array.dtype, copy=False)], 1), numbers, 1)


general(  # some modes are not linear
    np.pad,
    batch=_pad_batch,
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


def _diff_batch(call: BatchCall) -> Any:
    a = in_front(*call.operand("a"), call.size)
    axis, ends = shifted(call.get("axis"), a.ndim - 1), {}
    for name in ("prepend", "append"):
        x = call.get(name)
        if x is not None:
            x, batched = call.operand(name)
            if x.ndim == batched:
                shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
                ends[name] = np.broadcast_to(lift(x, batched, a.ndim - 1), shape)
            else:
                ends[name] = in_front(x, batched, call.size)
    return np.diff(a, call.get("n"), axis, **ends)


linear(
    np.diff,
    batch=_diff_batch,
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
