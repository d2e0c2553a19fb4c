"""Products against explicit sums over their entries."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.errors import NoRuleError
from meintorch.func import grad, vjp
from tests.cases import complexes, normal

Shape = tuple[int, ...]


def pulled_back(call: Callable[..., Any], *args: Any, seed: int = 5) -> tuple[Any, ...]:
    """Return a random cotangent, and what a call's operands get of it."""
    out, pullback = vjp(call, *args)
    g = normal(*np.shape(out), seed=seed)
    return g, *pullback(g if np.shape(out) else np.asarray(g))


def einsum_by_loops(inputs: list[str], out: str, g: Any, arrays: list[Any]) -> list[Any]:
    """Add up, index by index, what each entry of each operand contributes; axes of length one are stretched."""
    sizes: dict[str, int] = {}
    for sub, x in zip(inputs, arrays, strict=True):
        for c, n in zip(sub, x.shape, strict=True):
            sizes[c] = max(sizes.get(c, 1), n)
    cts = [np.zeros_like(x) for x in arrays]
    for values in itertools.product(*[range(n) for n in sizes.values()]):
        at = dict(zip(sizes, values, strict=True))
        places = [
            tuple([at[c] if n > 1 else 0 for c, n in zip(sub, x.shape, strict=True)])
            for sub, x in zip(inputs, arrays, strict=True)
        ]
        share = g[tuple([at[c] for c in out])]
        for k, ct in enumerate(cts):
            rest = np.prod([x[p] for j, (x, p) in enumerate(zip(arrays, places, strict=True)) if j != k])
            ct[places[k]] += share * rest
    return cts


# Each mix of vectors (1), matrices (2) and stacks (3) of np.matmul, as the sum that defines it.
MIXES: list[tuple[Shape, Shape, str, str, str]] = [
    ((3,), (3,), "k", "k", ""),
    ((3,), (3, 4), "k", "km", "m"),
    ((3,), (2, 3, 4), "k", "bkm", "bm"),
    ((2, 3), (3,), "nk", "k", "n"),
    ((2, 3), (3, 4), "nk", "km", "nm"),
    ((2, 3), (5, 3, 4), "nk", "bkm", "bnm"),
    ((5, 2, 3), (3,), "bnk", "k", "bn"),
    ((5, 2, 3), (3, 4), "bnk", "km", "bnm"),
    ((5, 2, 3), (5, 3, 4), "bnk", "bkm", "bnm"),
    ((5, 2, 3), (1, 3, 4), "bnk", "bkm", "bnm"),
    ((1, 2, 3), (5, 3, 4), "bnk", "bkm", "bnm"),
    ((2, 1, 2, 3), (5, 3, 4), "abnk", "bkm", "abnm"),
]


