"""Reductions: functions that combine the entries along one or several axes, and cumulative ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.batching import axis_batch, flat_axis_batch
from meintorch.core.large import zeros
from meintorch.core.primitive import composite, constant, general, linear
from meintorch.core.shapes import axes_of, count, expand_reduced
from meintorch.rules.indexing import scatter

REDUCE = "a, axis=0, dtype=None, out=None, keepdims=False, initial=None, where=True"
ACCUMULATE = "a, axis=0, dtype=None, out=None"


def _kept(g: Any, where: Any) -> Any:
    """Leave a share only to the entries that ``where`` let in."""
    return g if where is None or where is True else np.where(where, g, 0)


def _cast(g: Any, dtype: Any) -> Any:
    """Undo a reduction's dtype= option."""
    if g.dtype == dtype:
        return g
    return g.astype(dtype) if dtype.kind == "c" or g.dtype.kind != "c" else np.real(g).astype(dtype)


def _how_many(a_shape: Any, axis: Any, where: Any, dtype: Any) -> Any:
    """Count the entries that each output combines, keeping the axes."""
    axes = axes_of(axis, len(a_shape))
    if where is None or where is True:
        return count(a_shape, axes)
    return np.sum(np.broadcast_to(where, a_shape), axis=axes, keepdims=True, dtype=dtype)


# ---------------------------------------------------------------- sums, products, moments


def _sum_transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    return _kept(expand_reduced(_cast(g, a_dtype), a_shape, axis, keepdims), where)


def _mean_transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    g = _cast(g, a_dtype)
    if where is None or where is True:
        return expand_reduced(g / count(a_shape, axes_of(axis, len(a_shape))), a_shape, axis, keepdims)
    return _kept(expand_reduced(g, a_shape, axis, keepdims) / _how_many(a_shape, axis, where, a_dtype), where)


def _products_of_others(a: Any) -> Any:
    """For each entry along the last axis the product of all others, also where some are zero.

    Pairs are multiplied, the products of the other pairs found in the same way, and each entry's partner joined in: a
    number of operations that is linear in the length, without a division.
    """
    n = a.shape[-1]
    if n < 2:
        return np.ones_like(a)
    even = a if n % 2 == 0 else np.concatenate([a, np.ones_like(a[..., :1])], axis=-1)
    first, second = even[..., ::2], even[..., 1::2]
    rest = _products_of_others(first * second)
    return np.stack([rest * second, rest * first], axis=-1).reshape(even.shape)[..., :n]


def _prod_weights(a: Any, axis: Any, initial: Any, where: Any) -> Any:
    """The derivative of the product by each entry."""
    x = a if where is None or where is True else np.where(where, a, 1)
    axes = axes_of(axis, x.ndim)
    kept = tuple([k for k in range(x.ndim) if k not in axes])
    moved = np.transpose(x, kept + axes)
    flat = moved.reshape(*moved.shape[: len(kept)], count(x.shape, axes))
    others = _products_of_others(flat).reshape(moved.shape)
    others = np.transpose(others, sorted(range(x.ndim), key=(kept + axes).__getitem__))
    return _kept(others if initial is None else others * initial, where)


