"""Matrices: solvers, inverses, determinants, norms. Every rule works on stacks of matrices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from meintorch.core.batching import BatchCall, flat, lift, matrix_batch, shifted
from meintorch.core.primitive import composite, general, registry
from meintorch.core.shapes import axes_of, expand_reduced
from meintorch.core.trace import array_of, bind, top_trace
from meintorch.rules.factorisations import H, T, conj, diag, diagonal, epsilon, fold, hermitian_part, singular_vjp
from meintorch.rules.indexing import scatter

# ---------------------------------------------------------------- solving


def _columns(x: Any, vector: bool) -> Any:
    return x[..., None] if vector else x


def _solve(a: Any, b: Any, vector: bool) -> Any:
    """Solve for one vector, or for the columns of a matrix, for each matrix of a stack."""
    return np.linalg.solve(a, b[..., None])[..., 0] if vector and b.ndim > 1 else np.linalg.solve(a, b)


def _solve_a(g: Any, ans: Any, a: Any, b_ndim: int) -> Any:
    vector = b_ndim == 1
    return -np.matmul(_columns(_solve(T(a), g, vector), vector), T(_columns(ans, vector)))


def _solve_a_jvp(t: Any, ans: Any, a: Any, b_ndim: int) -> Any:
    x = np.linalg.solve(a, np.matmul(t, _columns(ans, b_ndim == 1)))
    return -x[..., 0] if b_ndim == 1 else -x


def _solve_batch(call: BatchCall) -> Any:
    (a, a_batched), (b, b_batched) = call.operand("a"), call.operand("b")
    vector, stack = b.ndim - b_batched == 1, a.ndim - a_batched - 2
    if vector and not a_batched:
        return np.moveaxis(np.linalg.solve(a, b.T), -1, 0)
    if vector:
        return np.linalg.solve(a, lift(b, True, stack + 1)[..., None])[..., 0] if b_batched else np.linalg.solve(a, b)
    if not a_batched and stack == 0:  # one matrix, which is factorised once for all examples
        rows = np.moveaxis(b, -2, 0)
        return np.moveaxis(np.linalg.solve(a, rows.reshape(rows.shape[0], -1)).reshape(rows.shape), 0, -2)
    ndim = max(a.ndim - a_batched, b.ndim - b_batched)
    return np.linalg.solve(lift(a, a_batched, ndim), lift(b, b_batched, ndim))


general(
    np.linalg.solve,
    batch=_solve_batch,
    a=_solve_a,
    b=lambda g, a, b_ndim: _solve(T(a), g, b_ndim == 1),
    jvp={"a": _solve_a_jvp, "b": lambda t, a: np.linalg.solve(a, t)},
)
general(
    np.linalg.inv,
    batch=matrix_batch,
    a=lambda g, ans: -np.matmul(np.matmul(T(ans), g), T(ans)),
    jvp={"a": lambda t, ans: -np.matmul(np.matmul(ans, t), ans)},
)


@composite(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = array_of(a), array_of(b)
    if axes is not None:
        order = [k for k in range(a.ndim) if k not in axes]
        a = np.transpose(a, (*order, *axes))
    shape = a.shape[b.ndim - a.ndim :]
    return np.linalg.solve(a.reshape(b.size, b.size), b.reshape(-1)).reshape(shape)


@composite(np.linalg.tensorinv)
def _tensorinv(a: Any, ind: int = 2) -> Any:
    a = array_of(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    n = int(np.prod(a.shape[ind:]))
    return np.linalg.inv(a.reshape(n, -1)).reshape(*a.shape[ind:], *a.shape[:ind])


@composite(np.linalg.matrix_power)
def _matrix_power(a: Any, n: Any) -> Any:
    a, n = array_of(a), operator.index(n)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError(f"np.linalg.matrix_power takes square matrices, not an array of shape {a.shape}")
    if n == 0:
        return np.zeros_like(a) + np.eye(a.shape[-1], dtype=a.dtype)
    if n < 0:
        a, n = np.linalg.inv(a), -n
    if n == 3:  # the order in which NumPy multiplies
        return np.matmul(np.matmul(a, a), a)
    result = None
    while True:
        n, odd = divmod(n, 2)
        if odd:
            result = a if result is None else np.matmul(result, a)
        if n == 0:
            return result
        a = np.matmul(a, a)


# ---------------------------------------------------------------- pseudo-inverse and least squares


def _pinv_vjp(g: Any, ans: Any, a: Any, hermitian: Any) -> Any:
    """The transpose of dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P, for a constant rank."""
    P, h = conj(ans), H(g)
    A = conj(hermitian_part(a, lower=True) if hermitian else a)
    left, right = np.matmul(P, h), np.matmul(h, P)
    G = np.matmul(np.matmul(h - np.matmul(A, left), P), T(ans))
    G = G + np.matmul(T(ans), np.matmul(P, h - np.matmul(right, A)))
    G = G - np.matmul(np.matmul(T(ans), g), T(ans))
    return fold(G, lower=True) if hermitian else G


def _pinv_jvp(t: Any, ans: Any, a: Any, hermitian: Any) -> Any:
    if hermitian:
        t, a = hermitian_part(t, lower=True), hermitian_part(a, lower=True)
    left, right = np.matmul(H(t), H(ans)), np.matmul(H(ans), H(t))
    first = np.matmul(ans, right - np.matmul(right, np.matmul(a, ans)))
    last = np.matmul(left - np.matmul(ans, np.matmul(a, left)), ans)
    return first + last - np.matmul(np.matmul(ans, t), ans)


general(np.linalg.pinv, batch=matrix_batch, a=_pinv_vjp, jvp={"a": _pinv_jvp})


def _lstsq_share(g: Any, ans: Any, a: Any, b: Any, rcond: Any) -> tuple[Any, ...]:
    """The pseudo-inverse, the residual, and the cotangent of b: all with right sides as columns."""
    vector = b.ndim == 1
    x, gx, b = _columns(ans[0], vector), _columns(g[0], vector), _columns(b, vector)
    P = np.linalg.pinv(a, _cutoff(a, rcond))
    r = b - np.matmul(a, x)
    h = np.matmul(T(P), gx)
    return P, x, gx, r, h, h + 2 * g[1] * conj(r) if 0 not in g[1].shape else h


def _lstsq_a(g: Any, ans: Any, a: Any, b: Any, rcond: Any) -> Any:
    """From dx = P (db - dA x) + P P^H dA^H r + (1 - P A) dA^H P^H P b, with r = b - A x."""
    P, x, gx, r, h, b_ct = _lstsq_share(g, ans, a, b, rcond)
    G = np.matmul(np.matmul(conj(r), H(h)), T(P)) - np.matmul(b_ct, T(x))
    G = G + np.matmul(np.matmul(T(P), conj(x)), H(gx) - np.matmul(H(h), conj(a)))
    if isinstance(g[3], np.ndarray) and not np.any(g[3]):  # nobody asked for the singular values
        return G
    return G + singular_vjp(g[3], np.linalg.svd(a, full_matrices=False))


def _lstsq_b(g: Any, ans: Any, a: Any, b: Any, rcond: Any) -> Any:
    return _lstsq_share(g, ans, a, b, rcond)[-1].reshape(b.shape)


def _cutoff(a: Any, rcond: Any) -> Any:
    """The share of the largest singular value at which others count as zero; NumPy solves in double precision."""
    eps = epsilon(np.empty(0))
    return eps * max(a.shape[-2:]) if rcond is None else eps if rcond < 0 else rcond


def _lstsq_batch(call: BatchCall) -> Any:
    (a, a_batched), (b, b_batched), rcond = call.operand("a"), call.operand("b"), call.get("rcond")
    vector, size = b.ndim - b_batched == 1, call.size
    if top_trace((a, b)) is not None or (a_batched and (a.ndim != 3 or a.size == 0)):
        return None
    if not a_batched:  # one matrix for all right sides
        rows = np.moveaxis(b, -1 if vector else -2, 0)
        x, residuals, rank, s = np.linalg.lstsq(a, rows.reshape(rows.shape[0], -1), rcond)
        x = np.moveaxis(x.reshape(x.shape[0], *rows.shape[1:]), 0, -1 if vector else -2)
        residuals = residuals.reshape(size, -1 if residuals.size else 0)
        return x, residuals, np.full(size, rank), np.broadcast_to(s, (size, *s.shape))
    U, s, Vh = np.linalg.svd(a, full_matrices=False)
    kept = s > _cutoff(a, rcond) * s[..., :1]
    b, rank = _columns(b, vector), np.sum(kept, axis=-1, dtype=np.intc)
    x = np.matmul(H(Vh), np.matmul(H(U), b) * np.where(kept, 1 / np.where(kept, s, 1), 0)[..., None])
    r = b - np.matmul(a, x)
    full = (rank == a.shape[-1]) & (a.shape[-2] > a.shape[-1])
    if np.any(full) and not np.all(full):
        return None
    residuals = np.sum(np.real(conj(r) * r), axis=-2)
    return x[..., 0] if vector else x, residuals[:, : None if np.all(full) else 0], rank, s


general(np.linalg.lstsq, batch=_lstsq_batch, a=_lstsq_a, b=_lstsq_b)

# ---------------------------------------------------------------- determinants


def _others(s: Any) -> Any:
    """The product of all other entries, for each entry along the last axis; without a division."""
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    return before * np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]


def cofactors(a: Any) -> Any:
    """Return the derivative of the determinant, which exists for singular matrices too."""
    if top_trace((a,)) is not None:
        return bind(registry[cofactors], (a,), {})
    try:
        inverse = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        inverse = np.full_like(a, np.inf)
    with np.errstate(all="ignore"):
        size = np.max(np.abs(a), (-2, -1), initial=0) * np.max(np.abs(inverse), (-2, -1), initial=0)
        det = np.linalg.det(a)
        if not np.any((size > 1e5) | (det == 0) | np.isinf(det)):
            return det[..., None, None] * T(inverse)
    U, s, Vh = np.linalg.svd(a)
    sign = np.linalg.det(U) * np.linalg.det(Vh)
    return np.matmul(sign[..., None, None] * conj(U) * _others(s)[..., None, :], conj(Vh))


def cofactors_slope(a: Any, x: Any) -> Any:
    """Return the derivative of the cofactors along x, in the basis in which a is diagonal.

    There the second derivative is the sum over i != j of p_ij (x_ii y_jj - x_ij y_ji), p_ij the product of all but two
    diagonal entries.
    """
    if top_trace((a, x)) is not None:
        return bind(registry[cofactors_slope], (a, x), {})
    U, s, Vh = np.linalg.svd(a)
    off = np.eye(s.shape[-1], dtype=bool)
    p = np.where(off, 0, _others(np.where(off, 1, s[..., None, :])))
    y = np.matmul(np.matmul(H(U), x), H(Vh))
    m = diag(np.matmul(p, diagonal(y)[..., None])[..., 0]) - p * T(y)
    sign = np.linalg.det(U) * np.linalg.det(Vh)
    return sign[..., None, None] * np.matmul(np.matmul(conj(U), m), conj(Vh))


def _cofactors_slope_batch(call: BatchCall) -> Any:
    a, x = call.operand("a"), call.operand("x")
    ndim = max(y.ndim - batched for y, batched in (a, x))
    return cofactors_slope(lift(*a, ndim), lift(*x, ndim))


def _cofactors_third(g: Any, a: Any, x: Any) -> Any:
    """The third derivative of the determinant, symmetric in its arguments, from the minors' second ones."""
    n = a.shape[-1]
    if n < 3:
        return np.zeros_like(g)
    k = np.arange(n)
    rest = np.stack([np.delete(k, i) for i in k])
    minor = (Ellipsis, rest[:, None, :, None], rest[None, :, None, :])
    sign = (-1.0) ** (k[:, None] + k)
    h = (g * sign.astype(g.dtype))[..., None, None] * cofactors_slope(a[minor], x[minor])
    return scatter(h, (*h.shape[:-4], n, n), minor)