@pytest.mark.parametrize(("a", "b", "sub_a", "sub_b", "out"), MIXES, ids=str)
@pytest.mark.parametrize("order", ["C", "F", "reversed"])
def test_matmul_agrees_with_loops(a: Shape, b: Shape, sub_a: str, sub_b: str, out: str, order: str) -> None:
    x, y = normal(*a), normal(*b, seed=1)
    if order == "reversed":
        x, y = np.flip(x), np.flip(y)
    else:
        x, y = np.asarray(x, order=order), np.asarray(y, order=order)
    g, dx, dy = pulled_back(np.matmul, x, y)
    want_x, want_y = einsum_by_loops([sub_a, sub_b], out, g, [x, y])
    np.testing.assert_allclose(dx, want_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dy, want_y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("row", "a", "b", "sub_a", "sub_b", "out"),
    [
        (np.dot, (2, 3), (4, 3, 2), "ij", "kjm", "ikm"),
        (np.dot, (5, 2, 3), (4, 3, 2), "hij", "kjm", "hikm"),
        (np.dot, (5, 2, 3), (3,), "hij", "j", "hi"),
        (np.dot, (3,), (4, 3, 2), "j", "kjm", "km"),
        (np.dot, (), (2, 3), "", "ij", "ij"),
        (np.inner, (2, 3), (4, 3), "ij", "kj", "ik"),
        (np.inner, (5, 2, 3), (4, 3), "hij", "kj", "hik"),
        (np.inner, (3,), (4, 2, 3), "j", "klj", "kl"),
        (np.outer, (2,), (3,), "i", "j", "ij"),
        (np.vecdot, (5, 3), (3,), "bi", "i", "b"),
        (lambda x, y: np.tensordot(x, y, ([0, 2], [1, 0])), (2, 3, 4), (4, 2, 5), "ijk", "kim", "jm"),
        (lambda x, y: np.tensordot(x, y, ([-1, 0], [0, -1])), (2, 3, 4), (4, 5, 2), "ijk", "kmi", "jm"),
    ],
)
def test_other_products_agree_with_loops(row: Any, a: Shape, b: Shape, sub_a: str, sub_b: str, out: str) -> None:
    x, y = normal(*a), normal(*b, seed=1)
    g, dx, dy = pulled_back(row, x, y)
    want_x, want_y = einsum_by_loops([sub_a, sub_b], out, g, [x, y])
    np.testing.assert_allclose(dx, want_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dy, want_y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("text", "inputs", "out", "shapes"),
    [
        ("ii->i", ["ii"], "i", [(3, 3)]),
        ("ii", ["ii"], "", [(3, 3)]),
        ("iji->j", ["iji"], "j", [(2, 3, 2)]),
        ("iii->i", ["iii"], "i", [(2, 2, 2)]),
        ("nd,nn->d", ["nd", "nn"], "d", [(2, 3), (2, 2)]),
        ("ij->j", ["ij"], "j", [(2, 3)]),
        ("ij,k->", ["ij", "k"], "", [(2, 3), (2,)]),
        ("i,i", ["i", "i"], "", [(2,), (1,)]),
        ("ij,jk->ik", ["ij", "jk"], "ik", [(2, 1), (3, 2)]),
        ("i,i,i->", ["i", "i", "i"], "", [(1,), (3,), (1,)]),
        ("ii,i->i", ["ii", "i"], "i", [(1, 1), (3,)]),
        ("...i,i...", ["abi", "ib"], "ab", [(2, 3, 4), (4, 3)]),
        ("...i,i->...", ["abi", "i"], "ab", [(2, 3, 4), (4,)]),
        ("...ij,...j->...i", ["aij", "aj"], "ai", [(4, 2, 3), (1, 3)]),
        ("ba", ["ba"], "ab", [(2, 3)]),
        ("ij,jk,kl->il", ["ij", "jk", "kl"], "il", [(2, 3), (3, 2), (2, 4)]),
    ],
)
def test_einsum_agrees_with_loops(text: str, inputs: list[str], out: str, shapes: list[Shape], optimize: Any) -> None:
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    g, *cts = pulled_back(lambda *xs: np.einsum(text, *xs, optimize=optimize), *arrays)
    for ct, want in zip(cts, einsum_by_loops(inputs, out, g, arrays), strict=True):
        np.testing.assert_allclose(ct, want, rtol=1e-12, atol=1e-12)


def test_einsum_diagonal_keeps_infinite_entries_apart() -> None:
    x, c = np.ones((2, 2)), np.array([np.inf, 1.0])
    np.testing.assert_array_equal(grad(lambda x: np.sum(np.einsum("ii->i", x) * c))(x), [[np.inf, 0.0], [0.0, 1.0]])


