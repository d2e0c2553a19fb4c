"""Cumulative products, differences and integrals, interpolation, polynomials, and sequences between two ends."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from meintorch.core.batching import BatchCall, flat_axis_batch, in_front
from meintorch.core.primitive import composite, elementwise, general, linear, registry
from meintorch.core.shapes import dtype_of, fit
from meintorch.core.trace import array_of, bind, here, top_trace
from meintorch.errors import InPlaceError, NoRuleError
from meintorch.rules.indexing import cast, read, scatter
from meintorch.rules.reductions import ACCUMULATE, back, given, last, recurrence
from meintorch.rules.sorting import decided

# ---------------------------------------------------------------- cumulative products and sums


def _before(ans: Any) -> Any:
    """The product of the entries before each one."""
    return np.concatenate([np.ones_like(ans[..., :1]), ans[..., :-1]], axis=-1)


def _cumprod_vjp(g: Any, ans: Any, a: Any, axis: Any) -> Any:
    """Products of all entries but one, also where some are zero: there is no division."""
    x = last(a, axis)
    following = np.concatenate([x[..., 1:], np.zeros_like(x[..., :1])], axis=-1)
    h = _before(last(ans, axis)) * recurrence(last(g, axis), following, np.multiply)
    return fit(back(h, a.shape, axis), a.shape, a.dtype)


def _cumprod_jvp(t: Any, ans: Any, a: Any, axis: Any) -> Any:
    h = np.flip(_before(last(ans, axis)) * last(t, axis), -1)
    return back(np.flip(recurrence(h, np.flip(last(a, axis), -1), np.multiply), -1), ans.shape, axis)


general(np.cumprod, a=_cumprod_vjp, jvp={"a": _cumprod_jvp}, batch=flat_axis_batch)
general(np.multiply.accumulate, signature=ACCUMULATE, a=_cumprod_vjp, jvp={"a": _cumprod_jvp}, batch=flat_axis_batch)


@composite(np.nancumsum)
def _nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    a = array_of(a)
    return np.cumsum(np.where(np.isnan(a), 0, a), axis, **given(dtype=dtype, out=out))


@composite(np.nancumprod)
def _nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    a = array_of(a)
    return np.cumprod(np.where(np.isnan(a), 1, a), axis, **given(dtype=dtype, out=out))


def _cumulative(accumulate: Any, first: int) -> Any:
    def definition(
        x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
    ) -> Any:
        x = np.atleast_1d(x)
        if axis is None and x.ndim > 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0 if axis is None else axis
        ans = accumulate(x, axis=axis, **given(dtype=dtype, out=out))
        if not include_initial:
            return ans
        shape = list(ans.shape)
        shape[axis] = 1
        return np.concatenate([np.full(shape, first, ans.dtype), ans], axis=axis)

    return definition


if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    composite(np.cumulative_sum)(_cumulative(np.add.accumulate, 0))
    composite(np.cumulative_prod)(_cumulative(np.multiply.accumulate, 1))

# ---------------------------------------------------------------- differences and integrals


def _standing_for(x: Any, value: Any) -> Any:
    """Return ``value``, whose derivative is that of ``x``: the same number, computed in another way."""
    if top_trace((x, value)) is not None:
        return bind(registry[_standing_for], (x, value), {})
    return value


def _standing_batch(call: BatchCall) -> Any:
    x, value = [in_front(*call.operand(name), call.size) for name in ("x", "value")]
    return _standing_for(x, value)


_row = general(
    _standing_for,
    x=lambda g: g,
    value=lambda g: np.zeros_like(g),
    batch=_standing_batch,
)
_row.name = _row.symbol = "np.gradient"


def _slopes(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    """The derivative along one axis, with NumPy's formulas for even and for uneven steps ``h``."""

    def at(*bounds: Any) -> Any:
        return f[(slice(None),) * axis + (slice(*bounds),)]

    even = np.ndim(h) == 0
    if even:
        inner = (at(2, None) - at(None, -2)) / (2.0 * h)
    else:
        shape = [-1 if k == axis else 1 for k in range(f.ndim)]
        h1, h2 = h[:-1], h[1:]
        a, b, c = -h2 / (h1 * (h1 + h2)), (h2 - h1) / (h1 * h2), h1 / (h2 * (h1 + h2))
        a, b, c = [x.reshape(shape) for x in (a, b, c)]
        inner = a * at(None, -2) + b * at(1, -1) + c * at(2, None)
    if edge_order == 1:
        left = (at(1, 2) - at(0, 1)) / (h if even else h[0])
        right = (at(-1, None) - at(-2, -1)) / (h if even else h[-1])
    else:
        if even:
            a, b, c, d, e, i = -1.5 / h, 2.0 / h, -0.5 / h, 0.5 / h, -2.0 / h, 1.5 / h
        else:
            h1, h2 = h[0], h[1]
            a, b, c = -(2.0 * h1 + h2) / (h1 * (h1 + h2)), (h1 + h2) / (h1 * h2), -h1 / (h2 * (h1 + h2))
            h1, h2 = h[-2], h[-1]
            d, e, i = h2 / (h1 * (h1 + h2)), -(h2 + h1) / (h1 * h2), (2.0 * h2 + h1) / (h2 * (h1 + h2))
        left = a * at(0, 1) + b * at(1, 2) + c * at(2, 3)
        right = d * at(-3, -2) + e * at(-2, -1) + i * at(-1, None)
    return np.concatenate([cast(x, f.dtype) for x in (left, inner, right)], axis=axis)


