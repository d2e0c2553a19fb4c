"""Factorisations: Cholesky and QR, eigenvalues, singular values.

A rule works on stacks of matrices. It pairs cotangents with tangents by Re sum(g * t), without a conjugate, so that the
transpose of A -> B A C is g -> B^T g C^T, and that of A -> A^H is g -> g^H. A factor that has a free sign or phase keeps
NumPy's: its derivative is that of the space it spans. Where values meet (within rounding) their vectors have no
derivative, which shows as inf or nan if, and only if, somebody asks for it; the values themselves stay right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.batching import matrix_batch
from meintorch.core.primitive import composite, constant, general, registry
from meintorch.core.trace import bind, top_trace
from meintorch.errors import NoRuleError


def conj(x: Any) -> Any:
    return np.conjugate(x) if x.dtype.kind == "c" else x


def T(x: Any) -> Any:  # noqa: N802 (as formulas have it)
    return x.swapaxes(-1, -2)


def H(x: Any) -> Any:  # noqa: N802
    return conj(x).swapaxes(-1, -2)


def diagonal(x: Any) -> Any:
    return np.diagonal(x, 0, -2, -1)


def diag(x: Any) -> Any:
    """Return the matrix that has the entries of a vector on its diagonal."""
    return x[..., None] * np.eye(x.shape[-1], dtype=x.dtype)


def _half(x: Any) -> Any:
    """The lower triangle with half of the diagonal: of a Hermitian x the part with half + half^H == x."""
    return np.tril(x) * (1 - np.eye(x.shape[-1], dtype=x.dtype) / 2)


def hermitian_part(t: Any, lower: bool) -> Any:
    """The Hermitian matrix of which a function reads one triangle."""
    half = _half(t if lower else H(t))
    return half + H(half)


def fold(g: Any, lower: bool) -> Any:
    """The transpose of `hermitian_part`: what NumPy does not read has no derivative."""
    half = _half(g + H(g))
    return half if lower else H(half)


def epsilon(x: Any) -> float:
    return float(np.finfo(x.dtype).eps)


# ---------------------------------------------------------------- Cholesky and QR


def _cholesky_vjp(g: Any, ans: Any, upper: Any) -> Any:
    """The transpose of dL = L half(L^-1 dA L^-H)."""
    L, g = (H(ans), H(g)) if upper else (ans, g)
    G = np.linalg.solve(T(L), _half(np.matmul(T(L), g)))
    return fold(T(np.linalg.solve(H(L), T(G))), lower=not upper)


def _cholesky_jvp(t: Any, ans: Any, upper: Any) -> Any:
    L = H(ans) if upper else ans
    M = np.linalg.solve(L, H(np.linalg.solve(L, hermitian_part(t, lower=not upper))))
    x = np.matmul(L, _half(M))
    return H(x) if upper else x


general(np.linalg.cholesky, batch=matrix_batch, a=_cholesky_vjp, jvp={"a": _cholesky_jvp})


def _qr_parts(ans: Any, a: Any, mode: Any) -> tuple[Any, Any, int]:
    if mode not in ("reduced", "complete", "r"):
        raise NoRuleError(f"np.linalg.qr has no derivative rule for mode={mode!r}; use 'reduced', 'complete' or 'r'")
    Q, R = np.linalg.qr(a) if mode == "r" else ans
    return Q, R, min(a.shape[-2:])


def _without_rest(g: Any, Q: Any, k: int) -> tuple[Any, Any]:
    """Lead the cotangent of the vectors Q2 that complete a basis Q1 over to Q1: dQ2 = -Q1 dQ1^H Q2."""
    if Q.shape[-1] == k:
        return g, Q
    first, rest = Q[..., :k], Q[..., k:]
    return g[..., :k] - np.matmul(np.matmul(conj(rest), H(g[..., k:])), conj(first)), first


def _with_rest(t: Any, Q: Any, k: int) -> Any:
    """The tangent of the whole basis."""
    return t if Q.shape[-1] == k else np.concatenate([t, -np.matmul(Q[..., :k], np.matmul(H(t), Q[..., k:]))], axis=-1)


def _qr_vjp(g: Any, ans: Any, a: Any, mode: Any) -> Any:
    """The transpose of `_qr_jvp`."""
    Q, R, k = _qr_parts(ans, a, mode)
    gQ, gR = (np.zeros_like(Q), g) if mode == "r" else g
    gQ, Q = _without_rest(gQ, Q, k)
    R, gR, R2, gR2 = R[..., :k, :k], gR[..., :k, :k], R[..., :k, k:], gR[..., :k, k:]
    gQ = gQ + conj(np.matmul(np.matmul(Q, R2), T(gR2)))
    B, X = np.matmul(gR, T(R)), np.matmul(T(Q), gQ)
    E = X - B
    G = gQ + np.matmul(conj(Q), _half(E - H(E)) - E)
    G = T(np.linalg.solve(R, T(G)))
    return np.concatenate([G, np.matmul(conj(Q), gR2)], axis=-1)


def _qr_jvp(t: Any, ans: Any, a: Any, mode: Any) -> Any:
    """With C = Q^H dA R^-1: Q^H dQ is its anti-Hermitian part W made of the lower triangle, and dR = (C - W) R."""
    Q, R, k = _qr_parts(ans, a, mode)
    first, R1, R2 = Q[..., :k], R[..., :k, :k], R[..., :k, k:]
    s = T(np.linalg.solve(T(R1), T(t[..., :k])))
    C = np.matmul(H(first), s)
    half = _half(C)
    W = half - H(half)
    dQ = s - np.matmul(first, C - W)
    dR = np.matmul(C - W, R1)
    dR2 = np.matmul(H(first), t[..., k:]) + np.matmul(np.matmul(H(dQ), first), R2)
    dR = np.concatenate([dR, dR2], axis=-1)
    if mode == "r":
        return dR
    below = np.zeros((*dR.shape[:-2], R.shape[-2] - k, dR.shape[-1]), dR.dtype)
    return [_with_rest(dQ, Q, k), np.concatenate([dR, below], axis=-2)]


general(np.linalg.qr, batch=matrix_batch, a=_qr_vjp, jvp={"a": _qr_jvp})

# ---------------------------------------------------------------- eigenvalues and eigenvectors


def _over(x: Any, d: Any) -> Any:
    """The quotient x / d, of which 0 / 0 is 0."""
    return x * (1 / np.where((x == 0) & (d == 0), np.inf, d))


def _over_gaps(x: Any, w: Any) -> Any:
    """The quotients x_ij / (w_j - w_i) off the diagonal; gaps within rounding are none, and 0 / 0 is 0."""
    n, d = w.shape[-1], w[..., None, :] - w[..., :, None]
    met = np.abs(d) <= n * epsilon(w) * np.max(np.abs(w), axis=-1, keepdims=True)[..., None]
    nothing = met & ((x == 0) | np.eye(n, dtype=bool))
    return x * (1 / np.where(nothing, np.inf, np.where(met, 0, d)))


def _lower(UPLO: Any) -> bool:
    return bool(UPLO in ("L", "l"))


def _eigh_vjp(g: Any, ans: Any, UPLO: Any) -> Any:
    """With M = V^H dA V: dw is its real diagonal, and dV = V (M_ij / (w_j - w_i))."""
    w, V = ans
    P = diag(g[0]) + _over_gaps(np.matmul(T(V), g[1]), w)
    return fold(np.matmul(np.matmul(conj(V), P), T(V)), _lower(UPLO))


def _eigh_jvp(t: Any, ans: Any, UPLO: Any) -> list[Any]:
    w, V = ans
    M = np.matmul(np.matmul(H(V), hermitian_part(t, _lower(UPLO))), V)
    with np.errstate(all="ignore"):
        return [np.real(diagonal(M)), np.matmul(V, _over_gaps(M, w))]


def _eigvalsh_vjp(g: Any, a: Any, UPLO: Any) -> Any:
    V = np.linalg.eigh(a, UPLO)[1]
    return fold(np.matmul(conj(V) * g[..., None, :], T(V)), _lower(UPLO))


def _eigvalsh_jvp(t: Any, a: Any, UPLO: Any) -> Any:
    V = np.linalg.eigh(a, UPLO)[1]
    return np.real(np.sum(conj(V) * np.matmul(hermitian_part(t, _lower(UPLO)), V), axis=-2))


general(np.linalg.eigh, batch=matrix_batch, a=_eigh_vjp, jvp={"a": _eigh_jvp})
general(np.linalg.eigvalsh, batch=matrix_batch, a=_eigvalsh_vjp, jvp={"a": _eigvalsh_jvp})


def _as(x: Any, dtype: Any) -> Any:
    """The real part, for the cotangent of a real matrix."""
    return x if dtype.kind == "c" or x.dtype.kind != "c" else np.real(x)


def _eig_vjp(g: Any, ans: Any, a_dtype: Any) -> Any:
    """With M = V^-1 dA V: dw is its diagonal, and dV = V Q - V diag(V^H V Q), with Q = M_ij / (w_j - w_i)."""
    w, V = ans
    P = np.matmul(T(V), g[1])
    P = P - np.matmul(T(V), conj(V)) * diagonal(P)[..., None, :]
    P = diag(g[0]) + _over_gaps(P, w)
    return _as(np.linalg.solve(T(V), np.matmul(P, T(V))), a_dtype)


def _eig_jvp(t: Any, ans: Any) -> list[Any]:
    w, V = ans
    M = np.linalg.solve(V, np.matmul(t, V))
    with np.errstate(all="ignore"):
        X = np.matmul(V, _over_gaps(M, w))
        return [diagonal(M), X - V * np.sum(conj(V) * X, axis=-2, keepdims=True)]


def order_of(w: Any, v: Any) -> Any:
    """Return for each entry of w the place of its nearest one in v: np.linalg.eig and eigvals can differ in order."""
    if top_trace((w, v)) is not None:
        return bind(registry[order_of], (w, v), {})
    distance = np.abs(w[..., :, None] - v[..., None, :])
    order = np.empty(w.shape, np.intp)
    for i in range(w.shape[-1]):
        j = np.argmin(distance[..., i, :], axis=-1)
        order[..., i] = j
        np.put_along_axis(distance, j[..., None, None], np.inf, axis=-1)
    return order


constant(order_of, batch=lambda call: call.run() if len(call.batched) == 2 else None)


def _eigenvectors(ans: Any, a: Any) -> Any:
    w, V = np.linalg.eig(a)
    return np.take_along_axis(V, order_of(ans, w)[..., None, :], axis=-1)


def _eigvals_vjp(g: Any, ans: Any, a: Any) -> Any:
    V = _eigenvectors(ans, a)
    return _as(np.linalg.solve(T(V), g[..., None] * T(V)), a.dtype)


def _eigvals_jvp(t: Any, ans: Any, a: Any) -> Any:
    V = _eigenvectors(ans, a)
    return diagonal(np.linalg.solve(V, np.matmul(t, V)))


general(np.linalg.eig, batch=matrix_batch, a=_eig_vjp, jvp={"a": _eig_jvp})
general(np.linalg.eigvals, batch=matrix_batch, a=_eigvals_vjp, jvp={"a": _eigvals_jvp})

# ---------------------------------------------------------------- singular values


def singular_vjp(g: Any, parts: Any) -> Any:
    """The cotangent of the matrix from that of its singular values: dS is the real diagonal of U^H dA V."""
    U, _, Vh = parts
    return np.matmul(conj(U) * g[..., None, :], conj(Vh))


def _over_squares(x: Any, s: Any) -> Any:
    """The quotients x_ij / (s_j^2 - s_i^2) off the diagonal."""
    return _over(_over_gaps(x, s), s[..., None, :] + s[..., :, None])


def _nonzero(s: Any, n: int) -> Any:
    """The singular values as denominators: those within rounding of zero are zero."""
    return np.where(s <= n * epsilon(s) * s[..., :1], 0, s)[..., None, :]


def _svd_vjp(g: Any, ans: Any, a: Any, compute_uv: Any, hermitian: Any) -> Any:
    """The transpose of `_svd_jvp`."""
    if not compute_uv:
        G = singular_vjp(g, np.linalg.svd(a, full_matrices=False, hermitian=bool(hermitian)))
        return fold(G, lower=True) if hermitian else G
    (gU, gs, gVh), (U, s, Vh) = g, ans
    (m, n), k = a.shape[-2:], s.shape[-1]
    (gU, U), (gV, V) = _without_rest(gU, U, k), _without_rest(H(gVh), H(Vh), k)
    X, Y, d = np.matmul(T(U), gU), np.matmul(T(V), gV), _nonzero(s, max(m, n))
    Z, W = _over_squares(X, s), _over_squares(Y, s)
    P = (Z + H(Z)) * s[..., None, :] + s[..., :, None] * (W + H(W)) + diag(gs)
    if U.dtype.kind == "c":
        P = P + 1j * diag(_over(np.imag(diagonal(X)), d[..., 0, :]))
    G = np.matmul(np.matmul(conj(U), P), T(V))
    if m > k:
        G = G + np.matmul(_over(gU - np.matmul(conj(U), X), d), T(V))
    if n > k:
        G = G + np.matmul(conj(U), H(_over(gV - np.matmul(conj(V), Y), d)))
    return fold(G, lower=True) if hermitian else G


def _svd_jvp(t: Any, ans: Any, a: Any, compute_uv: Any, hermitian: Any) -> Any:
    """With M = U^H dA V: dS is its real diagonal, dU = U A + (1 - U U^H) dA V / S, and dV likewise.

    A_ij = (M_ij s_j + s_i M_ji^*) / (s_j^2 - s_i^2), which leaves U the phases of the diagonal of M.
    """
    t = hermitian_part(t, lower=True) if hermitian else t
    if not compute_uv:
        U, _, Vh = np.linalg.svd(a, full_matrices=False, hermitian=bool(hermitian))
        return np.real(np.sum(conj(U) * np.matmul(t, H(Vh)), axis=-2))
    U, s, Vh = ans
    (m, n), k = a.shape[-2:], s.shape[-1]
    U1, V1 = U[..., :k], H(Vh[..., :k, :])
    tV, d = np.matmul(t, V1), _nonzero(s, max(m, n))
    M = np.matmul(H(U1), tV)
    si, sj = s[..., :, None], s[..., None, :]
    with np.errstate(all="ignore"):
        A = _over_squares(M * sj + si * H(M), s)
        if U.dtype.kind == "c":
            A = A + 1j * diag(_over(np.imag(diagonal(M)), d[..., 0, :]))
        dU, dV = np.matmul(U1, A), np.matmul(V1, _over_squares(si * M + H(M) * sj, s))
        if m > k:
            dU = dU + _over(tV - np.matmul(U1, M), d)
        if n > k:
            dV = dV + _over(np.matmul(H(t), U1) - np.matmul(V1, H(M)), d)
        return [_with_rest(dU, U, k), np.real(diagonal(M)), H(_with_rest(dV, H(Vh), k))]


general(np.linalg.svd, batch=matrix_batch, a=_svd_vjp, jvp={"a": _svd_jvp})
composite(np.linalg.svdvals)(lambda x, /: np.linalg.svd(x, compute_uv=False))
