"""Matrices and Fourier transforms: closed forms, and the points at which formulas in textbooks break down."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest

from meintorch import errors
from meintorch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from meintorch.rules.factorisations import order_of
from meintorch.rules.matrices import cofactors, matrix_norm_vjp
from tests.cases import complexes, normal
from tests.differences import gradient

DET = lambda a: np.linalg.det(a)  # noqa: E731


def close(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def levi_civita(n: int) -> Any:
    tensor = np.zeros((n,) * n)
    for p in itertools.permutations(range(n)):
        tensor[p] = np.linalg.det(np.eye(n)[list(p)])
    return tensor


# ---------------------------------------------------------------- determinants

SINGULAR = {
    "zeros": np.zeros((4, 4)),
    "ones": np.ones((3, 3)),
    "rank one less": np.diag([2.0, 3.0, 0.0]),
    "a zero row": np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 5.0, 7.0]]),
    "one by one": np.zeros((1, 1)),
    "two by two": np.array([[1.0, 2.0], [2.0, 4.0]]),
    "nearly": np.diag([1.0, 1e-9, 1e-12]),
    "regular": normal(4, 4),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_gradient_of_a_determinant_is_the_matrix_of_cofactors(name: str) -> None:
    A = SINGULAR[name]
    n = len(A)
    want = np.zeros((n, n))
    for i, j in np.ndindex(n, n):
        minor = np.delete(np.delete(A, i, 0), j, 1)
        want[i, j] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1.0)
    close(grad(DET)(A), want)
    close(jacfwd(DET)(A), want)


@pytest.mark.parametrize("A", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([2.0, 0.0, 0.0]), normal(3, 3)], ids=str)
def test_all_compositions_give_the_second_derivatives_of_a_determinant(A: Any) -> None:
    e = levi_civita(3)
    want = np.einsum("ikm,jln,mn->ijkl", e, e, A)
    for outer, inner in itertools.product((jacfwd, jacrev), (jacfwd, jacrev)):
        close(outer(inner(DET))(A), want)
    close(hessian(lambda a: np.linalg.det(a[0]))(np.stack([A, np.eye(3)]))[0, :, :, 0], want)
    close(vmap(hessian(DET))(np.stack([A, A.T, np.zeros((3, 3))]))[0], want)


def test_third_and_fourth_derivatives_of_a_determinant() -> None:
    e = levi_civita(3)
    third = np.einsum("ikm,jln->ijklmn", e, e)
    for A in (np.zeros((3, 3)), normal(3, 3)):
        close(jacrev(jacrev(jacrev(DET)))(A), third)
        close(jacfwd(jacfwd(jacrev(DET)))(A), third)
        close(jacrev(hessian(DET))(np.eye(2)), np.zeros((2,) * 6))
    line = lambda t: np.linalg.det(np.eye(4) * t)  # noqa: E731
    for t in (0.0, 1.5):
        close(grad(grad(grad(grad(line))))(t), 24.0)
        close(grad(grad(grad(line)))(t), 24.0 * t)


def test_cofactors_of_a_stack_in_which_some_are_singular() -> None:
    stack = np.stack([normal(3, 3), np.ones((3, 3)), np.eye(3)])
    close(cofactors(stack), np.stack([cofactors(a) for a in stack]))
    close(cofactors(complexes(3, 3)), np.linalg.det(complexes(3, 3)) * np.linalg.inv(complexes(3, 3)).T)


def test_slogdet() -> None:
    A, Z = -normal(3, 3), complexes(3, 3)
    close(grad(lambda a: np.linalg.slogdet(a)[1])(A), np.linalg.inv(A).T)
    close(grad(lambda a: np.linalg.slogdet(a)[0])(A), np.zeros((3, 3)))
    sign, size = np.linalg.slogdet(A)
    assert grad(lambda a: np.linalg.slogdet(a).sign * size)(sign * A).shape == (3, 3)
    # log det = log |det| + i phase is analytic: the phase's derivative follows from the logarithm's.
    close(grad(lambda a: np.linalg.slogdet(a)[1])(Z), np.linalg.inv(Z).T)
    close(grad(lambda a: np.angle(np.linalg.slogdet(a)[0]))(Z), -1j * np.linalg.inv(Z).T)


# ---------------------------------------------------------------- solving


@pytest.mark.parametrize("shape", [(3,), (3, 2), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("stack", [(), (4,)], ids=str)
def test_solve_is_the_product_with_the_inverse(shape: Any, stack: Any) -> None:
    a, b = normal(*stack, 3, 3) + 3 * np.eye(3), normal(*shape)

    def by_solve(a: Any, b: Any) -> Any:
        return np.sum(np.sin(np.linalg.solve(a, b)))

    def by_inverse(a: Any, b: Any) -> Any:
        return np.sum(np.sin(np.linalg.inv(a) @ b))

    for got, want in zip(grad(by_solve, (0, 1))(a, b), grad(by_inverse, (0, 1))(a, b), strict=True):
        close(got, want)
    (got,), (want,) = [jvp(f, (a, b), (normal(*a.shape, seed=1), b + 1))[1:] for f in (by_solve, by_inverse)]
    close(got, want)


def test_pseudo_inverse_where_the_rank_is_locally_constant() -> None:
    u, v, w = normal(4), normal(3), normal(3, 4)

    def by_pinv(u: Any, v: Any) -> Any:
        return np.sum(w * np.linalg.pinv(np.outer(u, v)))

    def closed(u: Any, v: Any) -> Any:
        return np.sum(w * np.outer(v, u)) / (u @ u) / (v @ v)

    for got, want in zip(grad(by_pinv, (0, 1))(u, v), grad(closed, (0, 1))(u, v), strict=True):
        close(got, want)
    close(hessian(by_pinv)(u, v), hessian(closed)(u, v))
    close(jacfwd(by_pinv)(u, v), grad(closed)(u, v))


def test_least_squares_is_the_normal_equations() -> None:
    a, b = normal(6, 3), normal(6)
    fit = lambda a, b: np.sum(np.linalg.lstsq(a, b, rcond=None)[0] ** 3)  # noqa: E731
    normal_equations = lambda a, b: np.sum(np.linalg.solve(a.T @ a, a.T @ b) ** 3)  # noqa: E731
    for got, want in zip(grad(fit, (0, 1))(a, b), grad(normal_equations, (0, 1))(a, b), strict=True):
        close(got, want, 1e-9)
    residual = lambda a, b: np.linalg.lstsq(a, b, rcond=None)[1][0]  # noqa: E731
    x = np.linalg.lstsq(a, b, rcond=None)[0]
    close(grad(residual, 1)(a, b), 2 * (b - a @ x))
    close(grad(residual, 0)(a, b), -2 * np.outer(b - a @ x, x))
    batches = vmap(lambda a: np.linalg.lstsq(a, b, rcond=None))(np.stack([a, 2 * a]))
    close(batches[0][1], x / 2)
    assert batches[1].shape == (2, 1)
    with pytest.raises(errors.BatchError):  # the residuals of one are empty
        vmap(lambda a: np.linalg.lstsq(a, b, rcond=None))(np.stack([a, np.ones((6, 3))]))


@pytest.mark.parametrize("order", [None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf], ids=str)
def test_matrix_norms(order: Any) -> None:
    for x in (normal(3, 3), normal(2, 4), complexes(3, 2)):
        got = matrix_norm_vjp(np.array(1.0), x, order)
        close(got, gradient(lambda x: np.linalg.norm(x, order), [x])[0], 1e-7)
        assert not np.any(matrix_norm_vjp(np.array(1.0), 0 * x, order))
    close(np.trace(matrix_norm_vjp(np.array(1.0), np.eye(3), order)), np.linalg.norm(np.eye(3), order))


# ---------------------------------------------------------------- Cholesky, QR


def mp_cholesky(A: Any, weights: Any) -> Any:
    L = mpmath.cholesky(A)
    return mpmath.fsum([mpmath.mpf(weights[i, j]) * L[i, j] for i in range(A.rows) for j in range(i + 1)])


@pytest.mark.parametrize("n", [3, 6])
def test_cholesky_of_an_ill_conditioned_matrix(n: int) -> None:
    """Hilbert's matrices, against differences with sixty digits."""
    A = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1)
    w = normal(n, n)
    got = grad(lambda a: np.sum(w * np.linalg.cholesky((a + a.T) / 2)))(A)
    want = np.zeros((n, n))
    with mpmath.workdps(60):
        h = mpmath.mpf(10) ** -25
        for i, j in np.ndindex(n, n):
            ends = []
            for signed in (h, -h):
                B = mpmath.matrix(A.tolist())
                B[i, j] += signed / 2
                B[j, i] += signed / 2
                ends.append(mp_cholesky(B, w))
            want[i, j] = float((ends[0] - ends[1]) / (2 * h))
    error = np.max(np.abs(got - want)) / np.max(np.abs(want))
    assert error < 1e-15 * np.linalg.cond(A)