def test_einsum_with_labels_gives_what_letters_give() -> None:
    x, y = normal(2, 3), normal(3, 3, seed=1)
    _, *letters = pulled_back(lambda x, y: np.einsum("ab,bb->ba", x, y), x, y)
    _, *labels = pulled_back(lambda x, y: np.einsum(x, [0, 1], y, [1, 1], [1, 0]), x, y)
    for a, b in zip(letters, labels, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_weight_matrix_in_a_batched_product_gets_its_sum_over_the_batch() -> None:
    x, w, c = normal(4, 2, 3), normal(3, 5), normal(4, 2, 5, seed=2)
    dw = grad(lambda w: np.sum(c * (x @ w)))(w)
    want = sum(np.outer(x[b, i], c[b, i]) for b in range(4) for i in range(2))
    np.testing.assert_allclose(dw, want, rtol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_sum_over_a_batch_is_not_kept_in_memory(side: str) -> None:
    """One product of flattened arrays: nothing of the size of a matrix for each element of the batch."""
    w = np.ones((50, 50))
    x = np.ones((400, 50, 1) if side == "left" else (400, 1, 50))
    f = (lambda w: np.sum(w @ x)) if side == "left" else (lambda w: np.sum(x @ w))
    grad(f)(w)
    tracemalloc.start()
    grad(f)(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * w.nbytes / 4


def test_complex_products_are_transposed_without_conjugation() -> None:
    """A pullback maps g to the g-weighted sum of partial derivatives of a holomorphic product."""
    x, y, g = complexes(2, 3), complexes(3, 2, seed=1), complexes(2, 2, seed=2)
    for call in (np.matmul, np.dot, lambda x, y: np.einsum("ij,jk->ik", x, y), lambda x, y: np.tensordot(x, y, 1)):
        dx, dy = vjp(call, x, y)[1](g)
        for i, j in itertools.product(range(2), range(3)):
            np.testing.assert_allclose(dx[i, j], sum(g[i, m] * y[j, m] for m in range(2)))
            np.testing.assert_allclose(dy[j, i], sum(g[n, i] * x[n, j] for n in range(2)))


@pytest.mark.parametrize("row", [np.vdot, np.vecdot])
def test_products_that_conjugate_their_first_operand(row: Any) -> None:
    """The real part of conj(z) * w is a real function whose derivative is df/dx - i df/dy."""
    z, w = complexes(3), complexes(3, seed=1)
    dz, dw = grad(lambda z, w: np.real(row(z, w)), argnums=(0, 1))(z, w)
    np.testing.assert_allclose(dz, np.conj(w))
    np.testing.assert_allclose(dw, np.conj(z))


def test_a_real_operand_of_a_complex_product_gets_real_derivatives() -> None:
    x, w = normal(3), complexes(3)
    dx = grad(lambda x: np.imag(np.dot(x, w)))(x)
    assert dx.dtype == np.float64
    np.testing.assert_allclose(dx, w.imag)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.complex64])
def test_precision_is_kept(dtype: Any) -> None:
    x, y = normal(2, 3).astype(dtype), normal(3, 2, seed=1).astype(dtype)
    calls = [np.matmul, np.dot, lambda x, y: np.einsum("ij,jk", x, y), np.kron, np.outer]
    for call in calls:
        for g in grad(lambda x, y, call=call: np.sum(np.real(call(x, y))), argnums=(0, 1))(x, y):
            assert g.dtype == dtype


def test_stretched_cotangents_give_plain_gradients() -> None:
    """The cotangent of a sum has strides of zero, which BLAS cannot take."""
    x, w = normal(3, 4), normal(4, 2)
    dx, dw = grad(lambda x, w: np.sum(x @ w), argnums=(0, 1))(x, w)
    np.testing.assert_allclose(dx, np.tile(w.sum(axis=1), (3, 1)))
    np.testing.assert_allclose(dw, np.tile(x.sum(axis=0)[:, None], (1, 2)))
    dx[0, 0], dw[0, 0] = 1.0, 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.matmul(x, np.ones((4, 2))),
        lambda x: np.matmul(np.ones((4, 3, 1)), x[None, :, :] * np.ones((3, 1, 1))),
        lambda x: np.dot(x, np.ones(2)),
        lambda x: np.inner(x, np.ones((2, 4))),
        lambda x: np.tensordot(x, np.ones((1, 2)), 1),
        lambda x: np.einsum("ij,jk", x, np.ones((4, 2))),
        lambda x: np.vecdot(x, np.ones(1)),
        lambda x: np.cross(x, np.ones((5, 3))),
        lambda x: np.linalg.outer(x, x),
        lambda x: np.linalg.cross(x[:, :2], x[:, :2]),
    ],
)
def test_shapes_that_do_not_match_are_numpys_error(call: Callable[[Any], Any]) -> None:
    x = normal(2, 3)
    said = r"mismatch|not aligned|broadcast|dimension"
    with pytest.raises(ValueError, match=said):
        call(x)
    with pytest.raises(ValueError, match=said):
        grad(lambda x: np.sum(call(x)))(x)


