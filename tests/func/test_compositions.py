"""Any transform of any transform: each ordered pair by name, third derivatives, captured outer values."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import tree
from meintorch.func import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]

A = np.array([0.5, -1.0, 0.25])
C = np.array([0.3, 0.9, -0.4])
X = np.array([0.4, -0.7, 1.1])


def close(got: Any, want: Any, tolerance: float = 1e-11) -> None:
    assert isinstance(got, (np.ndarray, np.generic))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(want)


# ---------------------------------------------------------------- every ordered pair
#
# The inner transform is applied to a function whose derivatives are known, and that also captures the outer variable:
# `inside` computes it with the transform, `closed` is the same in plain NumPy without one. The outer transform is applied
# to `inside`, and compared with complex steps through `closed`, which are exact to rounding.


def f(x: Any) -> Any:
    return np.sum(A * x) ** 3 / 6 + np.sum(np.sin(x))


def df(x: Any) -> Any:
    return A * np.sum(A * x) ** 2 / 2 + np.cos(x)


def ddf(x: Any) -> Any:
    return np.outer(A, A) * np.sum(A * x) - np.diag(np.sin(x))


def v(x: Any) -> Any:
    return np.sin(x) * np.sum(A * x)


def jacobian_of_v(x: Any) -> Any:
    return np.diag(np.cos(x)) * np.sum(A * x) + np.outer(np.sin(x), A)


def s(x: Any) -> Any:
    """What the inner function captures of the outer variable."""
    return np.sum(np.cos(x)) + 0.5


def inside_vjp(x: Any) -> Any:
    out, pullback = vjp(lambda y: v(y) * s(x), x)
    return out, pullback(x * x)


def inside_linearize(x: Any) -> Any:
    out, pushforward = linearize(lambda y: v(y) * s(x), x)
    return out, pushforward(x * x)


INSIDE: dict[str, tuple[Function, Function]] = {
    "grad": (lambda x: grad(lambda y: f(y) * s(x))(x), lambda x: df(x) * s(x)),
    "value_and_grad": (
        lambda x: value_and_grad(lambda y: f(y) * s(x))(x),
        lambda x: (f(x) * s(x), df(x) * s(x)),
    ),
    "vjp": (inside_vjp, lambda x: (v(x) * s(x), jacobian_of_v(x).T @ (x * x) * s(x))),
    "jvp": (
        lambda x: jvp(lambda y: v(y) * s(x), (x,), (x * x,)),
        lambda x: (v(x) * s(x), jacobian_of_v(x) @ (x * x) * s(x)),
    ),
    "linearize": (inside_linearize, lambda x: (v(x) * s(x), jacobian_of_v(x) @ (x * x) * s(x))),
    "vmap": (
        lambda x: vmap(lambda e, c: e * v(x) + np.sin(c * e), (0, 0))(x, C),
        lambda x: np.outer(x, v(x)) + np.sin(C * x)[:, None],
    ),
    "jacrev": (lambda x: jacrev(lambda y: v(y) * s(x))(x), lambda x: jacobian_of_v(x) * s(x)),
    "jacfwd": (lambda x: jacfwd(lambda y: v(y) * s(x))(x), lambda x: jacobian_of_v(x) * s(x)),
    "hessian": (lambda x: hessian(lambda y: f(y) * s(x))(x), lambda x: ddf(x) * s(x)),
    "hvp": (lambda x: hvp(lambda y: f(y) * s(x), x, x * C), lambda x: ddf(x) @ (x * C) * s(x)),
}


def one_array(parts: Any) -> Any:
    """Return all leaves of a tree as one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in tree.leaves(parts)])


def one_number(h: Function) -> Function:
    def total(x: Any) -> Any:
        out = h(x)
        return np.sum(out * np.cos(np.arange(len(out))))

    return total


def complex_step(h: Function, x: Array) -> Array:
    """Return the Jacobian of an analytic function of a vector, exact to rounding."""
    return np.stack([np.imag(h(x + 1e-30j * e)) / 1e-30 for e in np.eye(len(x))], -1)


def second(h: Function, x: Array) -> Array:
    """Return the Hessian by fourth-order central differences of complex steps."""
    step = 1e-3
    rows = []
    for e in np.eye(len(x)):
        d = [complex_step(h, x + k * step * e) for k in (-2, -1, 1, 2)]
        rows.append((d[0] - 8 * d[1] + 8 * d[2] - d[3]) / (12 * step))
    return np.stack(rows)