def test_functions_of_one_triangle_do_not_depend_on_the_other() -> None:
    A = normal(3, 3) + 5 * np.eye(3)
    for f, kept in (
        (lambda a: np.linalg.cholesky(a), np.tril),
        (lambda a: np.linalg.cholesky(a, upper=True), np.triu),
        (lambda a: np.linalg.eigvalsh(a), np.tril),
        (lambda a: np.linalg.eigvalsh(a, "U"), np.triu),
        (lambda a: np.linalg.eigh(a, UPLO="u")[0], np.triu),
    ):
        g = grad(lambda a, f=f: np.sum(f(a) ** 2))(A)
        close(g, kept(g))
        close(g, gradient(lambda a, f=f: np.sum(f(a) ** 2), [A])[0], 1e-7)


def test_log_determinant_by_cholesky() -> None:
    A = normal(4, 4) @ normal(4, 4).T + np.eye(4)
    f = lambda a: 2 * np.sum(np.log(np.diag(np.linalg.cholesky((a + a.T) / 2))))  # noqa: E731
    inverse = np.linalg.inv(A)
    close(grad(f)(A), inverse)
    second = -(np.einsum("ik,jl->ijkl", inverse, inverse) + np.einsum("il,jk->ijkl", inverse, inverse)) / 2
    close(hessian(f)(A), second)
    close(jacfwd(jacfwd(f))(A), second)