@pytest.mark.filterwarnings("ignore:Arrays of 2-dimensional vectors:DeprecationWarning")
@pytest.mark.parametrize(("m", "n"), [(2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("axis", [0, -1])
def test_cross_of_vectors_of_length_two(m: int, n: int, axis: int) -> None:
    """Their third component counts as 0, while NumPy still takes them."""
    x, y = np.moveaxis(normal(4, m), -1, axis), np.moveaxis(normal(4, n, seed=1), -1, axis)
    try:
        np.cross(x, y, axis=axis)
    except ValueError:
        pytest.skip("this NumPy refuses them")
    g, dx, dy = pulled_back(lambda x, y: np.cross(x, y, axis=axis), x, y)

    def long(v: Any) -> Any:
        rows = np.moveaxis(v, axis, -1)
        return np.concatenate([rows, np.zeros((4, 3 - rows.shape[-1]))], axis=-1)

    c = np.stack([0 * g, 0 * g, g], axis=-1) if m == n == 2 else np.moveaxis(g, axis, -1)
    a, b = long(x), long(y)
    levi = np.zeros((3, 3, 3))
    for i in range(3):
        levi[i, (i + 1) % 3, (i + 2) % 3], levi[i, (i + 2) % 3, (i + 1) % 3] = 1, -1
    want_x = np.moveaxis(np.einsum("kij,rk,rj->ri", levi, c, b)[:, :m], -1, axis)
    want_y = np.moveaxis(np.einsum("kij,rk,ri->rj", levi, c, a)[:, :n], -1, axis)
    np.testing.assert_allclose(dx, want_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dy, want_y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (4, 2), (2, 4), (4, 4), (3, 3), (1, 3), (6, 5)])
@pytest.mark.parametrize("row", [np.convolve, np.correlate])
def test_convolution_by_its_matrix(row: Any, m: int, n: int, mode: str) -> None:
    """A convolution with a given kernel is a matrix, which unit vectors show."""
    a, v = normal(m), normal(n, seed=1)
    g, da, dv = pulled_back(lambda a, v: row(a, v, mode), a, v)
    np.testing.assert_allclose(da, [g @ row(e, v, mode) for e in np.eye(m)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dv, [g @ row(a, e, mode) for e in np.eye(n)], rtol=1e-12, atol=1e-12)


def test_kron_agrees_with_loops() -> None:
    x, y = normal(2, 3), normal(3, 2, seed=1)
    g, dx, dy = pulled_back(np.kron, x, y)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(dx[i, j], np.sum(g[3 * i : 3 * i + 3, 2 * j : 2 * j + 2] * y))
    for k, m in np.ndindex(3, 2):
        np.testing.assert_allclose(dy[k, m], np.sum(g[k::3, m::2] * x))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_multi_dot_agrees_with_nested_dots(n: int) -> None:
    arrays = [normal(k + 1, k + 2, seed=k) for k in range(n)]

    def nested(*xs: Any) -> Any:
        out = xs[0]
        for x in xs[1:]:
            out = np.dot(out, x)
        return out

    _, *got = pulled_back(lambda *xs: np.linalg.multi_dot(xs), *arrays)
    _, *want = pulled_back(nested, *arrays)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_polyval_by_the_derivative_polynomial() -> None:
    p, x = normal(4), normal(3)
    dp, dx = grad(lambda p, x: np.sum(np.polyval(p, x)), argnums=(0, 1))(p, x)
    np.testing.assert_allclose(dx, np.polyval(np.polyder(p), x))
    np.testing.assert_allclose(dp, [np.sum(x**k) for k in (3, 2, 1, 0)])
    assert grad(lambda a: np.polyval([a, 1.0, 2.0], a))(2.0) == 3 * 2.0**2 + 1.0
    with pytest.raises(NoRuleError, match="poly1d"):
        grad(lambda p: np.polyval(p, np.poly1d([1.0, 2.0])))(p)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: np.matmul(x, y, axes=[(0, 1), (0, 1), (0, 1)]),
        lambda x, y: np.matmul(x, y, casting="unsafe"),
        lambda x, y: np.vecdot(x, y, axes=[0, 0, ()]),
        lambda x, y: np.einsum("ij,jk", x, y, casting="unsafe"),
    ],
)
def test_options_without_a_rule_are_refused(call: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(NoRuleError, match=r"option (axes|casting)="):
        grad(lambda x: np.sum(call(x, np.eye(2))))(np.eye(2))


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda x: np.inner(x, [4.0, 5.0]), [4.0, 5.0]),
        (lambda x: np.vdot([4.0, 5.0], x), [4.0, 5.0]),
        (lambda x: np.vecdot(x, [4.0, 5.0]), [4.0, 5.0]),
        (lambda x: np.outer([4.0, 5.0], x), [9.0, 9.0]),
        (lambda x: np.tensordot(x, [[4.0, 5.0], [6.0, 7.0]], 1), [9.0, 13.0]),
        (lambda x: np.kron([4.0, 5.0], x), [9.0, 9.0]),
        (lambda x: np.einsum("i,i", x, [4.0, 5.0]), [4.0, 5.0]),
        (lambda x: np.convolve(x, [4.0, 5.0]), [9.0, 9.0]),
        (lambda x: np.correlate(x, [4.0, 5.0]), [4.0, 5.0]),
        (lambda x: np.linalg.multi_dot([x, [[4.0, 5.0], [6.0, 7.0]], [1.0, 1.0]]), [9.0, 13.0]),
    ],
)
def test_lists_are_operands(call: Callable[[Any], Any], want: Any) -> None:
    np.testing.assert_allclose(grad(lambda x: np.sum(call(x)))(np.array([1.0, 2.0])), want)
