"""Cases: products."""

import operator
from typing import Any

import numpy as np

from tests.cases import Case, complexes, normal

W, V, S = normal(3, 4, seed=7), normal(3, seed=7), normal(2, 3, 4, seed=7)  # plain arrays beside traced ones


def mixes(row: Any, shapes: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[Case]:
    """Make a case of each pair of shapes, one of them with a complex operand, and one of the same array twice."""
    found = [Case(row, row, (normal(*a), normal(*b, seed=1)), label=f"{a} {b}") for a, b in shapes]
    a, b = shapes[0]
    found += [
        Case(row, row, (complexes(*a), complexes(*b, seed=1)), label="complex"),
        Case(row, row, (normal(*a), complexes(*b, seed=1)), label="real, complex"),
        Case(row, row, (complexes(*a), normal(*b, seed=1)), label="complex, real"),
    ]
    return found


MATMUL = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 2, 3), (3,)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (3, 2)),
    ((2, 3), (2, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (3, 3, 1)),
    ((1, 2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (3, 2)),
    ((2, 3), (2, 2, 3, 1)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 2)),
    ((2, 0, 3), (3, 2)),
    ((1, 1), (1, 1)),
]
DOT = [*MATMUL[:4], ((2, 2, 3), (3,)), ((3,), (2, 3, 2)), ((2, 2, 3), (3, 2)), ((2, 3), (2, 3, 2))]
DOT += [((2, 1, 3), (2, 3, 2)), ((), ()), ((), (2, 3)), ((2, 3), ()), ((2, 0), (0, 3)), ((0, 3), (3,)), ((1,), (1,))]
INNER = [((2, 3), (4, 3)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 2, 3), (2, 3)), ((2, 3), (2, 2, 3))]
INNER += [((), ()), ((), (2, 3)), ((2,), ()), ((2, 0), (3, 0))]
OUTER = [((2,), (3,)), ((2, 2), (3,)), ((2,), (1, 3)), ((), (3,)), ((2,), ()), ((), ()), ((0,), (2,))]
VDOT = [((2, 3), (2, 3)), ((3,), (3,)), ((2, 3), (6,)), ((), ()), ((0,), (0,))]
VECDOT = [((2, 3), (2, 3)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 3)), ((0, 3), (3,))]
MATVEC = [
    ((2, 3), (3,)),
    ((2, 3), (4, 3)),
    ((4, 2, 3), (3,)),
    ((2, 1, 2, 3), (3, 3)),
    ((2, 3), (2, 2, 3)),
    ((0, 3), (3,)),
]
VECMAT = [
    ((3,), (3, 2)),
    ((4, 3), (3, 2)),
    ((3,), (4, 3, 2)),
    ((3, 3), (2, 1, 3, 2)),
    ((2, 2, 3), (3, 2)),
    ((3,), (3, 0)),
]
KRON = [
    ((2, 2), (2, 3)),
    ((2,), (3,)),
    ((2,), (2, 3)),
    ((2, 3), (2,)),
    ((2, 1, 2), (3, 2)),
    ((), ()),
    ((), (2, 3)),
    ((2,), ()),
]
CROSS = [((2, 3), (2, 3)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (3, 3)), ((0, 3), (3,))]