# For each outer transform: apply it to `inside`, and what that should give, from `closed`; both functions of a vector.
T = np.array([1.0, -2.0, 0.5])


def cotangent(h: Function, x: Array) -> Array:
    return np.sin(np.arange(len(h(x))) + 1.0)


OUTSIDE: dict[str, tuple[Callable[[Function, Any], Any], Callable[[Function, Any], Any]]] = {
    "grad": (lambda h, x: grad(one_number(h))(x), lambda h, x: complex_step(one_number(h), x)),
    "value_and_grad": (
        lambda h, x: value_and_grad(one_number(h))(x),
        lambda h, x: (one_number(h)(x), complex_step(one_number(h), x)),
    ),
    "vjp": (
        lambda h, x: vjp(h, x)[1](cotangent(h, x))[0],
        lambda h, x: cotangent(h, x) @ complex_step(h, x),
    ),
    "jvp": (lambda h, x: jvp(h, (x,), (T,)), lambda h, x: (h(x), complex_step(h, x) @ T)),
    "linearize": (lambda h, x: linearize(h, x)[1](T), lambda h, x: complex_step(h, x) @ T),
    "vmap": (
        lambda h, x: vmap(h)(np.stack([x, x * x, x - 1])),
        lambda h, x: np.stack([h(x), h(x * x), h(x - 1)]),
    ),
    "jacrev": (lambda h, x: jacrev(h)(x), complex_step),
    "jacfwd": (lambda h, x: jacfwd(h)(x), complex_step),
    "hessian": (lambda h, x: hessian(one_number(h))(x), lambda h, x: second(one_number(h), x)),
    "hvp": (lambda h, x: hvp(one_number(h), x, T), lambda h, x: second(one_number(h), x) @ T),
}

PAIRS = list(itertools.product(OUTSIDE, INSIDE))
every_pair = pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=[f"{o}_of_{i}" for o, i in PAIRS])


@every_pair
def test_pair(outer: str, inner: str, engine: str) -> None:
    inside, closed = INSIDE[inner]
    apply, reference = OUTSIDE[outer]
    got = apply(lambda x: one_array(inside(x)), X.copy())
    want = reference(lambda x: one_array(closed(x)), X.copy())
    tolerance = 1e-9 if outer in ("hessian", "hvp") else 1e-11
    for g, w in zip(tree.leaves(got), tree.leaves(want), strict=True):
        close(g, w, tolerance)