@composite(np.gradient)
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = array_of(f)
    f = f if f.dtype.kind in "fc" else f.astype(np.float64)
    axes = tuple(range(f.ndim)) if axis is None else normalize_axis_tuple(axis, f.ndim)
    steps = varargs or (1.0,)
    if len(steps) == 1 and np.ndim(steps[0]) == 0:
        steps = steps * len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    results = []
    for k, h in zip(axes, steps, strict=True):
        if f.shape[k] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, "
                "at least (edge_order + 1) elements are required."
            )
        if np.ndim(h) == 0:
            results.append(_slopes(f, h, k, edge_order))
            continue
        x = array_of(h)
        if x.ndim != 1:
            raise ValueError("distances must be either scalars or 1d")
        if x.shape[0] != f.shape[k]:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        h = np.diff(x if x.dtype.kind in "fc" else x.astype(np.float64))  # noqa: PLW2901
        if not decided(np.all(h == h[0])):
            results.append(_slopes(f, h, k, edge_order))
        elif top_trace((h,)) is None:
            results.append(_slopes(f, h[0], k, edge_order))
        else:  # NumPy's formula for even steps depends on the first one only, but nearby the steps are uneven
            results.append(_standing_for(_slopes(f, h, k, edge_order), _slopes(f, h[0], k, edge_order)))
    return results[0] if len(axes) == 1 else tuple(results)