general(
    np.linalg.det,
    batch=matrix_batch,
    a=lambda g, a: g[..., None, None] * cofactors(a),
    jvp={"a": lambda t, a: np.sum(t * cofactors(a), axis=(-2, -1))},
)
general(
    cofactors, batch=matrix_batch, a=lambda g, a: cofactors_slope(a, g), jvp={"a": lambda t, a: cofactors_slope(a, t)}
)
general(
    cofactors_slope,
    batch=_cofactors_slope_batch,
    a=_cofactors_third,
    x=lambda g, a: cofactors_slope(a, g),
    jvp={"a": lambda t, a, x: _cofactors_third(t, a, x), "x": lambda t, a: cofactors_slope(a, t)},
)


def _slogdet_vjp(g: Any, ans: Any, a: Any) -> Any:
    """The logarithm takes the real part of tr(A^-1 dA), the phase of a complex determinant the imaginary part."""
    h = g[1] + 1j * np.imag(g[0] * ans[0]) if a.dtype.kind == "c" else g[1]
    return h[..., None, None] * T(np.linalg.inv(a))


def _slogdet_jvp(t: Any, ans: Any, a: Any) -> list[Any]:
    h = np.trace(np.linalg.solve(a, t), axis1=-2, axis2=-1)
    return [1j * np.imag(h) * ans[0] if a.dtype.kind == "c" else np.zeros_like(ans[0]), np.real(h)]