@every_pair
def test_pair_keeps_single_precision(outer: str, inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A", "C", "T"):
        monkeypatch.setitem(globals(), name, globals()[name].astype(np.float32))
    inside, _ = INSIDE[inner]

    def h(x: Any) -> Any:
        return one_array(inside(x)) * np.float32(0.5)

    monkeypatch.setitem(globals(), "one_number", lambda h: lambda x: np.sum(h(x)))
    for leaf in tree.leaves(OUTSIDE[outer][0](h, X.astype(np.float32))):
        assert isinstance(leaf, (np.ndarray, np.generic))
        assert leaf.dtype == np.float32


# The same with numbers in place of arrays, where NumPy's scalars, Python's numbers and 0-d arrays meet.


def g(x: Any) -> Any:
    return x * x * np.sin(x)


def dg(x: Any) -> Any:
    return 2 * x * np.sin(x) + x * x * np.cos(x)


def ddg(x: Any) -> Any:
    return 2 * np.sin(x) + 4 * x * np.cos(x) - x * x * np.sin(x)


def scalar_linearize(x: Any) -> Any:
    return linearize(lambda y: g(y) * x, x)[1](x)


SCALAR_INSIDE: dict[str, tuple[Function, Function]] = {
    "grad": (lambda x: grad(lambda y: g(y) * x)(x), lambda x: dg(x) * x),
    "value_and_grad": (lambda x: sum(value_and_grad(lambda y: g(y) * x)(x)), lambda x: (g(x) + dg(x)) * x),
    "vjp": (lambda x: vjp(lambda y: g(y) * x, x)[1](x)[0], lambda x: dg(x) * x * x),
    "jvp": (lambda x: jvp(lambda y: g(y) * x, (x,), (x,))[1], lambda x: dg(x) * x * x),
    "linearize": (scalar_linearize, lambda x: dg(x) * x * x),
    "vmap": (
        lambda x: np.sum(vmap(lambda c: np.sin(c * x) + x)(C)),
        lambda x: np.sum(np.sin(C * x) + x),
    ),
    "jacrev": (lambda x: jacrev(lambda y: g(y) * x)(x), lambda x: dg(x) * x),
    "jacfwd": (lambda x: jacfwd(lambda y: g(y) * x)(x), lambda x: dg(x) * x),
    "hessian": (lambda x: hessian(lambda y: g(y) * x)(x), lambda x: ddg(x) * x),
    "hvp": (lambda x: hvp(lambda y: g(y) * x, x, x), lambda x: ddg(x) * x * x),
}


def slope(h: Function, x: Any) -> Any:
    return np.imag(h(x + 1e-30j)) / 1e-30


def curvature(h: Function, x: Any) -> Any:
    d = [slope(h, x + k * 1e-3) for k in (-2, -1, 1, 2)]
    return (d[0] - 8 * d[1] + 8 * d[2] - d[3]) / 12e-3


SCALAR_OUTSIDE: dict[str, tuple[Callable[[Function, Any], Any], Callable[[Function, Any], Any]]] = {
    "grad": (lambda h, x: grad(h)(x), slope),
    "value_and_grad": (lambda h, x: value_and_grad(h)(x), lambda h, x: (h(x), slope(h, x))),
    "vjp": (lambda h, x: vjp(h, x)[1](2.0)[0], lambda h, x: 2 * slope(h, x)),
    "jvp": (lambda h, x: jvp(h, (x,), (3,)), lambda h, x: (h(x), 3 * slope(h, x))),
    "linearize": (lambda h, x: linearize(h, x)[1](3), lambda h, x: 3 * slope(h, x)),
    "vmap": (lambda h, x: vmap(h)(np.array([x, 2 * x])), lambda h, x: np.array([h(x), h(2 * x)])),
    "jacrev": (lambda h, x: jacrev(h)(x), slope),
    "jacfwd": (lambda h, x: jacfwd(h)(x), slope),
    "hessian": (lambda h, x: hessian(h)(x), curvature),
    "hvp": (lambda h, x: hvp(h, x, 2.0), lambda h, x: 2 * curvature(h, x)),
}


@every_pair
def test_pair_of_scalars(outer: str, inner: str) -> None:
    inside, closed = SCALAR_INSIDE[inner]
    apply, reference = SCALAR_OUTSIDE[outer]
    tolerance = 1e-9 if outer in ("hessian", "hvp") else 1e-11
    want = reference(closed, 0.8)
    for x in (0.8, np.float64(0.8), np.array(0.8)):
        for got, w in zip(tree.leaves(apply(inside, x)), tree.leaves(want), strict=True):
            close(got, w, tolerance)


# ---------------------------------------------------------------- three deep


def fwd(h: Function) -> Function:
    return lambda x: jvp(h, (x,), (1.0,))[1]


def lin(h: Function) -> Function:
    return lambda x: linearize(h, x)[1](1.0)


MODES = {"fwd": fwd, "rev": grad}
TRIPLES = list(itertools.product(MODES, repeat=3))


@pytest.mark.parametrize("modes", TRIPLES, ids=["_".join(t) for t in TRIPLES])
def test_third_derivatives_of_numbers(modes: tuple[str, ...]) -> None:
    cases: list[tuple[Function, float, float]] = [
        (np.sin, 0.7, -np.cos(0.7)),
        (np.exp, 0.7, np.exp(0.7)),
        (lambda x: x**5, 1.3, 60 * 1.3**2),
        (lambda x: 1 / x, 1.3, -6 / 1.3**4),
        (np.log, 1.3, 2 / 1.3**3),
        (np.sqrt, 1.3, 0.375 * 1.3**-2.5),
        (lambda x: np.where(x > 0, x**4, 0.0), 2.0, 48.0),
        (lambda x: np.prod(np.stack([x, x, x, 2.0])), 0.0, 12.0),
        (lambda x: np.linalg.norm(np.stack([x, x])) ** 3, 1.0, 6 * 2**1.5),
        (lambda x: np.tanh(x), 0.3, -2 * (1 - np.tanh(0.3) ** 2) * (1 - 3 * np.tanh(0.3) ** 2)),
    ]
    for h, x, want in cases:
        derivative = h
        for mode in modes:
            derivative = MODES[mode](derivative)
        close(derivative(x), want, 1e-10)


@pytest.mark.parametrize("modes", TRIPLES, ids=["_".join(t) for t in TRIPLES])
def test_third_derivatives_of_arrays(modes: tuple[str, ...]) -> None:
    h: Function = lambda x: np.sum(A * x) ** 3 + np.sum(np.sin(x))  # noqa: E731
    for mode in modes:
        h = {"fwd": jacfwd, "rev": jacrev}[mode](h)
    want = 6 * np.einsum("i,j,k->ijk", A, A, A)
    for i in range(3):
        want[i, i, i] -= np.cos(X[i])
    close(h(X), want)
    close(vmap(h)(np.stack([X, X]))[1], want)


@pytest.mark.parametrize("kinds", list(itertools.product(["fwd", "rev", "lin", "map"], repeat=3)), ids="_".join)
def test_three_deep_with_captured_values(kinds: tuple[str, ...]) -> None:
    """Each level multiplies with the variables of all levels outside it; a confused one gives another number."""

    def over(kind: str, h: Function, x: Any) -> Any:
        if kind == "map":  # no derivative: h of a captured variable, inside a batch
            return vmap(lambda e: h(x) * e)(np.array([2.0, 3.0]))[1] / 3.0
        return {"fwd": fwd, "rev": grad, "lin": lin}[kind](h)(x)

    def program(x: Any) -> Any:
        return over(
            kinds[0],
            lambda u: u * over(kinds[1], lambda v: v * v * u * over(kinds[2], lambda w: w**3 * v * u * x, v), u),
            x,
        )

    x = 1.1
    power, factor = 0, 1.0  # of the level's variable; x itself is a constant for every level
    for kind, more in zip(reversed(kinds), (3, 3, 3), strict=True):
        power += more  # w**3; then v**2 and the v inside; then u and the two u inside
        if kind != "map":
            power, factor = power - 1, factor * power
    close(program(x), factor * x ** (power + 1))


# ---------------------------------------------------------------- captured outer values


DERIVATIVES = {"fwd": fwd, "rev": grad, "lin": lin, "jacfwd": jacfwd, "jacrev": jacrev}
each_d = pytest.mark.parametrize("d", DERIVATIVES.values(), ids=DERIVATIVES)
each_e = pytest.mark.parametrize("e", DERIVATIVES.values(), ids=[f"of_{name}" for name in DERIVATIVES])


@each_d
@each_e
def test_perturbation_confusion(d: Any, e: Any) -> None:
    close(d(lambda x: x * e(lambda y: x + y)(1.0))(1.0), 1.0)
    close(d(lambda x: x * e(lambda y: x * y)(2.0))(1.0), 2.0)
    close(d(lambda x: e(lambda y: y * (x - y))(x))(1.0), -1.0)  # at the outer variable
    close(d(lambda x: e(lambda y: x * x * y * y)(3.0))(2.0), 24.0)
    close(d(lambda x: e(lambda y: x)(x) + x)(2.0), 1.0)  # the inner function ignores its own variable
    close(d(lambda x: e(lambda y: y)(x) + x)(2.0), 1.0)  # or returns it
    close(d(lambda x: e(lambda y: e(lambda z: x * y * z * z)(x))(x) * x)(2.0), 24.0)


@each_d
def test_a_function_that_returns_a_function_of_the_outer_variable(d: Any) -> None:
    """The classic that shared tags get wrong: the derivative of a curried function."""

    def shift(x: Any) -> Any:
        return lambda h: lambda y: h(x + y)

    close(d(lambda x: shift(x)(lambda y: d(lambda z: z**3)(y))(1.0))(2.0), 6 * 3.0)


def test_inside_vmap_the_inner_function_captures_batched_arrays() -> None:
    x = np.arange(6.0).reshape(2, 3) + 1
    for d in (jacrev, jacfwd):
        got = vmap(lambda e, d=d: d(lambda y: y * e * np.sum(e))(C), (0,))(x)
        close(got, np.stack([np.diag(e * np.sum(e)) for e in x]))
    close(vmap(lambda e: grad(lambda y: np.sum(y**2 * e))(e))(x), 2 * x**2)
    close(vmap(lambda e: hvp(lambda y: np.sum(y**3) * e[0], C, e))(x), 6 * C * x * x[:, :1])
    close(vmap(lambda e: jvp(lambda y: y * y, (C,), (e,))[1])(x), 2 * C * x)
    close(vmap(lambda e: vjp(lambda y: y * y, C)[1](e)[0])(x), 2 * C * x)
    close(vmap(lambda e: linearize(lambda y: y * y, C)[1](e))(x), 2 * C * x)


def test_vmap_inside_grad_inside_vmap() -> None:
    y, scales = np.arange(4.0) + 1, np.array([1.0, 2.0])

    def per_scale(s: Any) -> Any:
        return grad(lambda x: np.sum(vmap(lambda e: e * e * s * x[0])(x)))(y)

    want = np.stack([s * (2 * y * y[0] + np.sum(y**2) * (np.arange(4) == 0)) for s in scales])
    close(vmap(per_scale)(scales), want)


def test_grad_inside_vmap_inside_grad() -> None:
    def total(w: Any) -> Any:
        return np.sum(vmap(lambda x: grad(lambda y: np.sum(y**3) * w)(x * w))(X))  # 3 x^2 w^3

    close(grad(total)(2.0), 9 * np.sum(X**2) * 4.0)
    close(jacfwd(total)(2.0), 9 * np.sum(X**2) * 4.0)
    close(grad(grad(total))(2.0), 18 * np.sum(X**2) * 2.0)


def test_a_map_that_is_used_outside_the_trace_that_made_it() -> None:
    _, pullback = vjp(lambda x: x**3, 2.0)
    _, pushforward = linearize(lambda x: x**3, 2.0)
    for linear in (lambda t: pullback(t)[0], pushforward):
        close(linear(1.0), 12.0)
        close(grad(lambda t, linear=linear: linear(t) * t)(3.0), 72.0)
        close(jvp(linear, (3.0,), (2.0,))[1], 24.0)
        close(vmap(linear)(np.arange(3.0)), 12 * np.arange(3.0))
        close(hessian(lambda t, linear=linear: linear(t) ** 2)(3.0), 288.0)
    close(
        vmap(linearize(lambda x: np.outer(x, x), X)[1])(np.eye(3))[1],
        np.outer(X, np.eye(3)[1]) + np.outer(np.eye(3)[1], X),
    )


def test_a_map_made_under_an_outer_trace() -> None:
    def by_vjp(x: Any) -> Any:
        out, pullback = vjp(lambda y: y * y * x, x)
        return pullback(out)[0]  # 2 x^2 times x^3

    def by_linearize(x: Any) -> Any:
        out, pushforward = linearize(lambda y: y * y * x, x)
        return pushforward(out)

    for h, d in itertools.product((by_vjp, by_linearize), (grad, fwd, lin, jacrev)):
        close(d(h)(2.0), 10 * 16.0)
        close(d(d(h))(2.0), 40 * 8.0)
        close(vmap(d(h))(np.array([1.0, 2.0])), [10.0, 160.0])


@each_d
def test_outer_values_as_indices_conditions_lists_and_keywords(d: Any) -> None:
    table = np.array([1.0, 10.0, 100.0])
    close(d(lambda x: d(lambda y: y * table[int(x)])(1.0) * x)(2.0), 100.0)
    close(d(lambda x: np.sum(d(lambda y: np.where(x > 1, x * y, y))(3.0)))(2.0), 1.0)
    close(d(lambda x: d(lambda y: np.sum(np.stack([x, y, x * y])))(3.0))(2.0), 1.0)
    close(d(lambda x: d(lambda y: np.concatenate([[1.0], np.stack([x, y])])[2] * x)(3.0))(2.0), 1.0)
    close(d(lambda x: d(lambda y: np.clip(y, 0.0, x) * x)(3.0))(2.0), 0.0)
    close(d(lambda x: grad(lambda y, k=1.0: y * k)(3.0, k=x))(2.0), 1.0)
    close(d(lambda x: d(lambda y: y**x)(3.0))(2.0), 3.0 + 2 * 3.0 * np.log(3.0))


def test_outer_values_as_indices_and_conditions_in_a_batch() -> None:
    table = np.array([1.0, 10.0, 100.0])
    close(vmap(lambda x: grad(lambda y: np.where(x > 1, x * y, y))(3.0))(np.array([0.5, 2.0])), [1.0, 2.0])
    close(vmap(lambda x: grad(lambda y: np.clip(y, 0.0, x) * x)(1.0))(np.array([0.5, 2.0])), [0.0, 2.0])
    close(vmap(lambda i: grad(lambda y: (y * table)[i] * y)(3.0))(np.array([0, 2])), [6.0, 600.0])
    close(grad(lambda x: np.sum(vmap(lambda c: np.where(c > x, c * x, c))(np.arange(4.0))))(1.5), 5.0)
    close(grad(lambda x: np.sum(vmap(lambda c, k: c * k)(np.arange(3.0), k=np.stack([x, x, x]))))(1.5), 3.0)


@each_d
def test_an_outer_value_as_a_keyword_that_numpy_does_not_dispatch_on(d: Any) -> None:
    close(d(lambda x: d(lambda y: np.sum(y * np.ones(2), initial=x) * x)(3.0))(2.0), 2.0)
    close(vmap(lambda x: d(lambda y: np.sum(y * np.ones(2), initial=x) * x)(3.0))(X), 2 * X)


def test_outer_values_in_dataclasses_and_dicts() -> None:
    @dataclasses.dataclass
    class Model:
        w: Any
        scale: Any
        name: str = "m"

    def outer(x: Any) -> Any:
        g = grad(lambda m: np.sum(m.w**2) * m.scale * x)(Model(np.stack([x, 1.0]), x))
        assert g.name == "m"
        d = jvp(lambda p: {"y": p["a"] * x, "none": None}, ({"a": x},), ({"a": x},))[1]
        return g.scale + np.sum(g.w) + d["y"]  # (x^2 + 1) x + 2 (x + 1) x^2 + x^2

    for d in (fwd, grad, lin):
        close(d(outer)(2.0), 3 * 4.0 + 1 + 6 * 4.0 + 4 * 2.0 + 2 * 2.0)


def test_generators_that_live_across_levels() -> None:
    def powers(x: Any) -> Any:
        y = x
        while True:
            y = y * x
            yield y

    for d, e in itertools.product((fwd, grad, lin), repeat=2):

        def h(x: Any, e: Any = e) -> Any:
            steps = powers(x)
            next(steps)
            inner = e(lambda z: next(steps) * z)(2.0)  # x^3
            return inner * next(steps)  # x^7

        close(d(h)(2.0), 7 * 2.0**6)


def test_an_exception_in_an_inner_level_leaves_the_outer_one_intact() -> None:
    def fail(y: Any) -> Any:
        raise ZeroDivisionError

    def h(x: Any) -> Any:
        total = x * x
        for d in (grad, fwd, lin, lambda k: lambda z: vmap(k)(np.ones(2))):
            try:
                d(lambda y: fail(y * x))(x)
            except ZeroDivisionError:
                total = total + x
        return total

    for d in (grad, fwd, lin):
        close(d(h)(3.0), 10.0)
    close(vmap(h)(np.array([3.0])), [21.0])


def test_recursion_through_levels() -> None:
    def deep(n: int, x: Any) -> Any:
        return x * x if n == 0 else (fwd if n % 2 else grad)(lambda y: deep(n - 1, y) * y)(x)

    # multiplying with y and differentiating keeps c y^2 quadratic: c becomes 3 c
    close(deep(6, 2.0), 3.0**6 * 4.0)
    close(vmap(lambda x: deep(3, x))(np.array([1.0, 2.0])), [27.0, 108.0])


def test_an_implicit_function() -> None:
    """Newton steps on an inner derivative, differentiated from outside: x(a) with x^2 = a."""

    def root(a: Any) -> Any:
        x = 1.0
        for _ in range(8):
            r, slope = value_and_grad(lambda x: x * x - a)(x)
            x = x - r / slope
        return x

    for d in (grad, fwd, lin):
        close(d(root)(2.0), 0.5 / np.sqrt(2.0))
        close(d(d(root))(2.0), -0.25 * 2.0**-1.5)
    close(vmap(grad(root))(np.array([2.0, 3.0])), 0.5 / np.sqrt([2.0, 3.0]))


def test_gradient_descent_is_differentiated() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum((w * x - 1) ** 2)

    def after(rate: Any) -> Any:
        w = np.zeros(3)
        for _ in range(3):
            w = w - rate * grad(loss)(w, X)
        return loss(w, X)

    closed = lambda rate: np.sum((1 - 2 * rate * X**2) ** 6)  # noqa: E731
    close(after(0.1), closed(0.1))
    for d in (grad, fwd, lin, jacrev):
        close(d(after)(0.1), slope(closed, 0.1))


def test_per_example_jacobians_and_hessians_in_chunks(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 3))
    close(vmap(jacrev(v, chunk_size=2), chunk_size=2)(x), np.stack([jacobian_of_v(e) for e in x]))
    close(vmap(jacfwd(v, chunk_size=2), chunk_size=2)(x), np.stack([jacobian_of_v(e) for e in x]))
    close(vmap(hessian(f, chunk_size=2), chunk_size=3)(x), np.stack([ddf(e) for e in x]))
    close(vmap(jacobian(v), 1, -1)(x.T), np.stack([jacobian_of_v(e) for e in x], -1))


