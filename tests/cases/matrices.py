"""Cases for rules/matrices.py and rules/factorisations.py.

Eigenvectors, singular vectors and what completes a basis have a free sign, phase or rotation: those cases return
expressions that do not depend on it.
"""

from typing import Any

import numpy as np

from meintorch.rules.matrices import cofactors, cofactors_slope
from tests.cases import Case, complexes, normal

eye = np.eye(3)
A, Z = normal(3, 3) + 3 * eye, complexes(3, 3) + 3 * eye
As, Zs = normal(2, 3, 3) + 3 * eye, complexes(2, 3, 3) + 3 * eye
tall, wide, tall_z, wide_z = normal(4, 2), normal(2, 4), complexes(4, 2), complexes(2, 4)
talls, wides_z = normal(2, 4, 2), complexes(2, 2, 4)
# Matrices whose eigenvalues or singular values are well apart.
apart = np.diag([1.0, 2.5, 4.5]) + 0.3 * normal(3, 3, seed=4)
apart_z = np.diag([1.0, 2.5, 4.5]) + 0.3 * complexes(3, 3, seed=4)
aparts = np.stack([apart, np.diag([5.0, 1.0, -2.0]) + 0.3 * normal(3, 3, seed=5)])
singular = np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 2.0]) + np.outer([0.3, -1.0, 1.0], [1.0, 0.2, 0.7])
rank_one = np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 2.0])


def mH(x: Any) -> Any:  # noqa: N802
    return np.conjugate(np.swapaxes(x, -1, -2))


def positive_definite(x: Any) -> Any:
    return x @ mH(x) + np.eye(x.shape[-1])


def projections(values: Any, left: Any, right: Any | None = None) -> list[Any]:
    """Return the values, and the sum of weighted products of vectors, which no phase changes."""
    weights = np.arange(1.0, left.shape[-1] + 1) ** 2
    return [values, (left * weights) @ mH(left if right is None else right)]


CASES = []
for a, b, label in (
    (A, normal(3), "vector"),
    (A, normal(3, 2), "matrix"),
    (As, normal(3), "stack, vector"),
    (As, normal(2, 3, 2), "stacks"),
    (A, normal(2, 3, 2), "one matrix, stack"),
    (As, normal(3, 2), "stack, one matrix"),
    (As[:, None], normal(4, 3, 2), "stacks that broadcast"),
    (Z, complexes(3), "complex vector"),
    (Z, normal(3, 2), "complex and real"),
    (A, complexes(3, 2), "real and complex"),
):
    CASES.append(Case(np.linalg.solve, np.linalg.solve, (a, b), label=label))
CASES += [
    Case(np.linalg.solve, lambda b: np.linalg.solve(A.tolist(), b), (normal(3),), label="matrix as a list"),
    Case(np.linalg.solve, lambda a: np.linalg.solve(a, [1.0, 2.0, 3.0]), (A,), label="vector as a list"),
]
for a, label in ((A, "real"), (Z, "complex"), (As, "stack"), (Zs, "complex stack")):
    CASES += [
        Case(np.linalg.inv, np.linalg.inv, (a,), label=label),
        Case(np.linalg.det, np.linalg.det, (a,), label=label),
        Case(cofactors, cofactors, (a,), label=label),
        Case(
            cofactors_slope,
            cofactors_slope,
            (a, Zs if a is Zs else As if a is As else Z if a is Z else A.T),
            label=label,
        ),
        Case(np.linalg.slogdet, lambda a: tuple(np.linalg.slogdet(a)), (a,), label=label),
        Case(np.linalg.cholesky, lambda a: np.linalg.cholesky(positive_definite(a)), (a,), label=label),
        Case(
            np.linalg.cholesky,
            lambda a: np.linalg.cholesky(positive_definite(a), upper=True),
            (a,),
            label=f"upper {label}",
        ),
        Case(np.linalg.qr, lambda a: tuple(np.linalg.qr(a)), (a,), label=label),
        Case(np.linalg.qr, lambda a: np.linalg.qr(a, "r"), (a,), label=f"r {label}"),
        Case(np.linalg.qr, lambda a: list(np.linalg.qr(a, mode="complete")), (a,), label=f"complete {label}"),
        Case(np.linalg.matrix_power, lambda a: np.linalg.matrix_power(a, 3), (a,), label=f"3 {label}"),
    ]