def test_qr_gives_back_the_matrix() -> None:
    for A in (normal(4, 3), normal(3, 3), normal(3, 5), complexes(4, 2), complexes(2, 4)):
        for mode in ("reduced", "complete"):
            product = lambda a, mode=mode: np.matmul(*np.linalg.qr(a, mode))  # noqa: E731
            t = normal(*A.shape, seed=9).astype(A.dtype)
            close(jvp(product, (A,), (t,))[1], t)
            close(vjp(product, A)[1](t)[0], t)


def test_qr_raw_is_refused() -> None:
    with pytest.raises(errors.NoRuleError, match="reduced"):
        grad(lambda a: np.sum(np.linalg.qr(a, mode="raw")[0]))(normal(3, 3))


# ---------------------------------------------------------------- eigenvalues, singular values

SPECTRA = [[1.0, 1.0, 1.0], [2.0, 2.0, 5.0], [0.0, 0.0, 0.0], [1.0, 1.0 + 1e-15, 2.0], [1.0, 1.0 + 1e-9, 2.0]]
ROTATION = np.linalg.qr(normal(3, 3))[0]


@pytest.mark.parametrize("spectrum", SPECTRA, ids=str)
@pytest.mark.parametrize("basis", [np.eye(3), ROTATION], ids=["diagonal", "rotated"])
def test_smooth_functions_of_a_spectrum_where_eigenvalues_meet(spectrum: list[float], basis: Any) -> None:
    A = basis * np.array(spectrum) @ basis.T
    symmetric = lambda a: (a + a.T) / 2  # noqa: E731
    cubes = {
        "eigvalsh": lambda a: np.sum(np.linalg.eigvalsh(symmetric(a)) ** 3),
        "eigh": lambda a: np.sum(np.linalg.eigh(symmetric(a))[0] ** 3),
        "eigh upper": lambda a: np.sum(np.linalg.eigh(symmetric(a), "U").eigenvalues ** 3),
        "svdvals": lambda a: np.sum(np.linalg.svdvals(a) ** 3),
        "svd": lambda a: np.sum(np.linalg.svd(a)[1] ** 3),
        "hermitian": lambda a: np.sum(np.linalg.svd(symmetric(a), hermitian=True)[1] ** 3),
    }
    for f in cubes.values():
        close(grad(f)(A), 3 * A @ A)
        close(jvp(f, (A,), (ROTATION,))[1], np.sum(3 * A @ A * ROTATION))
        close(vmap(grad(f))(np.stack([A, A]))[1], 3 * A @ A)