# ---------------------------------------------------------------- stop_gradient

STOPPED: dict[str, tuple[Callable[[], Any], Any]] = {
    "grad": (lambda: grad(lambda x: x * stop_gradient(x))(3.0), 3.0),
    "value_and_grad": (lambda: value_and_grad(lambda x: x * stop_gradient(x))(3.0)[1], 3.0),
    "vjp": (lambda: vjp(lambda x: x * stop_gradient(x * x), 3.0)[1](2.0)[0], 18.0),
    "jvp": (lambda: jvp(lambda x: x * stop_gradient(x), (3.0,), (2.0,))[1], 6.0),
    "linearize": (lambda: linearize(lambda x: x * stop_gradient(x), 3.0)[1](2.0), 6.0),
    "vmap": (lambda: vmap(lambda x: x * stop_gradient(x))(X), X * X),
    "jacrev": (lambda: jacrev(lambda x: x * stop_gradient(np.sum(x)))(X), np.eye(3) * np.sum(X)),
    "jacfwd": (lambda: jacfwd(lambda x: x * stop_gradient(np.sum(x)))(X), np.eye(3) * np.sum(X)),
    "hessian": (lambda: hessian(lambda x: np.sum(x**3) * stop_gradient(x[0]))(X), np.diag(6 * X) * X[0]),
    "hvp": (lambda: hvp(lambda x: np.sum(x**3 * stop_gradient(x)), X, C), 6 * X * X * C),
    "vmap_of_grad": (lambda: vmap(grad(lambda x: x**2 * stop_gradient(x)))(X), 2 * X**2),
    "vmap_of_jvp": (lambda: vmap(lambda x: jvp(lambda y: y**2 * stop_gradient(y), (x,), (1.0,))[1])(X), 2 * X**2),
    "grad_of_vmap": (lambda: grad(lambda x: np.sum(vmap(lambda y: y**2 * stop_gradient(y))(x)))(X), 2 * X**2),
    "jvp_of_grad": (lambda: hvp(lambda x: np.sum(x**2 * stop_gradient(x)), X, C), 2 * X * C),
    "grad_of_grad_of_the_outer_variable": (
        lambda: grad(lambda x: grad(lambda y: y * stop_gradient(x * y))(x) + x)(3.0),
        1.0,
    ),
    "all_of_it": (lambda: grad(lambda x: stop_gradient(x) * 2.0)(3.0), 0.0),
    "all_of_it_forward": (lambda: jvp(lambda x: stop_gradient(x) * 2.0, (3.0,), (1.0,))[1], 0.0),
}


@pytest.mark.parametrize("name", STOPPED)
def test_stop_gradient_under(name: str) -> None:
    call, want = STOPPED[name]
    close(call(), want)


@each_d
@each_e
def test_stop_gradient_of_the_outer_variable_only(d: Any, e: Any) -> None:
    """What is constant for all levels cannot depend on any: the value of the outer variable passes, not its change."""
    close(d(lambda x: e(lambda y: y * y * stop_gradient(x))(x))(3.0), 6.0)
    close(d(lambda x: stop_gradient(e(lambda y: y**3)(x)) * x)(3.0), 27.0)


def test_stop_gradient_inside_a_batch_stays_a_batch() -> None:
    close(vmap(lambda x: stop_gradient({"a": x, "b": [x * 2]})["b"][0])(X), 2 * X)
    close(vmap(lambda x: np.where(stop_gradient(x) > 0, x, -x))(X), np.abs(X))
    close(vmap(lambda x: grad(lambda y: y * stop_gradient(y * x))(2.0))(X), 2 * X)