CASES += [
    Case(np.linalg.det, np.linalg.det, (singular,), label="singular"),
    Case(np.linalg.det, np.linalg.det, (rank_one,), label="rank one"),
    Case(np.linalg.det, np.linalg.det, (np.zeros((3, 3)),), label="zeros"),
    Case(np.linalg.det, np.linalg.det, (np.stack([A, singular, np.eye(3)]),), label="one of a stack singular"),
    Case(np.linalg.det, np.linalg.det, (normal(2, 2),), label="two by two"),
    Case(np.linalg.det, np.linalg.det, (normal(1, 1),), label="one by one"),
    Case(cofactors, cofactors, (singular,), label="singular"),
    Case(cofactors, cofactors, (rank_one,), label="rank one"),
    Case(cofactors, cofactors, (normal(1, 1),), label="one by one"),
    Case(cofactors_slope, cofactors_slope, (singular, A), label="singular"),
    Case(cofactors_slope, cofactors_slope, (rank_one, A), label="rank one"),
    Case(cofactors_slope, cofactors_slope, (normal(4, 4), normal(4, 4, seed=1)), label="four by four"),
    Case(cofactors_slope, cofactors_slope, (normal(2, 2), normal(2, 2, seed=1)), label="two by two"),
    Case(np.linalg.slogdet, lambda a: np.linalg.slogdet(a).logabsdet, (-A,), label="negative"),
    Case(np.linalg.slogdet, lambda a: np.linalg.slogdet(a).sign, (Z,), label="phase alone"),
    Case(
        np.linalg.cholesky, lambda a: np.linalg.cholesky(a), (np.tril(normal(3, 3)) + 4 * eye,), label="lower triangle"
    ),
    Case(
        np.linalg.cholesky, lambda a: np.linalg.cholesky(a, upper=True), (np.triu(A) + 4 * eye,), label="upper triangle"
    ),
]
for n in (0, 1, 2, 4, 5, 7, -1, -3):
    CASES.append(Case(np.linalg.matrix_power, lambda a, n=n: np.linalg.matrix_power(a, n), (A / 3,), label=str(n)))

for a, label in (
    (tall, "tall"),
    (wide, "wide"),
    (tall_z, "complex tall"),
    (wides_z, "complex wide stack"),
    (talls, "tall stack"),
):
    CASES += [
        Case(np.linalg.pinv, np.linalg.pinv, (a,), label=label),
        Case(np.linalg.qr, lambda a: tuple(np.linalg.qr(a)), (a,), label=label),
        Case(np.linalg.qr, lambda a: np.linalg.qr(a, mode="r"), (a,), label=f"r {label}"),
        Case(np.linalg.svdvals, np.linalg.svdvals, (a,), label=label),
        Case(np.linalg.svd, lambda a: np.linalg.svd(a, compute_uv=False), (a,), label=f"values {label}"),
        Case(np.linalg.cond, np.linalg.cond, (a,), label=label),
    ]
CASES += [
    Case(np.linalg.pinv, lambda a: np.linalg.pinv(a, rcond=1e-3), (A,), label="rcond"),
    Case(np.linalg.pinv, lambda a: np.linalg.pinv(a + a.T, hermitian=True), (A,), label="hermitian"),
    Case(
        np.linalg.pinv,
        lambda a: np.linalg.pinv(a, hermitian=True),
        (np.tril(Z) + mH(np.tril(Z)),),
        label="lower triangle",
    ),
    Case(np.linalg.pinv, lambda u, v: np.linalg.pinv(u @ v), (normal(4, 2), normal(2, 3)), label="rank two"),
]


def complete(a: Any) -> list[Any]:
    Q, R = np.linalg.qr(a, mode="complete")
    k = min(a.shape[-2:])
    return [R, Q[..., :k], Q[..., k:] @ mH(Q[..., k:])]


CASES += [Case(np.linalg.qr, complete, (a,), label="complete tall") for a in (tall, tall_z, talls, normal(3, 2))]

# ---------------------------------------------------------------- least squares

for a, b, label in (
    (tall, normal(4), "vector"),
    (tall, normal(4, 3), "matrix"),
    (wide, normal(2), "wide, vector"),
    (wide, normal(2, 3), "wide, matrix"),
    (tall_z, complexes(4), "complex vector"),
    (wide_z, complexes(2, 2), "complex wide"),
    (tall, complexes(4, 2), "real and complex"),
    (A, normal(3), "square"),
):
    CASES += [
        Case(np.linalg.lstsq, lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], (a, b), label=label),
        Case(np.linalg.lstsq, lambda a, b: np.linalg.lstsq(a, b)[::-1], (a, b), label=f"all {label}"),
    ]
CASES += [
    Case(np.linalg.lstsq, lambda a, b: np.linalg.lstsq(a, b, rcond=-1)[1], (tall, normal(4)), label="residual"),
    Case(np.linalg.lstsq, lambda a, b: np.linalg.lstsq(a, b, 0.01)[0], (tall, normal(4)), label="rcond"),
    Case(np.linalg.lstsq, lambda b: np.linalg.lstsq(singular, b, rcond=None)[0], (normal(3),), label="singular"),
    Case(
        np.linalg.lstsq,
        lambda u, v, b: np.linalg.lstsq(u @ v, b)[0],
        (normal(4, 2), normal(2, 3), normal(4)),
        label="rank two",
    ),
]

# ---------------------------------------------------------------- eigenvalues


def hermitian(x: Any) -> Any:
    return (x + mH(x)) / 2


