"""custom_vjp, custom_jvp, primitive, checkpoint."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.core.batching import elementwise_batch
from meintorch.func import (
    checkpoint,
    custom_jvp,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    primitive,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from meintorch.tensor import Tensor

X = np.array([0.5, 1.0, -2.0])


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- custom_vjp: a rule that is wrong on purpose, so that it shows


@custom_vjp
def cube(x: Any, n: Any) -> Any:
    """Return n x**3."""
    return n * x**3


cube.defvjp(lambda x, n: (cube(x, n), (x, n)), lambda saved, ct: (10.0 * saved[1] * saved[0] ** 2 * ct, None))


def test_custom_vjp_is_used_to_any_order() -> None:
    assert cube(2.0, 4) == 32.0
    close(grad(cube)(2.0, 4), 160.0)
    close(grad(grad(cube))(2.0, 4), 160.0)
    close(grad(grad(grad(cube)))(2.0, 4), 80.0)
    close(grad(lambda x: np.sum(cube(np.sin(x), 1)))(X), 10 * np.sin(X) ** 2 * np.cos(X))


def test_custom_vjp_under_the_other_transforms() -> None:
    close(vmap(grad(cube), (0, None))(X, 2), 20 * X**2)
    close(grad(lambda x: np.sum(vmap(lambda y: cube(y, 2))(x)))(X), 20 * X**2)
    close(vmap(lambda x: cube(x, 2))(X), 2 * X**3)
    close(jacrev(lambda x: cube(x, 1))(X), np.diag(10 * X**2))
    close(hvp(lambda x: np.sum(cube(x, 1)), X, np.ones(3)), 20 * X)
    close(vmap(grad(grad(cube)), (0, None))(X, 1), 20 * X)
    close(grad(lambda n: grad(cube)(2.0, n))(3.0), 40.0)
    close(grad(checkpoint(lambda x: np.sum(cube(x, 1))))(X), 10 * X**2)


def test_custom_vjp_in_the_object_style() -> None:
    x = Tensor(X)
    y = cube(x * 1.0, 1)
    y.backward()
    close(x.grad, 10 * X**2)


def test_custom_vjp_keyword_arguments_are_positional_ones() -> None:
    close(grad(lambda x: cube(n=3, x=x))(2.0), 120.0)


def test_custom_vjp_static_arguments() -> None:
    @custom_vjp
    def unused(x: Any) -> Any:
        return x

    def power(f: Any, x: Any, name: str) -> Any:
        assert name == "cube"
        return f(x) ** 3

    ruled = custom_vjp(power, nondiff_argnums=(0, -1))
    ruled.defvjp(lambda f, x, name: (f(x) ** 3, x), lambda f, name, x, ct: (7.0 * f(x) * ct,))
    close(grad(lambda x: ruled(np.sin, x, "cube"))(0.5), 7 * np.sin(0.5))
    with pytest.raises(errors.RowError, match=r"defvjp"):
        unused(1.0)


def test_custom_vjp_of_trees() -> None:
    @custom_vjp
    def f(p: Any, x: Any) -> Any:
        return {"out": p["a"] * x, "n": 3}

    f.defvjp(
        lambda p, x: (f(p, x), (p, x)),
        lambda saved, ct: ({"a": 2.0 * saved[1] * ct["out"], "b": 0.0 * saved[1]}, 5.0 * saved[0]["a"] * ct["out"]),
    )
    p = {"a": np.ones(3), "b": np.zeros(3)}
    gp, gx = grad(lambda p, x: np.sum(f(p, x)["out"]), argnums=(0, 1))(p, X)
    close(gp["a"], 2 * X)
    close(gx, np.full(3, 5.0))


def test_forward_mode_refuses_a_reverse_rule_and_names_the_cure() -> None:
    with pytest.raises(errors.NoRuleError, match=r"cube.*custom_jvp"):
        jvp(lambda x: cube(x, 1), (2.0,), (1.0,))
    with pytest.raises(errors.NoRuleError, match=r"cube.*custom_jvp"):
        jacfwd(lambda x: cube(x, 1))(X)


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda x: (x,), "1 cotangents for 2"),
        (lambda x: (x, x, x), "3 cotangents for 2"),
        (lambda x: (x[:2], None), r"shape \(2,\) for argument 0, which has shape \(3,\)"),
        (lambda x: ({"a": x}, None), "the cotangent of argument 0 of f"),
    ],
)
def test_wrong_cotangents(returned: Any, match: str) -> None:
    @custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, x), lambda x, ct: returned(x * ct))
    with pytest.raises(errors.TreeError, match=match):
        grad(lambda x: np.sum(f(x, 2.0)))(X)


# ---------------------------------------------------------------- custom_jvp


@custom_jvp
def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


@softplus.defjvp
def softplus_rule(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return softplus(x), t / (1 + np.exp(-x))


def test_custom_jvp_serves_both_modes_to_any_order() -> None:
    s = 1 / (1 + np.exp(-X))
    close(jvp(softplus, (X,), (np.ones(3),))[1], s)
    close(grad(lambda x: np.sum(softplus(x)))(X), s)
    for outer in (jacfwd, jacrev):
        for inner in (jacfwd, jacrev):
            close(outer(inner(lambda x: np.sum(softplus(x))))(X), np.diag(s * (1 - s)))
    close(hessian(lambda x: np.sum(softplus(x)))(X), np.diag(s * (1 - s)))
    close(vmap(grad(softplus))(X), s)
    close(grad(lambda x: np.sum(vmap(softplus)(x)))(X), s)
    close(linearize(softplus, X)[1](np.ones(3)), s)
    assert grad(softplus)(700.0) == 1.0


def test_custom_jvp_with_several_arguments_and_outputs() -> None:
    @custom_jvp
    def polar(x: Any, y: Any) -> Any:
        return np.hypot(x, y), np.arctan2(y, x)

    @polar.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        r, phi = polar(x, y)
        return (r, phi), (2 * (x * dx + y * dy) / r, (x * dy - y * dx) / r**2)  # the first is doubled on purpose

    gx, gy = grad(lambda x, y: polar(x, y)[0], argnums=(0, 1))(3.0, 4.0)
    close((gx, gy), (1.2, 1.6))
    close(grad(lambda y: polar(3.0, y)[1])(4.0), 3 / 25)
    close(jvp(polar, (3.0, 4.0), (1.0, 0.0))[1], (1.2, -4 / 25))


def test_custom_jvp_checks_what_the_rule_returns() -> None:
    @custom_jvp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0][:2]))
    with pytest.raises(errors.TreeError, match=r"tangent of shape \(2,\)"):
        jvp(f, (X,), (X,))


def test_custom_functions_keep_name_and_docstring_and_pickle() -> None:
    assert cube.__name__ == "cube"
    assert cube.__doc__ == "Return n x**3."
    assert repr(cube) == "custom_vjp(cube)"
    assert pickle.loads(pickle.dumps(cube)) is cube
    close(pickle.loads(pickle.dumps(grad(cube)))(2.0, 1), 40.0)


# ---------------------------------------------------------------- primitive


@primitive(elementwise=True, x=lambda x: np.exp(-x * x) * 2 / np.sqrt(np.pi))
def erf(x: Any) -> Any:
    assert isinstance(x, (np.ndarray, np.generic, float))
    return np.vectorize(math.erf, otypes=[float])(x)[()]


@primitive(a=lambda g, b: g @ b.T, b=lambda g, a: a.T @ g)
def product(a: Any, b: Any, times: int = 1) -> Any:
    assert type(a) is type(b) is np.ndarray
    return times * (a @ b)


def test_primitive_elementwise_in_every_mode() -> None:
    d = 2 / np.sqrt(np.pi) * np.exp(-(X**2))
    close(grad(lambda x: np.sum(erf(x)))(X), d)
    close(jvp(erf, (X,), (np.ones(3),))[1], d)
    close(vmap(grad(erf))(X), d)
    close(vmap(erf)(X), [math.erf(v) for v in X])
    close(hessian(lambda x: np.sum(erf(x)))(X), np.diag(-2 * X * d))


def test_primitive_with_reverse_rules_only() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) / 7
    ga, gb = grad(lambda a, b: np.sum(product(a, b) ** 2), argnums=(0, 1))(a, b)
    close(ga, 2 * (a @ b) @ b.T)
    close(gb, 2 * a.T @ (a @ b))
    close(jvp(product, (a, b), (a, b))[1], 2 * a @ b)
    close(vmap(product, (0, None))(np.stack([a, 2 * a]), b), np.stack([a @ b, 2 * a @ b]))
    with pytest.raises(errors.NoRuleError, match="'times'"):
        grad(lambda t: np.sum(product(a, b, t)))(2.0)


def test_primitive_with_forward_and_batching_rules() -> None:
    calls = []

    @primitive(x=lambda g, ans: g * ans, jvp={"x": lambda t, ans: t * ans}, batch=elementwise_batch)
    def exponential(x: Any) -> Any:
        calls.append(np.shape(x))
        return np.exp(x)

    close(vmap(exponential)(X), np.exp(X))
    assert calls == [(3,)]
    close(jvp(exponential, (X,), (np.ones(3),))[1], np.exp(X))


def test_primitive_with_defaults_that_hold_commas() -> None:
    @primitive(x=lambda g, y: g * y, y=lambda g, x: g * x)
    def product(x: Any, mode: str = "a, b=c", limits: tuple[int, int] = (0, 1), y: Any = 1.0) -> Any:
        return x * y

    close(grad(product, 3)(2.0, "a, b=c", (0, 1), 3.0), 2.0)
    close(grad(product)(2.0, "a, b=c", (0, 1), 3.0), 3.0)


def test_primitive_refuses_rules_that_do_not_fit() -> None:
    with pytest.raises(errors.RowError, match="'z'"):
        primitive(z=lambda g: g)(lambda x: x)
    with pytest.raises(errors.RowError, match="'q'"):
        primitive(x=lambda g, q: g)(lambda x: x)


# ---------------------------------------------------------------- checkpoint


def test_checkpoint_changes_neither_values_nor_derivatives() -> None:
    def block(x: Any, w: Any) -> Any:
        return np.tanh(x @ w) + x

    w = np.random.default_rng(0).normal(size=(3, 3))

    def plain(x: Any, w: Any) -> Any:
        return np.sum(block(block(x, w), w) ** 2)

    def saved(x: Any, w: Any) -> Any:
        return np.sum(checkpoint(block)(checkpoint(block)(x, w), w) ** 2)

    for a, b in zip(
        (*value_and_grad(plain, (0, 1))(X, w), hessian(plain)(X, w)),
        (*value_and_grad(saved, (0, 1))(X, w), hessian(saved)(X, w)),
        strict=True,
    ):
        for u, v in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,), strict=True):
            close(v, u)
    close(jvp(saved, (X, w), (X, w))[1], jvp(plain, (X, w), (X, w))[1])
    close(vmap(grad(saved), (0, None))(np.stack([X, X + 1]), w)[1], grad(plain)(X + 1, w))


def test_checkpoint_keeps_what_it_closes_over() -> None:
    def outer(a: Any) -> Any:
        b = a * 2.0
        step = checkpoint(lambda x: np.sin(a * x) * (a * b))
        return np.sum(step(step(np.array([0.5, 1.0]))))

    def reference(a: Any) -> Any:
        b = a * 2.0
        step = lambda x: np.sin(a * x) * (a * b)  # noqa: E731
        return np.sum(step(step(np.array([0.5, 1.0]))))

    assert outer(1.3) == reference(1.3)
    close(grad(outer)(1.3), grad(reference)(1.3))
    close(grad(grad(outer))(1.3), grad(grad(reference))(1.3))
    close(jvp(grad(outer), (1.3,), (1.0,))[1], grad(grad(reference))(1.3))
    close(grad(lambda c: grad(lambda a: outer(a) * c)(1.3))(2.0), grad(reference)(1.3))


def test_checkpoint_nests() -> None:
    f = checkpoint(lambda x: checkpoint(lambda y: checkpoint(np.sin)(y * x) * x)(x) + x)
    close(grad(f)(0.7), 2 * 0.7**2 * np.cos(0.49) + np.sin(0.49) + 1)


def test_checkpoint_with_trees_and_outputs_that_are_not_arrays() -> None:
    def f(p: Any, *, name: str) -> Any:
        return {"y": np.sin(p["w"]) * p["w"], "name": name, "constant": np.ones(2), "none": None}

    def loss(p: Any) -> Any:
        out = checkpoint(f)(p, name="n")
        assert out["name"] == "n"
        assert out["none"] is None
        assert type(out["constant"]) is np.ndarray
        return np.sum(out["y"])

    close(grad(loss)({"w": X})["w"], np.cos(X) * X + np.sin(X))
    assert checkpoint(f)({"w": X}, name="n")["name"] == "n"


@pytest.mark.usefixtures("usual_sizes")
def test_checkpoint_saves_memory() -> None:
    x = np.ones(20_000)

    def chain(x: Any, step: Any) -> Any:
        for _ in range(20):
            x = step(x)
        return np.sum(x)

    def step(x: Any) -> Any:
        for _ in range(10):
            x = np.sin(x) * 1.01
        return x

    def peak(f: Any) -> int:
        grad(f)(x)
        tracemalloc.start()
        try:
            grad(f)(x)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(lambda x: chain(x, checkpoint(step))) < 0.3 * peak(lambda x: chain(x, step))


def test_checkpoint_runs_again_in_the_backward_pass_only() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return x * x

    checkpoint(f)(3.0)
    assert len(runs) == 1
    out, pullback = vjp(checkpoint(f), 3.0)
    assert len(runs) == 2
    close(pullback(1.0)[0], 6.0)
    assert len(runs) == 3
    assert out == 9.0


def test_checkpoint_between_a_batch_and_an_outer_derivative() -> None:
    """The batched values stop the first run short of the outer level, which an unbatched one belongs to as well."""

    def f(x: Any) -> Any:
        inner = grad(lambda u, b: checkpoint(lambda z: z * u)(u * b) ** 2)  # 4 u**3 b**2
        return np.sum(vmap(inner, (None, 0))(x, np.array([1.0, 2.0])))

    close(f(2.0), 160.0)
    close(grad(f)(2.0), 240.0)
    close(jvp(f, (2.0,), (1.0,))[1], 240.0)


# ---------------------------------------------------------------- closures


def closing_over(w: Any, kind: str) -> Any:
    """Make a function with a rule of its own, x * w, that takes w from around it in all or in some of its parts."""
    if kind == "custom_jvp":
        times = custom_jvp(lambda x: x * w)
        times.defjvp(lambda primals, tangents: (primals[0] * w, tangents[0] * w))
    elif kind == "jvp rule only":
        times = custom_jvp(lambda x: x * 3.0)
        times.defjvp(lambda primals, tangents: (primals[0] * 3.0, tangents[0] * w))
    elif kind == "primitive":
        times = primitive(x=lambda g: g * 3.0)(lambda x: x * w)
    else:
        forward = (lambda x: (x * 3.0, None)) if kind == "backward only" else (lambda x: (x * w, None))
        backward = (lambda saved, ct: (ct * 3.0,)) if kind == "forward only" else (lambda saved, ct: (ct * w,))
        times = custom_vjp(lambda x: forward(x)[0])
        times.defvjp(forward, backward)
    return times


KINDS = ("custom_vjp", "forward only", "backward only", "custom_jvp", "jvp rule only", "primitive")


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_must_not_close_over_what_is_differentiated(kind: str) -> None:
    def f(w: Any) -> Any:
        return closing_over(w, kind)(2.0 * w)

    for derivative in (grad(f), grad(lambda w: grad(f)(w))):
        with pytest.raises(errors.EscapedTensorError, match="Pass the value to <lambda> as an argument"):
            derivative(3.0)
    if kind in {"custom_jvp", "jvp rule only", "primitive"}:
        with pytest.raises(errors.EscapedTensorError, match="test_custom.py line .* as an argument"):
            jvp(f, (3.0,), (1.0,))
    if kind not in {"jvp rule only", "backward only"}:  # of which the function itself does not close over anything
        with pytest.raises(errors.EscapedTensorError, match="test_custom.py line .* as an argument"):
            vmap(f)(X)


@pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])
def test_a_rule_may_close_over_what_an_outer_derivative_is_taken_by(kind: str) -> None:
    def slope(w: Any) -> Any:
        return grad(lambda x: closing_over(w, kind)(x) ** 2)(2.0)  # 2 x w**2

    close(slope(3.0), 36.0)
    close(grad(slope)(3.0), 24.0)
    close(jvp(slope, (3.0,), (1.0,))[1], 24.0)
    close(vmap(slope)(X), 4.0 * X**2)


def test_a_rule_may_close_over_a_constant_of_what_is_differentiated() -> None:
    close(grad(lambda w: closing_over(stop_gradient(w), "custom_vjp")(2.0 * w))(3.0), 6.0)