def test_eigenvectors_near_degeneracy() -> None:
    """A function of a matrix by its eigenvectors, whose derivative loses digits as the gap closes, but no more."""
    for gap in (1e-2, 1e-4, 1e-6):
        A = ROTATION * np.array([1.0, 1.0 + gap, 3.0]) @ ROTATION.T

        def square(a: Any) -> Any:
            w, v = np.linalg.eigh((a + a.T) / 2)
            return (v * w**2) @ v.T

        w = normal(3, 3)
        got = grad(lambda a, w=w: np.sum(w * square(a)))(A)
        s = (w + w.T) / 2
        close(got, A @ s + s @ A, 1e-14 / gap)


def test_eigenvectors_at_degeneracy_are_not_silently_wrong() -> None:
    w, x = normal(3, 3), np.diag([1.0, 1.0, 2.0])

    def exponential(a: Any) -> Any:
        values, v = np.linalg.eigh(a)
        return np.sum(w * ((v * np.exp(values)) @ v.T))

    with np.errstate(all="ignore"):
        with pytest.warns(errors.NaNWarning, match=r"the derivative of np\.linalg\.eigh, .*exponential"):
            assert not np.all(np.isfinite(grad(exponential)(x)))
        assert not np.isfinite(jvp(exponential, (x,), (ROTATION,))[1])
    assert np.all(np.isfinite(grad(lambda a: np.linalg.eigh(a)[0][2])(x)))


def test_eigenvalues_in_another_order() -> None:
    """From some size on np.linalg.eig and eigvals find them in different orders."""
    for A in (normal(4, 4), complexes(4, 4), complexes(130, 130)):
        close(grad(lambda a: np.real(np.sum(np.linalg.eigvals(a) ** 2)))(A), 2 * A.T, 1e-8)
    close(grad(lambda a: np.real(np.sum(np.linalg.eigvals(a) ** 2)))(np.eye(3)), 2 * np.eye(3))
    w = complexes(2, 5)
    order = np.array([[3, 1, 0, 2, 4], [4, 3, 2, 1, 0]])
    assert np.array_equal(order_of(np.take_along_axis(w, order, -1) + 1e-12, w), order)
    assert np.array_equal(order_of(np.ones(3), np.ones(3)), [0, 1, 2])


def test_eigenvalues_of_a_companion_matrix_are_roots() -> None:
    """The roots of x^2 - b x + c are (b +- sqrt(b^2 - 4 c)) / 2: real for one c, complex for another."""

    def largest(c: Any) -> Any:
        w = np.linalg.eigvals(np.stack([np.stack([3.0 + 0 * c, -c]), np.array([1.0, 0.0])]))
        return np.sum(np.real(w) ** 2 + np.imag(w) ** 2)

    close(grad(largest)(1.0), -2.0)  # 9 - 2 c
    close(grad(largest)(5.0), 2.0)  # 2 c


