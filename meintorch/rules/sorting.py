"""Sorting, selection by rank, statistics and histograms.

Which entry goes where is a constant: a rule finds the permutation and moves the cotangents the same way.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from meintorch._typing import Rule
from meintorch.core.batching import BatchCall, BatchTrace, axis_batch, flat, flat_axis_batch, in_front
from meintorch.core.primitive import composite, constant, general, linear, registry
from meintorch.core.shapes import axes_of, count
from meintorch.core.trace import array_of, bind, here, top_trace
from meintorch.errors import NoRuleError
from meintorch.rules.indexing import cast, positions_in, read, scatter, scatter_flat
from meintorch.rules.reductions import given


def decided(condition: Any, *, batched: bool = False) -> bool:
    """Tell whether a condition on values holds; ``batched`` where it may differ from example to example."""
    return batched if isinstance(top_trace((condition,)), BatchTrace) else bool(condition)


# ---------------------------------------------------------------- sorting
# Equal entries cannot be told apart in the result, so that a stable order serves for every kind of sort.


def _order(a: Any, axis: Any) -> Any:
    return np.argsort(a, axis=axis, kind="stable")


def _sort_vjp(g: Any, a: Any, axis: Any) -> Any:
    if axis is None:
        return _sort_vjp(g, a.reshape(-1), 0).reshape(a.shape)
    return np.take_along_axis(g, np.argsort(_order(a, axis), axis=axis), axis)


def _sort_jvp(t: Any, a: Any, axis: Any) -> Any:
    if axis is None:
        return _sort_jvp(t.reshape(-1), a.reshape(-1), 0)
    return np.take_along_axis(t, _order(a, axis), axis)


def _partition_vjp(g: Any, ans: Any, a: Any, axis: Any) -> Any:
    """The r-th smallest entry of the array became the r-th smallest of the result."""
    if axis is None:
        return _partition_vjp(g, ans, a.reshape(-1), 0).reshape(a.shape)
    return _sort_vjp(_sort_jvp(g, ans, axis), a, axis)


def _partition_jvp(t: Any, ans: Any, a: Any, axis: Any) -> Any:
    if axis is None:
        return _partition_jvp(t.reshape(-1), ans, a.reshape(-1), 0)
    return _sort_vjp(_sort_jvp(t, a, axis), ans, axis)


general(np.sort, refused=("order",), a=_sort_vjp, jvp={"a": _sort_jvp}, batch=flat_axis_batch)
general(np.partition, refused=("order",), a=_partition_vjp, jvp={"a": _partition_jvp}, batch=flat_axis_batch)


@composite(np.sort_complex)
def _sort_complex(a: Any) -> Any:
    b = np.sort(a)
    return b if b.dtype.kind == "c" else b.astype("G" if b.dtype.char == "g" else "D")


def _unique_places(ar: Any, axis: Any, equal_nan: Any) -> Any:
    return np.unique(ar, return_index=True, axis=axis, equal_nan=equal_nan)[1]


def _unique_vjp(
    g: Any, ar: Any, return_index: Any, return_inverse: Any, return_counts: Any, axis: Any, equal_nan: Any
) -> Any:
    """The value comes from where it first occurs."""
    g = g[0] if return_index or return_inverse or return_counts else g
    places = _unique_places(ar, axis, equal_nan)
    if axis is None:
        return scatter(g, (ar.size,), places).reshape(ar.shape)
    return scatter(g, ar.shape, (slice(None),) * (axis % ar.ndim) + (places,))


general(np.unique, ar=_unique_vjp)


def _unique_kinds(x: Any, kind: str) -> Any:
    """Everything that np.unique_all and its like return, as constants."""
    return getattr(np, kind)(x)


constant(_unique_kinds)


def _unique_of(kind: str) -> Any:
    def unique(x: Any) -> Any:
        found = bind(registry[_unique_kinds], (x, kind), {})
        values = np.unique(x, equal_nan=False)
        return values if kind == "unique_values" else found._replace(values=values)

    return unique


for _kind in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
    composite(getattr(np, _kind))(_unique_of(_kind))

# ---------------------------------------------------------------- order statistics


def _sorted_places(a: Any, axis: Any) -> tuple[Any, Any]:
    """The lines along the axes, and the numbers of their entries in ascending order; the other axes in front."""
    axes = axes_of(axis, a.ndim)
    kept = tuple([k for k in range(a.ndim) if k not in axes])
    lines = np.transpose(a, kept + axes).reshape(*[a.shape[k] for k in kept], count(a.shape, axes))
    places = np.transpose(positions_in(a.shape), kept + axes).reshape(lines.shape)
    return lines, np.take_along_axis(places, np.argsort(lines, axis=-1), -1)


def _neighbours(fun: Any, a: Any, q: Any, axis: Any, options: Any) -> tuple[Any, Any, Any]:
    """For each line and quantile the numbers of the entries below and above it, and the upper one's weight.

    Every method interpolates between order statistics. Which of them and how is found by asking NumPy for the quantile
    of the ranks themselves.
    """
    lines, places = _sorted_places(a, axis)
    ranks = np.arange(lines.shape[-1], dtype=np.float64)
    if fun is np.nanquantile or fun is np.nanpercentile:
        if np.ndim(q) > 1:  # NumPy puts the axes of q apart
            raise NoRuleError(f"np.{fun.__name__} has no derivative rule for q of more than one axis")
        there = np.sum(~np.isnan(lines), axis=-1, keepdims=True)
        ranks = np.where((ranks < there) | (there == 0), ranks, np.nan)
        rank = np.moveaxis(fun(ranks, np.ravel(q), axis=-1, **options), 0, -1)
    else:
        rank = fun(ranks, np.ravel(q), **options).reshape(*(1,) * (lines.ndim - 1), -1)
    low = np.floor(rank)
    below, above = [np.take_along_axis(places, k.astype(np.intp), -1) for k in (low, np.ceil(rank))]
    return below, above, cast(rank - low, a.dtype)


def _quantile_rules(fun: Any) -> tuple[Rule, Rule]:
    """Make the reverse and the forward rule of a function of ``a`` and ``q``."""
    missing = fun is np.nanquantile or fun is np.nanpercentile

    def vjp(g: Any, a: Any, q: Any, axis: Any, method: Any) -> Any:
        below, above, weight = _neighbours(fun, a, q, axis, {"method": method})
        g = np.moveaxis(g.reshape(np.size(q), *below.shape[:-1]), 0, -1)
        low = scatter_flat((1 - weight) * g, a.shape, below)
        h = cast(low + scatter_flat(np.where(weight == 0, 0, weight * g), a.shape, above), a.dtype)
        return np.where(np.isnan(a), 0, h) if missing else h

    def jvp(t: Any, ans: Any, a: Any, q: Any, axis: Any, method: Any) -> Any:
        below, above, weight = _neighbours(fun, a, q, axis, {"method": method})
        t = (np.where(np.isnan(a), 0, t) if missing else t).reshape(-1)
        h = (1 - weight) * read(t, below) + np.where(weight == 0, 0, weight * read(t, above))
        return np.moveaxis(h, -1, 0).reshape(ans.shape)

    return vjp, jvp


def _median_rules(fun: Any) -> tuple[Rule, Rule]:
    vjp, jvp = _quantile_rules(fun)
    return (
        lambda g, a, axis: vjp(g, a, 0.5, axis, "linear"),
        lambda t, ans, a, axis: jvp(t, ans, a, 0.5, axis, "linear"),
    )


def _quantile_batch(call: BatchCall) -> Any:
    if call.prim.fun in {np.nanquantile, np.nanpercentile} and np.ndim(call.get("q")) > 1:
        return None
    ans = axis_batch(call)
    return None if ans is None else np.moveaxis(ans, np.ndim(call.get("q")), 0)


for _median, _quantile in ((np.median, np.quantile), (np.nanmedian, np.nanquantile)):
    _vjp, _jvp = _median_rules(_quantile)
    general(_median, refused=("overwrite_input",), a=_vjp, jvp={"a": _jvp}, batch=axis_batch)
for _quantile in (np.percentile, np.nanpercentile, np.quantile, np.nanquantile):
    _vjp, _jvp = _quantile_rules(_quantile)
    _refused = ("overwrite_input", "weights", "interpolation")
    general(_quantile, refused=_refused, a=_vjp, jvp={"a": _jvp}, batch=_quantile_batch)

# ---------------------------------------------------------------- averages and correlation
# NumPy's own steps, one by one.


@composite(np.average)
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = None) -> Any:
    a = array_of(a)
    options = given(keepdims=keepdims)
    if axis is not None:
        axis = normalize_axis_tuple(axis, a.ndim, argname="axis")
    if weights is None:
        average = np.mean(a, axis, **options)
        total = average.dtype.type(a.size / average.size)
    else:
        weights = _weights_like(a, array_of(weights), axis)
        dtype = np.result_type(a.dtype, weights.dtype, *(["f8"] if a.dtype.kind in "iub" else []))
        total = np.sum(weights, axis=axis, dtype=dtype, **options)
        if decided(np.any(total == 0)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        average = np.sum(np.multiply(a, weights, dtype=dtype), axis, **options) / total
    if not returned:
        return average
    return average, total if total.shape == average.shape else np.copy(np.broadcast_to(total, average.shape))


def _weights_like(a: Any, weights: Any, axis: Any) -> Any:
    """Give weights of the averaged axes the shape in which they broadcast against the array."""
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if weights.shape != tuple([a.shape[k] for k in axis]):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    shape = [n if k in axis else 1 for k, n in enumerate(a.shape)]
    return np.transpose(weights, np.argsort(axis)).reshape(shape)


def _observations(m: Any, rowvar: Any, dtype: Any, single: bool) -> Any:
    """One row a variable; a single one need not be turned."""
    X = np.atleast_2d(cast(m, dtype))
    return X if rowvar or single else X.T


def _frequencies(weights: Any, n: int, name: str) -> Any:
    w = cast(array_of(weights), np.dtype(float))
    if w.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if w.shape[0] != n:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if decided(np.any(w < 0)):
        raise ValueError(f"{name} cannot be negative")
    return w


@composite(np.cov)
def _cov(
    m: Any,
    y: Any = None,
    rowvar: Any = True,
    bias: Any = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    parts = [array_of(x) for x in (m, y) if x is not None]
    for part, name in zip(parts, "my", strict=False):
        if part.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    dtype = np.dtype(dtype) if dtype is not None else np.result_type(*parts, np.float64)
    X = _observations(parts[0], rowvar, dtype, parts[0].ndim == 1)
    if X.shape[0] == 0:
        return np.array([]).reshape(0, 0)
    if y is not None:
        X = np.concatenate((X, _observations(parts[1], rowvar, dtype, np.atleast_2d(parts[1]).shape[0] == 1)), axis=0)
    ddof = (1 if bias == 0 else 0) if ddof is None else ddof
    w = None
    if fweights is not None:
        w = _frequencies(fweights, X.shape[1], "fweights")
        if decided(np.any(w != np.around(w))):
            raise TypeError("fweights must be integer")
    if aweights is not None:
        aweights = _frequencies(aweights, X.shape[1], "aweights")
        w = aweights if w is None else w * aweights
    average, total = _average(X, axis=1, weights=w, returned=True)
    if w is None:
        factor = X.shape[1] - ddof
    elif ddof == 0:
        factor = total[0]
    else:
        factor = total[0] - (ddof if aweights is None else ddof * sum(w * aweights) / total[0])
    if decided(factor <= 0):
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
        factor = 0.0
    X = cast(X - average[:, None], X.dtype)
    X_T = X.T if w is None else (X * w).T
    c = np.dot(X, np.conjugate(X_T) if X.dtype.kind == "c" else X_T)  # X and X.T: BLAS knows that it is symmetric
    return np.squeeze(cast(c * np.true_divide(1, factor), c.dtype))


@composite(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    c = _cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviations = np.sqrt(np.real(np.diag(c)))
    c = c / deviations[:, None] / deviations[None, :]
    if c.dtype.kind != "c":
        return np.clip(c, -1, 1)
    return np.clip(np.real(c), -1, 1) + 1j * np.clip(np.imag(c), -1, 1)


# ---------------------------------------------------------------- histograms, by weights


def _bincount_batch(call: BatchCall) -> Any:
    if not call.only("weights"):
        return None
    x, weights = array_of(call.get("x")), call.get("weights")
    n = np.bincount(x, minlength=call.get("minlength")).size
    return scatter(cast(weights, np.dtype(np.float64)), (call.size, n), (slice(None), x))


linear(
    np.bincount,
    signature="x, /, weights=None, minlength=0",
    weights=lambda g, x, weights_dtype: cast(read(g, array_of(x)), weights_dtype),
    batch=_bincount_batch,
)


def _bins(a: Any, edges: Any) -> tuple[Any, Any]:
    """The bin of each entry, and whether there is one; bins are half-open, but for the last."""
    n, a = edges.shape[0] - 1, np.ravel(array_of(a))
    place = np.where(a == edges[-1], n - 1, np.searchsorted(edges, a, "right") - 1)
    return np.clip(place, 0, n - 1), (place >= 0) & (place < n)


def _histogram_weights(g: Any, ans: Any, a: Any, bins: Any, range: Any, density: Any, weights: Any) -> Any:
    edges = np.histogram_bin_edges(a, bins, range)
    place, within = _bins(a, edges)
    share = g[0]
    if density:
        total = np.sum(np.where(within, np.ravel(weights), 0))
        share = (share / np.diff(edges) - np.sum(share * ans[0])) / total
    return cast(np.where(within, read(share, place), 0), weights.dtype).reshape(weights.shape)


def _histogram_batch(call: BatchCall) -> Any:
    if not call.only("weights"):
        return None
    edges = np.histogram_bin_edges(*[call.get(name) for name in ("a", "bins", "range")])
    place, within = _bins(call.get("a"), edges)
    counts = scatter(np.where(within, flat(call.get("weights")), 0), (call.size, edges.size - 1), (slice(None), place))
    if call.get("density"):
        counts = counts / np.diff(edges) / np.sum(counts, axis=1, keepdims=True)
    return counts, in_front(edges, False, call.size)


general(np.histogram, weights=_histogram_weights, batch=_histogram_batch)


@composite(np.histogramdd)
def _histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, list[Any]]:
    if top_trace((sample, bins, range)) is not None:
        raise NoRuleError(
            f"{here()}: np.histogramdd has a derivative rule for its weights only. Pass stop_gradient(...) of the rest."
        )
    edges = list(np.histogramdd(sample, bins, range)[1])
    columns = sample.T if np.ndim(sample) == 2 and hasattr(sample, "shape") else np.atleast_2d(sample)
    places = [
        np.searchsorted(e, x, "right") - (x == e[-1]) for e, x in zip(edges, columns, strict=True)
    ]  # counting from one: the outliers of each end have bins of their own
    shape = [e.size + 1 for e in edges]
    numbers = np.ravel_multi_index(places, shape)
    counts: Any = np.bincount(numbers, weights, minlength=int(np.prod(shape))).reshape(shape)
    counts = counts[(slice(1, -1),) * len(shape)]
    if density:
        total = np.sum(counts)
        for k, e in enumerate(edges):
            counts = counts / np.diff(e).reshape([-1 if k == j else 1 for j, _ in enumerate(edges)])
        counts = counts / total
    return counts, edges


@composite(np.histogram2d)
def _histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any, Any]:
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    if hasattr(bins, "__len__") and len(bins) not in {1, 2}:
        bins = [np.asarray(bins)] * 2
    counts, edges = _histogramdd([x, y], bins, range, density, weights)
    return counts, *edges