general(np.linalg.slogdet, batch=matrix_batch, a=_slogdet_vjp, jvp={"a": _slogdet_jvp})

# ---------------------------------------------------------------- norms and the condition number


def _shares(hit: Any, dtype: Any) -> Any:
    """Equal shares for those that attain an extremum, along the last axis."""
    return hit / np.sum(hit, axis=-1, keepdims=True, dtype=dtype)


def matrix_norm_vjp(g: Any, x: Any, order: Any) -> Any:
    """The cotangent of the matrices that the last two axes hold, for any order that np.linalg.norm knows for matrices.

    Ties are shared evenly, and at a kink it is the least subgradient.
    """
    if order in ("nuc", 2, -2):
        U, s, Vh = np.linalg.svd(x, full_matrices=False)
        hit = s > max(x.shape[-2:]) * epsilon(s) * s[..., :1]
        if order == "nuc":
            h = np.where(hit, g[..., None], 0)
        else:
            h = np.where(hit, g[..., None] * _shares(s == (s[..., :1] if order == 2 else s[..., -1:]), s.dtype), 0)
        return singular_vjp(h, (U, s, Vh))
    if order is None or order == "fro":
        norm = np.linalg.norm(x, axis=(-2, -1))
        return (g / np.where(norm == 0, 1, norm))[..., None, None] * conj(x)
    size = np.abs(x)
    sums = np.sum(size, axis=-2 if order in (1, -1) else -1)
    top = (np.max if order > 0 else np.min)(sums, axis=-1, keepdims=True)
    h = g[..., None] * _shares(sums == top, sums.dtype)
    direction = conj(x) / np.where(size == 0, 1, size)
    return (h[..., None, :] if order in (1, -1) else h[..., :, None]) * direction