@pytest.mark.parametrize(
    "A",
    [np.outer(normal(4), normal(3)), np.zeros((2, 3)), np.diag([2.0, 2.0, 0.0]), normal(3, 1) @ normal(1, 4)],
    ids=str,
)
def test_singular_values_of_a_matrix_of_lower_rank(A: Any) -> None:
    for f in (
        np.linalg.svdvals,
        lambda a: np.linalg.svd(a)[1],
        lambda a: np.linalg.svd(a, full_matrices=False)[1],
        lambda a: np.linalg.svd(a, compute_uv=False),
    ):
        g = grad(lambda a, f=f: np.sum(f(a) ** 2))(A)
        close(g, 2 * A)  # the sum of their squares is that of all entries
        assert np.all(np.isfinite(jacfwd(f)(A)))
        assert np.all(np.isfinite(jacrev(f)(A)))


def test_singular_values_through_the_largest() -> None:
    A = normal(4, 3)
    u, _, vh = np.linalg.svd(A)
    close(grad(lambda a: np.linalg.svd(a, compute_uv=False)[0])(A), np.outer(u[:, 0], vh[0]))
    close(grad(lambda a: np.linalg.cond(a))(A), gradient(np.linalg.cond, [A])[0], 1e-7)


def test_polar_factor() -> None:
    """U V^H of a square matrix near a rotation: its derivative there is the antisymmetric part."""
    A = ROTATION @ np.diag([1.0, 1.1, 1.3])
    w = normal(3, 3)

    def polar(a: Any) -> Any:
        u, _, vh = np.linalg.svd(a)
        return np.sum(w * (u @ vh))

    def newton(a: Any) -> Any:
        for _ in range(10):
            a = (a + np.linalg.inv(a).T) / 2
        return np.sum(w * a)

    close(grad(polar)(A), grad(newton)(A), 1e-9)
    close(hessian(polar)(A), hessian(newton)(A), 1e-8)


# ---------------------------------------------------------------- Fourier transforms


def dft(n: int) -> Any:
    return np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)


@pytest.mark.parametrize("length", [4, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_transforms_are_matrices(length: int, n: int, norm: Any) -> None:
    scale = {"ortho": n**-0.5, "forward": 1 / n}.get(norm or "", 1.0)
    back = 1 / n / scale
    cut = np.eye(n, length)
    F = scale * dft(n) @ cut
    x, z = normal(length), complexes(length)
    ct, ct_half = complexes(n), complexes(n // 2 + 1)
    close(vjp(lambda x: np.fft.fft(x, n, norm=norm), z)[1](ct)[0], F.T @ ct)
    close(vjp(lambda x: np.fft.fft(x, n, norm=norm), x)[1](ct)[0], np.real(F.T @ ct))
    close(vjp(lambda x: np.fft.ifft(x, n, norm=norm), z)[1](ct)[0], (back / scale * np.conj(F)).T @ ct)
    close(vjp(lambda x: np.fft.rfft(x, n, norm=norm), x)[1](ct_half)[0], np.real(F[: n // 2 + 1].T @ ct_half))
    # irfft is linear in real and imaginary parts, which its matrix shows column by column.
    columns = [np.fft.irfft(e, n, norm=norm) for e in np.concatenate([np.eye(length), 1j * np.eye(length)])]
    real, imag = np.split(np.stack(columns) @ normal(n), 2)
    close(vjp(lambda x: np.fft.irfft(x, n, norm=norm), z)[1](normal(n))[0], real - 1j * imag)
    close(vjp(lambda x: np.fft.irfft(x, n, norm=norm), x)[1](normal(n))[0], real)


def test_transforms_keep_single_precision() -> None:
    x = normal(5).astype(np.float32)
    for fun in (np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft):
        out, pullback = vjp(lambda x, f=fun: f(x), x)
        assert pullback(np.ones_like(out))[0].dtype == np.float32


def test_transforms_refuse_what_numpy_refuses() -> None:
    with pytest.raises(ValueError, match="norm"):
        grad(lambda x: np.sum(np.fft.hfft(x, norm="other")))(normal(4))
    with pytest.raises(errors.InPlaceError, match="out"):
        grad(lambda x: np.sum(np.abs(np.fft.fft2(x, out=np.zeros((3, 3), complex)))))(normal(3, 3))