for a, label in ((apart, "real"), (apart_z, "complex"), (aparts, "stack")):
    CASES += [
        Case(np.linalg.eigh, lambda a: projections(*np.linalg.eigh(hermitian(a))), (a,), label=label),
        Case(
            np.linalg.eigh, lambda a: projections(*np.linalg.eigh(a)), (hermitian(a),), label=f"lower triangle {label}"
        ),
        Case(np.linalg.eigh, lambda a: projections(*np.linalg.eigh(a, "U")), (hermitian(a),), label=f"upper {label}"),
        Case(np.linalg.eigvalsh, lambda a: np.linalg.eigvalsh(hermitian(a)), (a,), label=label),
        Case(np.linalg.eigvalsh, lambda a: np.linalg.eigvalsh(a, UPLO="L"), (hermitian(a),), label=f"lower {label}"),
        Case(np.linalg.eigvalsh, lambda a: np.linalg.eigvalsh(a, UPLO="u"), (hermitian(a),), label=f"upper {label}"),
    ]
turning = np.array([[0.5, -2.0, 0.3], [1.5, 0.2, 0.4], [0.1, -0.3, 3.0]])  # a pair of complex eigenvalues
for a, label in ((apart, "real"), (turning, "real, complex values"), (apart_z, "complex"), (aparts, "stack")):
    CASES += [
        Case(np.linalg.eig, lambda a: projections(*np.linalg.eig(a)), (a,), label=label),
        Case(np.linalg.eig, lambda a: np.linalg.eig(a).eigenvalues, (a,), label=f"values {label}"),
        Case(np.linalg.eigvals, np.linalg.eigvals, (a,), label=label),
    ]

# ---------------------------------------------------------------- singular values


def singular_vectors(a: Any, **options: Any) -> list[Any]:
    """Return the values, and what no common phase of a pair and no rotation of the rest changes."""
    U, s, Vh = np.linalg.svd(a, **options)
    k = s.shape[-1]
    outs = projections(s, U[..., :k], mH(Vh[..., :k, :]))
    outs += [projections(s, U[..., :k])[1], projections(s, mH(Vh[..., :k, :]))[1]]
    return [*outs, U[..., k:] @ mH(U[..., k:]), mH(Vh[..., k:, :]) @ Vh[..., k:, :]]


for a, label in (
    (apart, "real"),
    (apart_z, "complex"),
    (aparts, "stack"),
    (tall, "tall"),
    (wide, "wide"),
    (tall_z, "complex tall"),
    (wide_z, "complex wide"),
):
    CASES += [
        Case(np.linalg.svd, lambda a: singular_vectors(a, full_matrices=False), (a,), label=label),
        Case(np.linalg.svd, singular_vectors, (a,), label=f"full {label}"),
        Case(np.linalg.svd, lambda a: np.linalg.svd(a)[1], (a,), label=f"full, values {label}"),
    ]
CASES += [
    Case(np.linalg.svd, lambda a: singular_vectors(a, hermitian=True), (hermitian(apart_z),), label="hermitian"),
    Case(np.linalg.svd, lambda a: np.linalg.svd(a, False, False, True), (hermitian(apart),), label="hermitian values"),
]

# ---------------------------------------------------------------- norms, condition, tensors

for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
    CASES.append(Case(np.linalg.cond, lambda a, p=p: np.linalg.cond(a, p), (A,), label=str(p)))
CASES += [
    Case(np.linalg.cond, lambda a: np.linalg.cond(a, 1), (Zs,), label="complex stack"),
    Case(np.linalg.cond, lambda a: np.linalg.cond(a, "fro"), (Zs,), label="complex stack fro"),
    Case(np.linalg.tensorinv, lambda a: np.linalg.tensorinv(a, ind=1), (normal(4, 4, seed=2).reshape(4, 2, 2),)),
    Case(np.linalg.tensorinv, np.linalg.tensorinv, (normal(6, 6).reshape(2, 3, 3, 2),), label="two and two"),
    Case(np.linalg.tensorsolve, np.linalg.tensorsolve, (normal(4, 4, seed=2).reshape(2, 2, 4), normal(2, 2))),
    Case(
        np.linalg.tensorsolve,
        lambda a, b: np.linalg.tensorsolve(a, b, axes=(0, 2)),
        (normal(6, 6).reshape(2, 6, 3), normal(6)),
        label="axes",
    ),
    Case(np.linalg.vector_norm, np.linalg.vector_norm, (tall,)),
    Case(np.linalg.vector_norm, lambda x: np.linalg.vector_norm(x, axis=-1, ord=3), (tall_z,), label="axis, ord"),
    Case(
        np.linalg.vector_norm, lambda x: np.linalg.vector_norm(x, axis=(0, -1), keepdims=True), (talls,), label="axes"
    ),
    Case(np.linalg.vector_norm, lambda x: np.linalg.vector_norm(x, keepdims=True, ord=1), (talls,), label="keepdims"),
    Case(np.linalg.matrix_norm, np.linalg.matrix_norm, (talls,)),
    Case(np.linalg.matrix_norm, lambda x: np.linalg.matrix_norm(x, keepdims=True), (tall_z,), label="keepdims"),
]