def _cond_vjp(g: Any, x: Any, p: Any) -> Any:
    if p is None or p in (2, -2):
        U, s, Vh = np.linalg.svd(x, full_matrices=False)
        top, low = (s[..., -1:], s[..., :1]) if p == -2 else (s[..., :1], s[..., -1:])
        h = _shares(s == top, s.dtype) - top / low * _shares(s == low, s.dtype)
        return singular_vjp(g[..., None] / low * h, (U, s, Vh))
    g, inverse = np.real(g), np.linalg.inv(x)  # NumPy 2.0 returns it as a complex number
    h, h_inverse = [matrix_norm_vjp(np.ones_like(g), y, p) for y in (x, inverse)]
    norm, other = [np.real(np.sum(y * s, axis=(-2, -1))) for y, s in ((x, h), (inverse, h_inverse))]  # Euler's theorem
    h_inverse = np.matmul(np.matmul(T(inverse), h_inverse), T(inverse))
    return (g * other)[..., None, None] * h - (g * norm)[..., None, None] * h_inverse


general(np.linalg.cond, batch=matrix_batch, x=_cond_vjp)


@composite(np.linalg.vector_norm)
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Any:
    x = array_of(x)
    shape = x.shape
    axes = tuple(range(x.ndim)) if axis is None else tuple([k % x.ndim for k in np.atleast_1d(axis)])
    if axis is None:
        x, axis = x.reshape(-1), 0
    elif isinstance(axis, tuple):
        rest = tuple([k for k in range(x.ndim) if k not in axes])
        x, axis = np.transpose(x, (*axes, *rest)).reshape(-1, *[shape[k] for k in rest]), 0
    ans = np.linalg.norm(x, ord, axis)
    return ans.reshape([1 if k in axes else n for k, n in enumerate(shape)]) if keepdims else ans