CASES = [
    *mixes(np.matmul, MATMUL),
    *mixes(np.dot, DOT),
    *mixes(np.inner, INNER),
    *mixes(np.outer, OUTER),
    *mixes(np.vdot, VDOT),
    *mixes(np.vecdot, VECDOT),
    *mixes(np.kron, KRON),
    *mixes(np.cross, CROSS),
    # operators, layouts, one operand alone, the same operand twice
    Case(operator.matmul, lambda x, y: x @ y, (normal(2, 3), normal(3, 2))),
    Case(operator.matmul, lambda x: W @ x, (normal(4, 2),), label="reflected"),
    Case(operator.matmul, lambda x: S @ x @ V, (normal(4, 3),), label="stack, vector"),
    Case(np.matmul, lambda x: np.matmul(x, W), (normal(2, 3),), label="left alone"),
    Case(np.matmul, lambda x: np.matmul(S, x), (normal(4, 2),), label="one matrix for a stack"),
    Case(np.matmul, lambda x: np.matmul(x, S), (normal(2, 3),), label="stack on the right"),
    Case(np.matmul, lambda x: np.matmul(x, x), (normal(3, 3),), label="itself"),
    Case(np.matmul, lambda x: np.matmul(x, x.T), (normal(2, 3),), label="its transpose"),
    Case(np.matmul, lambda x, y: np.matmul(x.T, y[::2, ::-1]), (normal(3, 2), normal(5, 2)), label="views"),
    Case(np.matmul, lambda x: np.matmul(np.broadcast_to(x, (2, 3)), W), (normal(3),), label="stretched"),
    Case(np.matmul, lambda x: np.matmul(np.sum(np.matmul(x, W)) * x, W), (normal(2, 3),), label="stretched cotangent"),
    Case(np.matmul, lambda x: np.matmul(x, W, dtype=np.complex128), (normal(2, 3),), label="dtype"),
    Case(np.matmul, lambda x: np.matmul(x, np.arange(3)), (normal(2, 3),), label="integers"),
    Case(np.dot, lambda x: np.dot(x, x), (normal(3),), label="itself"),
    Case(np.dot, lambda x: x.dot(W) @ x.dot(W).T, (normal(2, 3),), label="method"),
    Case(np.dot, lambda x: np.dot(W.T, x), (normal(3, 2),), label="right alone"),
    Case(np.dot, lambda x: np.dot(2.5, x) + np.dot(x, np.float64(3.0)), (normal(3),), label="numbers"),
    Case(np.dot, lambda x, y: np.dot(x.T, y[:, ::-1].T), (normal(3, 2), normal(4, 3)), label="views"),
    Case(np.inner, lambda x: np.inner(x, x), (normal(2, 3),), label="itself"),
    Case(np.outer, lambda x: np.outer(x, x), (complexes(3),), label="itself"),
    Case(np.outer, lambda x: np.outer(x, 2.0) + np.outer(x, [3.0]), (normal(3),), label="number, list"),
    Case(np.vdot, lambda x: np.vdot(x, x), (complexes(2, 2),), label="itself"),
    Case(np.vdot, lambda x: np.vdot(x, V), (complexes(3),), label="left alone"),
    Case(np.linalg.multi_dot, lambda *xs: np.linalg.multi_dot(xs), (normal(2, 3), normal(3, 1), normal(1, 2))),
    Case(
        np.linalg.multi_dot,
        lambda *xs: np.linalg.multi_dot([*xs[:2], W, *xs[2:]]),
        (normal(2), normal(2, 3), normal(4, 1), normal(1)),
        label="vectors, one of them plain",
    ),
    Case(np.linalg.multi_dot, lambda x, y: np.linalg.multi_dot([x, y]), (normal(3), normal(2, 3, 2)), label="two"),
    Case(np.linalg.multi_dot, lambda x: np.linalg.multi_dot([x, x.T, x]), (complexes(2, 3),), label="itself"),
    Case(np.linalg.multi_dot, lambda x, y: np.linalg.multi_dot([x, W, y]), (normal(1, 3), normal(4)), label="1, n"),
    Case(np.vecdot, lambda x, y: np.vecdot(x, y, axis=0), (complexes(3, 2), complexes(3)), label="axis"),
    Case(np.vecdot, lambda x, y: np.vecdot(x, y, axis=0), (normal(3), normal(3, 2, 2)), label="axis, fewer axes"),
    Case(np.vecdot, lambda x, y: np.vecdot(x, y, axis=1), (normal(2, 3, 2), normal(2, 3, 2, seed=1)), label="middle"),
    Case(np.vecdot, lambda x, y: np.vecdot(x, y, axis=-2), (normal(2, 3, 2), normal(3, 1)), label="axis from the end"),
    Case(np.vecdot, lambda x, y: np.vecdot(x, y, keepdims=True), (normal(2, 3), normal(3)), label="keepdims"),
    Case(
        np.vecdot,
        lambda x, y: np.vecdot(x, y, axis=1, keepdims=True),
        (normal(2, 3, 2), normal(1, 3, 2)),
        label="axis, keepdims",
    ),
    Case(np.vecdot, lambda x: np.vecdot(x, x), (complexes(2, 3),), label="itself"),
    # cross
    Case(np.cross, lambda x, y: np.cross(x, y, axis=0), (normal(3, 2), normal(3, 2)), label="axis 0"),
    Case(np.cross, lambda x, y: np.cross(x, y, axis=1), (normal(2, 3, 2), normal(1, 3, 2)), label="axis 1"),
    Case(np.cross, lambda x, y: np.cross(x, y, axisa=0, axisb=1), (normal(3, 2), normal(2, 3)), label="two axes"),
    Case(
        np.cross,
        lambda x, y: np.cross(x, y, axisa=1, axisb=0, axisc=0),
        (normal(2, 3, 2), normal(3)),
        label="three axes",
    ),
    Case(np.cross, lambda x: np.cross(x, x[::-1]), (normal(2, 3),), label="itself"),
    Case(np.cross, lambda x: np.cross(x, [0.0, 0.0, 1.0]), (normal(2, 3),), label="list"),
    # tensordot
    Case(np.tensordot, np.tensordot, (normal(2, 3, 2), normal(3, 2, 2))),
    *[
        Case(np.tensordot, lambda x, y, axes=axes: np.tensordot(x, y, axes), (normal(*a), normal(*b)), label=str(axes))
        for axes, a, b in [
            (1, (2, 3), (3, 2)),
            (0, (2,), (3,)),
            (-1, (2,), (3,)),
            (0, (), (2, 3)),
            (2, (2, 3), (2, 3)),
            ((1, 0), (2, 3), (3, 2)),
            ((-1, -1), (2, 3), (4, 3)),
            (([1], [0]), (2, 3, 2), (3, 2)),
            (([0, 2], [1, 0]), (2, 3, 4), (4, 2, 2)),
            (([2, 0], [-1, 0]), (2, 3, 4), (2, 3, 4)),
            (([2, 0, 1], [0, 1, 2]), (2, 3, 4), (4, 2, 3)),
            (((), ()), (2, 1), (3,)),
            (np.array([[1], [0]]), (2, 3), (3, 2)),
            (1, (2, 0), (0, 3)),
        ]
    ],
    Case(np.tensordot, lambda x, y: np.tensordot(x, y, axes=1), (complexes(2, 3), normal(3, 2)), label="complex, real"),
    Case(np.tensordot, lambda x: np.tensordot(x, x, axes=([0], [1])), (normal(2, 2, 2),), label="itself"),
    Case(np.tensordot, lambda x: np.tensordot(W, x, axes=([0], [1])), (normal(2, 3),), label="right alone"),
    # kron
    Case(np.kron, lambda x: np.kron(x, x), (complexes(2, 2),), label="itself"),
    Case(
        np.kron, lambda x: np.kron([[1.0, 0.0], [0.0, 2.0]], x) + np.kron(x, np.eye(2)), (normal(2, 3),), label="plain"
    ),
    # einsum
    *[
        Case(
            np.einsum,
            lambda *xs, s=subscripts: np.einsum(s, *xs),
            tuple([normal(*shape, seed=i) for i, shape in enumerate(shapes)]),
            label=subscripts,
        )
        for subscripts, *shapes in [
            ("ij,jk->ik", (2, 3), (3, 2)),
            ("ij,jk", (2, 3), (3, 2)),
            ("ba", (2, 3)),
            ("ij->", (2, 3)),
            ("ij->j", (2, 3)),
            ("i->i", (3,)),
            ("ii", (3, 3)),
            ("ii->i", (3, 3)),
            ("iij->j", (2, 2, 3)),
            ("ijij->ij", (2, 3, 2, 3)),
            ("iii->i", (2, 2, 2)),
            ("nd,nn->d", (2, 3), (2, 2)),
            ("ii,jj->ij", (2, 2), (3, 3)),
            ("i,i", (2,), (1,)),
            ("i,i->i", (1,), (3,)),
            ("i,i,i", (1,), (2,), (1,)),
            ("ij,jk->ik", (2, 1), (3, 2)),
            ("ii,i->i", (1, 1), (3,)),
            ("i,j->", (2,), (3,)),
            ("ij,k->i", (2, 3), (2,)),
            ("ij,j,k->ik", (2, 3), (3,), (2,)),
            ("a,ab,bc,cd->d", (2,), (2, 3), (3, 2), (2, 2)),
            ("...i,i", (2, 3), (3,)),
            ("i...->...", (2, 3)),
            ("i...,i->...", (2, 3, 2), (2,)),
            ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 1)),
            ("...,...", (2, 3), (2, 1, 3)),
            ("...ii->...i", (2, 3, 3)),
            ("i...j,...->...j", (2, 3, 2), (1,)),
            ("...", (2, 3)),
            ("ij...,jk...", (2, 3), (3, 2)),
            (" i j , j -> i ", (2, 3), (3,)),
            (",i->i", (), (3,)),
            (",", (), ()),
            ("ij,jk->ik", (2, 0), (0, 3)),
            ("i,i", (0,), (1,)),
        ]
    ],
    *[
        Case(
            np.einsum,
            lambda x, y, z, o=optimize: np.einsum("ij,jk,kk->ik", x, y, z, optimize=o),
            (normal(2, 3), normal(3, 2), normal(2, 2)),
            label=f"optimize={optimize}",
        )
        for optimize in (True, "greedy", "optimal", ["einsum_path", (0, 1), (0, 1)])
    ],
    Case(np.einsum, lambda x: np.einsum("...i->i", x, optimize=True), (normal(2, 3),), label="ellipsis summed out"),
    Case(np.einsum, lambda x: np.einsum("ij,kj,kl->il", x, x, x), (normal(3, 3),), label="itself"),
    Case(np.einsum, lambda x: np.einsum("ij,ik->jk", W, x), (normal(3, 2),), label="right alone"),
    Case(np.einsum, lambda x: np.einsum("i,ij,i->j", [1, 2, 3], x, V), (normal(3, 2),), label="lists and plain arrays"),
    Case(np.einsum, lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]), (normal(2, 3), normal(3, 2)), label="lists"),
    Case(
        np.einsum, lambda x, y: np.einsum(x, [5, 1], y, [1, 0]), (normal(2, 3), normal(3, 2)), label="lists, implicit"
    ),
    Case(np.einsum, lambda x: np.einsum(x, [30, 2]), (normal(2, 3),), label="lists, large labels"),
    Case(
        np.einsum,
        lambda x, y: np.einsum(x, (0, Ellipsis), y, [Ellipsis, 1, 1], [Ellipsis, 0, 1]),
        (normal(2, 3), normal(3, 2, 2)),
        label="lists, ellipsis",
    ),
    Case(np.einsum, lambda x, y: np.einsum("ij,jk->ik", x, y), (complexes(2, 3), complexes(3, 2)), label="complex"),
    Case(np.einsum, lambda x, y: np.einsum("ii,j->ij", x, y), (normal(2, 2), complexes(3)), label="real, complex"),
    Case(np.einsum, lambda x: np.einsum("ij->j", x, dtype=complex), (normal(2, 3),), label="dtype"),
    Case(np.einsum, lambda x, y: np.einsum("ij,kj", x.T, y[:, ::-1]), (normal(3, 2), normal(2, 3)), label="views"),
    # convolutions and polynomials
    *[
        Case(row, lambda a, v, row=row, mode=mode: row(a, v, mode), (make(m), make(n, seed=1)), label=f"{mode} {m} {n}")
        for row in (np.convolve, np.correlate)
        for mode, m, n, make in [
            *[
                (mode, m, n, normal)
                for mode in ("full", "same", "valid")
                for m, n in ((5, 3), (2, 5), (4, 2), (3, 3), (1, 4))
            ],
            ("same", 4, 1, complexes),
            ("full", 3, 2, complexes),
            ("valid", 2, 4, complexes),
            (1, 3, 6, normal),
        ]
    ],
    Case(np.convolve, np.convolve, (normal(), normal(3)), label="number"),
    Case(np.convolve, lambda a: np.convolve(a, [1.0, 2.0, 1.0]), (normal(4),), label="list"),
    Case(np.convolve, lambda a: np.convolve(V, a, "same"), (normal(4),), label="right alone"),
    Case(np.convolve, lambda a: np.convolve(a, a), (normal(3),), label="itself"),
    Case(np.convolve, np.convolve, (normal(3), complexes(2)), label="real, complex"),
    Case(np.correlate, lambda a, v: np.correlate(a, v, "same"), (normal(3), complexes(2)), label="real, complex"),
    Case(np.correlate, lambda a: np.correlate(a, a, "full"), (complexes(3),), label="itself"),
    Case(np.correlate, lambda a: np.correlate([1.0, 2.0], a, "full"), (normal(3),), label="list"),
    Case(np.polyval, np.polyval, (normal(4), normal(2, 2))),
    Case(np.polyval, np.polyval, (complexes(3), normal()), label="complex, real"),
    Case(np.polyval, lambda p: np.polyval(p, 0.5), (normal(3),), label="number"),
    Case(np.polyval, lambda x: np.polyval([1.0, 2.0, 3.0], x), (normal(2),), label="list"),
    # the names of the array API standard
    Case(np.linalg.matmul, np.linalg.matmul, (normal(2, 2, 3), normal(3, 2))),
    Case(np.linalg.outer, np.linalg.outer, (normal(2), normal(3))),
    Case(np.linalg.tensordot, lambda x, y: np.linalg.tensordot(x, y, axes=1), (normal(2, 3), normal(3, 2))),
    Case(np.linalg.tensordot, np.linalg.tensordot, (normal(2, 3), normal(2, 3)), label="default"),
    Case(np.linalg.vecdot, lambda x, y: np.linalg.vecdot(x, y, axis=0), (complexes(3, 2), complexes(3, 2))),
    Case(np.linalg.cross, lambda x, y: np.linalg.cross(x, y, axis=0), (normal(3, 2), normal(3, 2))),
    Case(np.linalg.matrix_transpose, np.linalg.matrix_transpose, (normal(2, 2, 3),)),
    Case(np.linalg.trace, lambda x: np.linalg.trace(x, offset=1), (normal(2, 3, 3),)),
    Case(np.linalg.diagonal, lambda x: np.linalg.diagonal(x, offset=-1), (normal(2, 3, 3),)),
]
if hasattr(np, "matvec"):
    CASES += [*mixes(np.matvec, MATVEC), *mixes(np.vecmat, VECMAT)]