@composite(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y, d = array_of(y), dx
    if x is not None:
        x = array_of(x)
        d = np.diff(x, axis=-1 if x.ndim == 1 else axis)
        if x.ndim == 1:
            shape = [1] * y.ndim
            shape[axis] = d.shape[0]
            d = d.reshape(shape)
    before = (slice(None),) * (axis % y.ndim)
    return np.sum(d * (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) / 2.0, axis)


# ---------------------------------------------------------------- interpolation


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    return np.interp(x, xp, fp, left, right)


def _segment(x: Any, xp: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The data points below and above each ``x``, their distance, the upper one's weight, and if ``x`` is inside."""
    n = xp.shape[0]
    j = np.clip(np.searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    k = np.minimum(j + 1, n - 1)
    start, width = read(xp, j), read(xp, k) - read(xp, j)
    width = np.where(width == 0, 1, width)
    inside = (xp[0] <= x) & (x <= xp[-1])
    weight = np.where(inside, (x - start) / width, np.where(x < xp[0], 0, np.where(j == k, 0, 1)))
    return j, k, width, weight, inside


def _interp_x(g: Any, x: Any, xp: Any, fp: Any) -> Any:
    j, k, width, _, inside = _segment(x, xp)
    return np.where(inside, g * (read(fp, k) - read(fp, j)) / width, 0)


def _interp_xp(g: Any, x: Any, xp: Any, fp: Any) -> Any:
    j, k, width, weight, inside = _segment(x, xp)
    h = np.where(inside, -g * (read(fp, k) - read(fp, j)) / width, 0)
    return scatter(h * (1 - weight), xp.shape, j) + scatter(h * weight, xp.shape, k)


def _interp_fp(g: Any, x: Any, xp: Any, fp_shape: Any, left: Any, right: Any) -> Any:
    j, k, _, weight, _ = _segment(x, xp)
    g = g if left is None else np.where(x < xp[0], 0, g)
    g = g if right is None else np.where(x > xp[-1], 0, g)
    return scatter(g * (1 - weight), fp_shape, j) + scatter(g * weight, fp_shape, k)


def _interp_batch(call: BatchCall) -> Any:
    if call.only("x"):
        return call.run()
    left, right = call.get("left"), call.get("right")
    if not call.only("x", "fp") or left is not None or right is not None:
        return None
    x, fp = in_front(*call.operand("x"), call.size), call.get("fp")
    j, k, _, weight, _ = _segment(x, call.operand("xp")[0])
    below, above = [np.take_along_axis(fp, i.reshape(call.size, -1), 1).reshape(i.shape) for i in (j, k)]
    return np.where(np.isnan(x), x, (1 - weight) * below + weight * above)


_row = general(
    _interp,
    x=_interp_x,
    xp=_interp_xp,
    fp=_interp_fp,
    left=lambda g, x, xp: np.where(x < xp[0], g, 0),
    right=lambda g, x, xp: np.where(x > xp[-1], g, 0),
    batch=_interp_batch,
)
_row.name, _row.symbol = "np.interp", "interp"


@composite(np.interp)
def _interp_periodic(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is None:
        return bind(registry[_interp], (x, xp, fp, left, right), {})
    if decided(period == 0):
        raise ValueError("period must be a non-zero value")
    period, x, xp, fp = np.abs(period), array_of(x), array_of(xp), array_of(fp)
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("Data points must be 1-D sequences")
    if xp.shape[0] != fp.shape[0]:
        raise ValueError("fp and xp are not of the same length")
    x, xp = [cast(a, np.dtype(np.float64)) % period for a in (x, xp)]
    order = np.argsort(xp)
    xp, fp = read(xp, order), read(fp, order)
    xp = np.concatenate((xp[-1:] - period, xp, xp[:1] + period))
    return bind(registry[_interp], (x, xp, np.concatenate((fp[-1:], fp, fp[:1]))), {})


general(
    np.unwrap,
    p=lambda g, p_shape, p_dtype: fit(g, p_shape, p_dtype),
    jvp={"p": lambda t: t},
    batch=flat_axis_batch,
)

# ---------------------------------------------------------------- numbers


def _numbers(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


def _numbers_vjp(g: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return np.where(np.isfinite(x), g, 0)
    real, imag = [np.where(np.isfinite(part(x)), part(g), 0) for part in (np.real, np.imag)]
    return real + 1j * imag


_row = elementwise(_numbers, x=_numbers_vjp)
_row.name, _row.symbol = "np.nan_to_num", "nan_to_num"


@composite(np.nan_to_num)
def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if not copy:
        raise InPlaceError(
            f"{here()}: np.nan_to_num was asked to write into a traced array (copy=False), which is not supported. "
            f"Write x = np.nan_to_num(x)."
        )
    return bind(registry[_numbers], (array_of(x), nan, posinf, neginf), {})


_COSINES = np.cos((np.arange(64) + 0.5) * (np.pi / 128)).tolist()


def _i1(x: Any) -> Any:
    """The derivative of i0, which NumPy lacks: the mean of cos(t) sinh(x cos(t)) over a quarter of the circle.

    The midpoint rule is exact to rounding for a periodic function as smooth as this one, wherever i0 does not overflow.
    """
    return sum([c / 64 * np.sinh(c * x) for c in _COSINES])


elementwise(np.i0, x=lambda x: _i1(x))

# ---------------------------------------------------------------- polynomials


def _coefficients(*polynomials: Any) -> list[Any]:
    if any([isinstance(p, np.poly1d) for p in polynomials]):
        raise NoRuleError(f"{here()}: there is no derivative rule for np.poly1d objects. Pass arrays of coefficients.")
    return [np.atleast_1d(array_of(p)) for p in polynomials]


@composite(np.polyadd)
def _polyadd(a1: Any, a2: Any) -> Any:
    a1, a2 = _aligned(a1, a2)
    return a1 + a2


@composite(np.polysub)
def _polysub(a1: Any, a2: Any) -> Any:
    a1, a2 = _aligned(a1, a2)
    return a1 - a2


def _aligned(a1: Any, a2: Any) -> list[Any]:
    """Two lists of coefficients of the same length, after zeros in front of the shorter one."""
    parts = _coefficients(a1, a2)
    n = max([len(p) for p in parts])
    return [p if len(p) == n else np.concatenate((np.zeros(n - len(p), p.dtype), p)) for p in parts]


@composite(np.polymul)
def _polymul(a1: Any, a2: Any) -> Any:
    a1, a2 = [_trimmed(p) for p in _coefficients(a1, a2)]
    return np.convolve(a1, a2)


def _trimmed(p: Any) -> Any:
    """Drop leading coefficients that are zero, but for the last one."""
    while len(p) > 1 and decided(p[0] == 0):
        p = p[1:]
    return p


@composite(np.polydiv)
def _polydiv(u: Any, v: Any) -> tuple[Any, Any]:
    r, v = [p + 0.0 for p in _coefficients(u, v)]
    dtype = np.result_type(r, v)
    m, n = len(r) - 1, len(v) - 1
    scale, q, r = 1.0 / v[0], [], cast(r, dtype)
    for k in range(m - n + 1):
        d = scale * r[k]
        q.append(cast(d, dtype))
        r = np.concatenate((r[:k], cast(r[k : k + n + 1] - d * v, dtype), r[k + n + 1 :]))
    while len(r) > 1 and decided(np.allclose(r[0], 0, rtol=1e-14), batched=len(r) > n):
        r = r[1:]
    return np.stack(q) if q else np.zeros(1, dtype), r


@composite(np.polyder)
def _polyder(p: Any, m: Any = 1) -> Any:
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    (p,) = _coefficients(p)
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


@composite(np.polyint)
def _polyint(p: Any, m: Any = 1, k: Any = None) -> Any:
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    p, k = _coefficients(p, np.zeros(m) if k is None else k)
    if len(k) == 1 and m > 1:
        k = k[0] * np.ones(m)
    if len(k) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(m):
        p = np.concatenate((p / np.arange(len(p), 0, -1), k[i : i + 1]))
    return p


@composite(np.polyfit)
def _polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: Any = False, w: Any = None, cov: Any = False) -> Any:
    order = int(deg) + 1
    x, y = array_of(x) + 0.0, array_of(y) + 0.0
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1 or x.size == 0:
        raise TypeError("expected non-empty 1D vector for x")
    if y.ndim not in {1, 2}:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
    rcond = len(x) * np.finfo(x.dtype).eps if rcond is None else rcond
    left, right = np.vander(x, order), y
    if w is not None:
        w = array_of(w) + 0.0
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left, right = left * w[:, None], cast(y * (w[:, None] if y.ndim == 2 else w), y.dtype)
    scale = np.sqrt(np.sum(left * left, axis=0))
    left = left / scale
    c, residuals, rank, s = np.linalg.lstsq(left, right, rcond)
    c = (c.T / scale).T
    if not full and not decided(rank == order, batched=True):
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=2)
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    covariance = np.linalg.inv(np.dot(left.T, left)) / np.outer(scale, scale)
    factor: Any = 1
    if cov != "unscaled":
        if len(x) <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = residuals / (len(x) - order)
    return c, (covariance if y.ndim == 1 else covariance[:, :, None]) * factor


@composite(np.poly)
def _poly(seq_of_zeros: Any) -> Any:
    z = np.atleast_1d(array_of(seq_of_zeros))
    paired = z.ndim == 2 and z.dtype.kind != "c"  # eigenvalues of a real matrix come in conjugate pairs
    if z.ndim == 2 and z.shape[0] == z.shape[1] != 0:
        z = np.linalg.eigvals(z)
    elif z.ndim == 1:
        z = cast(z, np.dtype(np.mintypecode(z.dtype.char)))
    else:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if len(z) == 0:
        return 1.0
    a = np.ones(1, z.dtype)
    for zero in z:
        a = np.convolve(a, np.stack([np.ones_like(zero), -zero]), mode="full")
    if a.dtype.kind == "c" and decided(np.all(np.sort(z) == np.sort(np.conjugate(z))), batched=paired):
        return np.copy(np.real(a))
    return a


def _roots_matrix(ans: Any, p: Any) -> Any:
    """How each root moves with each coefficient, by the implicit function theorem."""
    slope = np.polyval(cast(np.polyder(p), p.dtype), ans)
    return -cast(np.vander(ans, p.shape[0]), ans.dtype) / slope[:, None]


def _roots_vjp(g: Any, ans: Any, p: Any) -> Any:
    return fit(g @ _roots_matrix(ans, p), p.shape, p.dtype)


general(np.roots, p=_roots_vjp, jvp={"p": lambda t, ans, p: _roots_matrix(ans, p) @ t})


def _vander_vjp(g: Any, ans: Any, increasing: Any) -> Any:
    """The derivative of a power is found in the next column."""
    if not increasing:
        g, ans = g[:, ::-1], ans[:, ::-1]
    return np.sum(g[:, 1:] * ans[:, :-1] * np.arange(1, ans.shape[1]), axis=1)


def _vander_batch(call: BatchCall) -> Any:
    x, n = call.get("x"), call.get("N")
    n = x.shape[1] if n is None else n
    return np.vander(x.reshape(-1), n, call.get("increasing")).reshape(*x.shape, n)


general(
    np.vander,
    batch=_vander_batch,
    x=lambda g, ans, x_shape, x_dtype, increasing: fit(_vander_vjp(g, ans, increasing), x_shape, x_dtype),
)

# ---------------------------------------------------------------- sequences between two ends


def _linspace(start: Any, stop: Any, num: Any, endpoint: Any, retstep: Any, dtype: Any, axis: Any) -> Any:
    return np.linspace(start, stop, num, endpoint, retstep, dtype, axis)


def _end_share(g: Any, num: Any, endpoint: Any, retstep: Any, axis: Any, stop: bool) -> Any:
    """The cotangent of one of the ends, between which the weights go from 1 to 0 and from 0 to 1."""
    g, step = g if retstep else (g, None)
    intervals = max(num - 1 if endpoint else num, 1)
    weights = np.arange(num, dtype=np.finfo(dtype_of(g)).dtype) / intervals
    total = np.tensordot(weights if stop else 1 - weights, g, (0, axis))
    return total if step is None else total + step * ((1 if stop else -1) / intervals)


def _linspace_batch(call: BatchCall) -> Any:
    call.align()
    axis = call.args[6]
    call.args[6] = axis + 1 if axis >= 0 else axis
    return call.run()


_row = linear(
    _linspace,
    start=lambda g, num, endpoint, retstep, axis: _end_share(g, num, endpoint, retstep, axis, False),
    stop=lambda g, num, endpoint, retstep, axis: _end_share(g, num, endpoint, retstep, axis, True),
    batch=_linspace_batch,
)
_row.name, _row.symbol = "np.linspace", "linspace"


@composite(np.linspace)
def _linspace_of_floats(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,  # noqa: ARG001
) -> Any:
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise NoRuleError(f"{here()}: np.linspace has no derivative rule for dtype={np.dtype(dtype)}.")
    start, stop = [array_of(x) if x.__class__ in {list, tuple} else x for x in (start, stop)]
    dtype = None if dtype is None else np.dtype(dtype)
    return bind(registry[_linspace], (start, stop, operator.index(num), endpoint, retstep, dtype, axis), {})


@composite(np.logspace)
def _logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    if np.ndim(base):
        ndim = np.ndim(np.broadcast_arrays(start, stop, base)[0])
        start, stop, base = [array_of(a) for a in (start, stop, base)]
        start, stop, base = [a.reshape((1,) * (ndim - a.ndim) + a.shape) for a in (start, stop, base)]
        base = np.expand_dims(base, axis=axis)
    y = np.power(base, np.linspace(start, stop, num=num, endpoint=endpoint, axis=axis))
    return y if dtype is None else cast(y, np.dtype(dtype))


@composite(np.geomspace)
def _geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = array_of(start), array_of(stop)
    work = np.result_type(start, stop, float(num), np.zeros((), dtype))
    if work.kind == "c" or (dtype is not None and np.dtype(dtype).kind != "f"):
        raise NoRuleError(f"{here()}: np.geomspace has a derivative rule for real numbers only.")
    if decided(np.any(start == 0)) or decided(np.any(stop == 0)):
        raise ValueError("Geometric sequence cannot include zero")
    start, stop = cast(start, work), cast(stop, work)
    sign = np.sign(start)
    start, stop = start / sign, stop / sign
    y = np.logspace(np.log10(start), np.log10(stop), num=num, endpoint=endpoint, base=10.0, dtype=work)
    if num > 0:  # the ends are what was given, without the rounding of logarithms
        start, stop = [np.broadcast_to(end, y.shape[1:])[None] for end in (start, stop)]
        y = np.concatenate([start, y[1:-1], stop] if num > 1 and endpoint else [start, y[1:]])
    y = y * sign
    return cast(np.moveaxis(y, 0, axis) if axis else y, work if dtype is None else np.dtype(dtype))


@composite(np.apply_over_axes)
def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    ans = array_of(a)
    ndim = ans.ndim
    for axis in (axes,) if np.ndim(axes) == 0 else axes:
        k = axis + ndim if axis < 0 else axis
        part = func(ans, k)
        ans = part if part.ndim == ans.ndim else np.expand_dims(part, k)
        if ans.ndim != ndim:
            raise ValueError("function is not returning an array of the correct shape")
    return ans