@composite(np.linalg.matrix_norm)
def _matrix_norm(x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Any:
    return np.linalg.norm(array_of(x), ord, (-2, -1), keepdims)


# ---------------------------------------------------------------- norms of vectors, and np.linalg.norm


def _norm_vjp(g: Any, ans: Any, x: Any, ord: Any, axis: Any, keepdims: Any) -> Any:
    """The least subgradient where there is a kink."""
    matrix = x.ndim == 2 if axis is None else isinstance(axis, tuple) and len(axis) == 2
    flat = ord is None or (ord == "fro" and matrix)
    if matrix and not flat:
        axes = axes_of(axis, x.ndim)
        g = np.squeeze(g, axes) if keepdims else g
        return np.moveaxis(matrix_norm_vjp(g, np.moveaxis(x, axes, (-2, -1)), ord), (-2, -1), axes)

    def full(small: Any) -> Any:
        return expand_reduced(small, x.shape, axis, keepdims)

    if flat or ord == 2:
        return full(g / np.where(ans == 0, 1, ans)) * np.conjugate(x)
    if ord == 0:
        return np.zeros_like(x)
    size = np.abs(x)
    direction = np.conjugate(x) / np.where(size == 0, 1, size)
    if ord in (np.inf, -np.inf):
        hit = size == full(ans)
        ties = np.sum(hit, axis=axes_of(axis, x.ndim), keepdims=True, dtype=size.dtype)
        return np.where(hit, full(g) / ties, 0) * direction
    # d/dx (sum |x|**p)**(1/p) = (|x| / ans)**(p - 1); entries that are 0 have no share for p > 1 and at a kink
    ratio = np.where(size == 0, 1, size) / full(np.where(ans == 0, 1, ans))
    return full(g) * np.where(size == 0, 0, ratio ** (ord - 1)) * direction


def _norm_batch(call: BatchCall) -> Any:
    x, order, axis, keepdims = [call.get(name) for name in ("x", "ord", "axis", "keepdims")]
    n = x.ndim - 1
    if axis is not None:
        return np.linalg.norm(x, order, shifted(axis, n), keepdims)
    if order is None:
        ans = np.linalg.norm(flat(x), axis=1)
        return ans.reshape(call.size, *(1,) * n) if keepdims else ans
    return np.linalg.norm(x, order, (1, 2) if n == 2 else 1, keepdims) if n in {1, 2} else None


general(np.linalg.norm, x=_norm_vjp, batch=_norm_batch)