def _prod_vjp(g: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    return expand_reduced(_cast(g, a.dtype), a.shape, axis, keepdims) * _prod_weights(a, axis, initial, where)


def _prod_jvp(t: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    return _sum(t * _prod_weights(a, axis, initial, where), axis, keepdims)


def _sum(x: Any, axis: Any, keepdims: Any) -> Any:
    return np.sum(x, axis=axis, keepdims=bool(keepdims))


def _deviations(a: Any, axis: Any, where: Any, ddof: Any, correction: Any) -> tuple[Any, Any]:
    """The entries less their mean, and the number that the sum of squares is divided by."""
    count = _how_many(a.shape, axis, where, a.dtype)
    n = count - (ddof if correction is None else correction)
    d = a - np.sum(_kept(a, where), axis=axes_of(axis, a.ndim), keepdims=True) / count
    return (np.conjugate(d) if d.dtype.kind == "c" else d), n


def _var_vjp(g: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None) -> Any:
    """2 (a - mean) / n; 0 for equal entries, also where var**0.5 sends an infinite cotangent."""
    d, n = _deviations(a, axis, where, ddof, correction)
    g = np.where((ans == 0) & np.isinf(g), 0, g)
    return _kept(expand_reduced(_real_cast(g, a.dtype), a.shape, axis, keepdims) * (2 / n * d), where)


def _std_vjp(g: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None) -> Any:
    """(a - mean) / (n std); 0 for equal entries."""
    d, n = _deviations(a, axis, where, ddof, correction)
    g = _real_cast(g / np.where(ans == 0, 1, ans), a.dtype)
    return _kept(expand_reduced(g, a.shape, axis, keepdims) * (d / n), where)


def _var_jvp(t: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None) -> Any:
    d, n = _deviations(a, axis, where, ddof, correction)
    return _sum(_kept(2 / n * d * t, where), axis, keepdims)


def _std_jvp(t: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None) -> Any:
    d, n = _deviations(a, axis, where, ddof, correction)
    return _sum(_kept(d / n * t, where), axis, keepdims) / np.where(ans == 0, 1, ans)


def _real_cast(g: Any, dtype: Any) -> Any:
    """Undo dtype=; the cotangent of a real result stays real for a complex input."""
    return g if dtype.kind == "c" or g.dtype == dtype else g.astype(dtype)


linear(np.sum, batch=axis_batch, dead="all", a=_sum_transpose, initial=lambda g: g)
linear(np.add.reduce, batch=axis_batch, dead="all", signature=REDUCE, a=_sum_transpose, initial=lambda g: g)
general(np.prod, batch=axis_batch, a=_prod_vjp, jvp={"a": _prod_jvp})
general(np.multiply.reduce, batch=axis_batch, signature=REDUCE, a=_prod_vjp, jvp={"a": _prod_jvp})
linear(np.mean, batch=axis_batch, a=_mean_transpose)
general(np.var, batch=axis_batch, refused=("mean",), a=_var_vjp, jvp={"a": _var_jvp})
general(np.std, batch=axis_batch, refused=("mean",), a=_std_vjp, jvp={"a": _std_jvp})

# ---------------------------------------------------------------- extrema


def _extremum_hits(ans: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> tuple[Any, Any]:
    """Where the extremum is attained, and how often; 1 if it is attained once everywhere."""
    hit = a == expand_reduced(ans, a.shape, axis, keepdims)
    masked = where is not None and where is not True
    if masked:
        hit = hit & where
    axes = axes_of(axis, a.ndim)
    if hit.__class__ is np.ndarray and np.count_nonzero(hit) * count(a.shape, axes) == hit.size:
        attained = hit.any(axis=axes).all() if masked or initial is not None else not np.isnan(ans).any()
        if attained:  # no ties, the usual case, which needs no division
            return hit, 1
    ties = np.sum(hit, axis=axes, keepdims=True, dtype=a.dtype)
    return hit, np.where(ties == 0, 1, ties)


def _extremum_vjp(g: Any, ans: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    """The entries that are the extremum share the cotangent evenly."""
    hit, ties = _extremum_hits(ans, a, axis, keepdims, initial, where)
    full = expand_reduced(g, a.shape, axis, keepdims)
    if ties.__class__ is int and full.__class__ is np.ndarray:  # few entries have a share: no pass over all the others
        h = zeros(hit.shape, full.dtype)
        places = np.flatnonzero(hit)
        h.reshape(-1)[places] = full[np.unravel_index(places, hit.shape)]
        return h
    return np.where(hit, full / ties, 0)


def _extremum_into(buffer: Any, g: Any, ans: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> None:
    """Add to the entries that are the extremum their share."""
    hit, ties = _extremum_hits(ans, a, axis, keepdims, initial, where)
    full = expand_reduced(g, a.shape, axis, keepdims)
    if ties.__class__ is int and full.__class__ is np.ndarray:
        entries = np.unravel_index(np.flatnonzero(hit), hit.shape)
        buffer[entries] += full[entries]
    else:
        buffer += np.where(hit, full / ties, 0)


def _extremum_jvp(t: Any, ans: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    hit, ties = _extremum_hits(ans, a, axis, keepdims, initial, where)
    if ties.__class__ is int and t.__class__ is np.ndarray:
        entries = np.unravel_index(np.flatnonzero(hit), hit.shape)
        axes = axes_of(axis, hit.ndim)
        h = np.empty([1 if k in axes else n for k, n in enumerate(hit.shape)], t.dtype)
        h[tuple([0 * i if k in axes else i for k, i in enumerate(entries)])] = t[entries]
        return h.reshape(np.shape(ans))
    return _sum(np.where(hit, t / ties, 0), axis, keepdims)


_extremum: Any
for _extremum in (np.max, np.amax, np.min, np.amin):
    general(_extremum, batch=axis_batch, a=_extremum_vjp, into={"a": _extremum_into}, jvp={"a": _extremum_jvp})
for _extremum in (np.maximum.reduce, np.minimum.reduce, np.fmax.reduce, np.fmin.reduce):
    general(
        _extremum,
        batch=axis_batch,
        signature=REDUCE,
        a=_extremum_vjp,
        into={"a": _extremum_into},
        jvp={"a": _extremum_jvp},
    )
constant(np.logical_and.reduce, np.logical_or.reduce, np.logical_xor.reduce)


@composite(np.ptp)
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return np.subtract(
        np.max(a, axis=axis, keepdims=keepdims), np.min(a, axis=axis, keepdims=keepdims), **given(out=out)
    )


def given(**options: Any) -> dict[str, Any]:
    """Drop the options that were not given."""
    return {name: value for name, value in options.items() if value is not None}


# ---------------------------------------------------------------- logarithms of sums


def _softmax_vjp(power: Any) -> Any:
    """Make the rule of a logarithm of a sum of powers; infinite entries, of which the sum is one, share evenly."""

    def vjp(g: Any, ans: Any, a: Any, axis: Any, keepdims: Any, where: Any) -> Any:
        total = expand_reduced(ans, a.shape, axis, keepdims)
        hit = np.isinf(total) & (a == total)
        hit = hit if where is None or where is True else hit & where
        ties = np.sum(hit, axis=axes_of(axis, a.ndim), keepdims=True, dtype=a.dtype)
        share = np.where(np.isinf(total), 0, power(a - np.where(np.isinf(total), 0, total)))
        share = np.where(hit, 1 / np.where(ties == 0, 1, ties), share)
        return _kept(expand_reduced(_cast(g, a.dtype), a.shape, axis, keepdims) * share, where)

    return vjp


general(np.logaddexp.reduce, batch=axis_batch, signature=REDUCE, a=_softmax_vjp(np.exp))
general(np.logaddexp2.reduce, batch=axis_batch, signature=REDUCE, a=_softmax_vjp(np.exp2))

# ---------------------------------------------------------------- without the entries that are NaN
# The rules of the plain functions, with those entries left out by ``where`` and replaced, so that 0 * NaN does not occur.


def _there(a: Any, where: Any) -> Any:
    return ~np.isnan(a) if where is None or where is True else ~np.isnan(a) & where


def _filled(a: Any) -> Any:
    return np.where(np.isnan(a), 0, a)


def _nanvar_vjp(
    g: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None
) -> Any:
    return _var_vjp(g, ans, _filled(a), axis, ddof, keepdims, _there(a, where), correction)


def _nanvar_jvp(t: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None) -> Any:
    return _var_jvp(t, _filled(a), axis, ddof, keepdims, _there(a, where), correction)


def _nanstd_vjp(
    g: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None
) -> Any:
    return _std_vjp(g, ans, _filled(a), axis, ddof, keepdims, _there(a, where), correction)


def _nanstd_jvp(
    t: Any, ans: Any, a: Any, axis: Any, ddof: Any, keepdims: Any, where: Any, correction: Any = None
) -> Any:
    return _std_jvp(t, ans, _filled(a), axis, ddof, keepdims, _there(a, where), correction)


for _extremum in (np.nanmax, np.nanmin):
    general(_extremum, batch=axis_batch, a=_extremum_vjp, into={"a": _extremum_into}, jvp={"a": _extremum_jvp})
general(
    np.nansum,
    batch=axis_batch,
    a=lambda g, a, axis, keepdims, where: _sum_transpose(g, a.shape, a.dtype, axis, keepdims, _there(a, where)),
    jvp={"a": lambda t, a, axis, keepdims, where: _sum(_kept(t, _there(a, where)), axis, keepdims)},
)
general(
    np.nanprod,
    batch=axis_batch,
    a=lambda g, a, axis, keepdims, initial, where: _prod_vjp(g, a, axis, keepdims, initial, _there(a, where)),
    jvp={"a": lambda t, a, axis, keepdims, initial, where: _prod_jvp(t, a, axis, keepdims, initial, _there(a, where))},
)
general(
    np.nanmean,
    batch=axis_batch,
    a=lambda g, a, axis, keepdims, where: _mean_transpose(g, a.shape, a.dtype, axis, keepdims, _there(a, where)),
)
general(np.nanvar, batch=axis_batch, refused=("mean",), a=_nanvar_vjp, jvp={"a": _nanvar_jvp})
general(np.nanstd, batch=axis_batch, refused=("mean",), a=_nanstd_vjp, jvp={"a": _nanstd_jvp})

# ---------------------------------------------------------------- cumulative


def _cumsum_transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any) -> Any:
    g = _cast(g, a_dtype)
    if axis is None:
        return np.flip(np.cumsum(np.flip(g))).reshape(a_shape)
    return np.flip(np.cumsum(np.flip(g, axis), axis), axis)


linear(np.cumsum, batch=flat_axis_batch, a=_cumsum_transpose)
linear(np.add.accumulate, batch=flat_axis_batch, signature=ACCUMULATE, a=_cumsum_transpose)


def last(x: Any, axis: Any) -> Any:
    """Return an array with an axis moved to the end; the flattened array for None."""
    return x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1)


def back(x: Any, shape: Any, axis: Any) -> Any:
    """Undo `last`."""
    return x.reshape(shape) if axis is None else np.moveaxis(x, -1, axis)


def recurrence(g: Any, m: Any, times: Any) -> Any:
    """Solve s[k] = g[k] + m[k] s[k + 1] along the last axis.

    Two steps are one step of the same kind, so that every second entry is found from half as many: a number of
    operations that is linear in the length, without a division.
    """
    n = g.shape[-1]
    if n < 2:
        return g
    if n % 2:
        g, m = [np.concatenate([x, np.zeros_like(x[..., :1])], axis=-1) for x in (g, m)]
    second = g[..., 1::2]
    even = recurrence(g[..., ::2] + times(m[..., ::2], second), m[..., ::2] * m[..., 1::2], times)
    following = np.concatenate([even[..., 1:], np.zeros_like(even[..., :1])], axis=-1)
    odd = second + times(m[..., 1::2], following)
    return np.stack([even, odd], axis=-1).reshape(g.shape)[..., :n]


def _selected(m: Any, s: Any) -> Any:
    return np.where(m, s, 0)


def _runs(ans: Any, a: Any) -> tuple[Any, Any, Any]:
    """Where a running extremum is attained, where it stays as it was, and how many entries share it so far."""
    hit = a == ans
    same = np.concatenate([np.zeros_like(hit[..., :1]), ans[..., 1:] == ans[..., :-1]], axis=-1)
    ties = np.flip(recurrence(np.flip(hit.astype(a.dtype), -1), np.flip(same, -1), _selected), -1)
    return hit, same, np.where(ties == 0, 1, ties)


def _running_vjp(g: Any, ans: Any, a: Any, axis: Any) -> Any:
    """The entries that have attained the running extremum so far share the cotangent evenly."""
    hit, same, ties = _runs(last(ans, axis), last(a, axis))
    onward = np.concatenate([same[..., 1:], np.zeros_like(same[..., :1])], axis=-1)
    return back(np.where(hit, recurrence(last(g, axis) / ties, onward, _selected), 0), a.shape, axis)


def _running_jvp(t: Any, ans: Any, a: Any, axis: Any) -> Any:
    hit, same, ties = _runs(last(ans, axis), last(a, axis))
    total = recurrence(np.flip(np.where(hit, last(t, axis), 0), -1), np.flip(same, -1), _selected)
    return back(np.flip(total, -1) / ties, ans.shape, axis)


def _reduceat_transpose(g: Any, a_shape: Any, a_dtype: Any, indices: Any, axis: Any) -> Any:
    """Each sum goes to the entries from its index to the next one; to one entry if that is not greater."""
    axis = axis % len(a_shape)
    starts = np.asarray(indices)
    lengths = np.maximum(np.append(starts[1:], a_shape[axis]) - starts, 1)
    places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(np.sum(lengths))
    return scatter(np.repeat(_cast(g, a_dtype), lengths, axis), a_shape, (slice(None),) * axis + (places,))


for _running in (np.maximum.accumulate, np.minimum.accumulate):
    general(_running, batch=flat_axis_batch, signature=ACCUMULATE, a=_running_vjp, jvp={"a": _running_jvp})
linear(
    np.add.reduceat, batch=flat_axis_batch, signature="a, indices, axis=0, dtype=None, out=None", a=_reduceat_transpose
)
