"""Kinks and special points: every row of the conventions, each with its number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import grad, hessian, jacfwd, jvp, vjp, vmap

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "error::meintorch.errors.NaNWarning")


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- conventions at kinks

KINKS: list[tuple[str, Callable[[Any], Any], Any, Any]] = [
    ("max, a tie", np.max, [3.0, 1.0, 3.0], [0.5, 0.0, 0.5]),
    ("min, three tied", np.min, [1.0, 1.0, 1.0], [1 / 3] * 3),
    ("max by rows", lambda x: np.sum(np.max(x, axis=1)), [[2.0, 2.0], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]),
    (
        "max by rows, one attained twice and one below the initial value",
        lambda x: np.sum(np.max(x, axis=1, initial=2.5)),
        [[3.0, 3.0, 0.0], [1.0, 1.0, 2.0]],
        [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]],
    ),
    (
        "max by rows, one attained twice and one behind the mask",
        lambda x: np.sum(np.max(x, axis=1, initial=-9.0, where=np.array([[True], [False]]))),
        [[3.0, 3.0, 0.0], [1.0, 1.0, 2.0]],
        [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]],
    ),
    (
        "max by rows, one attained twice and one NaN",
        lambda x: np.sum(np.max(x, axis=1) * [1.0, 0.0]),
        [[3.0, 3.0, 0.0], [np.nan, 1.0, 2.0]],
        [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]],
    ),
    ("ptp", np.ptp, [1.0, 3.0, 3.0], [-1.0, 0.5, 0.5]),
    ("maximum of equal arguments", lambda x: np.maximum(x, 2.0), 2.0, 0.5),
    ("maximum with itself", lambda x: np.maximum(x, x), 2.0, 1.0),
    ("minimum of equal arguments", lambda x: np.minimum(x, 2.0), 2.0, 0.5),
    ("fmax of equal arguments", lambda x: np.fmax(2.0, x), 2.0, 0.5),
    ("fmin of equal arguments", lambda x: np.fmin(x, 2.0), 2.0, 0.5),
    ("clip at the upper bound", lambda x: np.clip(x, 0.0, 1.0), 1.0, 1.0),
    ("clip at the lower bound", lambda x: np.clip(x, 0.0, 1.0), 0.0, 1.0),
    ("clip outside", lambda x: np.clip(x, 0.0, 1.0), 1.5, 0.0),
    ("abs(0)", np.abs, 0.0, 0.0),
    ("norm(0)", np.linalg.norm, [0.0, 0.0], [0.0, 0.0]),
    (
        "norm of a zero row, squared",
        lambda X: np.sum(np.linalg.norm(X, axis=-1) ** 2),
        [[0.0, 0.0], [3.0, 4.0]],
        [[0.0, 0.0], [6.0, 8.0]],
    ),
    ("1-norm", lambda x: np.linalg.norm(x, 1), [0.0, -2.0], [0.0, -1.0]),
    ("inf-norm, a tie", lambda x: np.linalg.norm(x, np.inf), [2.0, -2.0], [0.5, -0.5]),
    ("-inf-norm, a tie", lambda x: np.linalg.norm(x, -np.inf), [2.0, -2.0, 3.0], [0.5, -0.5, 0.0]),
    ("3-norm with a zero", lambda x: np.linalg.norm(x, 3), [0.0, 2.0], [0.0, 1.0]),
    ("hypot(0, 0)", lambda x: np.hypot(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
    ("arctan2(0, 0)", lambda x: np.arctan2(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
    ("std of equal values", np.std, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
    ("var**0.5 of equal values", lambda x: np.var(x) ** 0.5, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
    ("sqrt(0)", np.sqrt, 0.0, np.inf),
    ("x**0.0 at 0", lambda x: x**0.0, 0.0, 0.0),
    ("x**1 at 0", lambda x: x**1, 0.0, 1.0),
    ("x**2 at 0", lambda x: x**2, 0.0, 0.0),
    ("x**array([0, 1, 2]) at 0", lambda x: np.sum(x ** np.array([0, 1, 2])), [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
    ("0**y", lambda y: np.sum(np.array([0.0, 2.0]) ** y), [1.0, 1.0], [0.0, 2 * np.log(2.0)]),
    ("sinc(0)", np.sinc, 0.0, 0.0),
    ("prod with one zero", np.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    ("prod with two zeros", np.prod, [2.0, 0.0, 0.0, 4.0], [0.0] * 4),
    ("logaddexp(-inf, -inf)", lambda x: np.logaddexp(x[0], x[1]), [-np.inf, -np.inf], [0.5, 0.5]),
    ("logaddexp(-inf, 1)", lambda x: np.logaddexp(x[0], x[1]), [-np.inf, 1.5], [0.0, 1.0]),
    ("logaddexp far out", lambda x: np.logaddexp(x, 0.0), -800.0, 0.0),
    (
        "logaddexp chain",
        lambda x: np.logaddexp(np.logaddexp(x[0], x[1]), x[2]),
        [-np.inf, -np.inf, 2.0],
        [0.0, 0.0, 1.0],
    ),
    ("division by a Python 0", lambda x: x / 0, 2.0, np.inf),
    ("division by a Python -0.0", lambda x: np.sum(x / -0.0), [2.0], [-np.inf]),
    ("power of a Python 0", lambda x: 0**x, 2.0, 0.0),
    ("interp at an inner knot", lambda x: np.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, 3.0]), 1.0, 0.5),
    ("interp at the last knot", lambda x: np.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, 3.0]), 3.0, 0.5),
    ("remainder at a multiple", lambda x: np.remainder(x, 2.0), 4.0, 1.0),
    ("floor", lambda x: np.floor(x) + x, 2.0, 1.0),
    ("sign", lambda x: np.sign(x) * x, 0.0, 0.0),
    ("round", lambda x: np.round(x) * x, 1.4, 1.0),
    ("argmax as an index", lambda x: x[np.argmax(x)] ** 2, [1.0, 3.0, 2.0], [0.0, 6.0, 0.0]),
    ("heaviside", lambda x: np.heaviside(x, 0.5) * x, 2.0, 1.0),
    ("comparison as a factor", lambda x: np.sum((x > 1) * x), [0.5, 2.0], [0.0, 1.0]),
]


@pytest.mark.parametrize(("f", "x", "want"), [k[1:] for k in KINKS], ids=[k[0] for k in KINKS])
def test_kinks(f: Callable[[Any], Any], x: Any, want: Any) -> None:
    close(grad(f)(np.array(x)), want)
    if np.shape(x):
        close(vmap(grad(f))(np.array([x, x])), [want, want])


def test_second_derivatives_at_special_points() -> None:
    close(hessian(np.prod)(np.array([0.0, 0.0, 3.0])), [[0, 3, 0], [3, 0, 0], [0, 0, 0]])
    close(hessian(np.var)(np.array([2.0, 2.0])), [[0.5, -0.5], [-0.5, 0.5]])
    f: Any = lambda x: np.exp(-(x**2))  # noqa: E731
    for want in (0.0, -2.0, 0.0, 12.0):
        f = grad(f)
        close(f(0.0), want)
    close(grad(grad(np.sinc))(0.0), -(np.pi**2) / 3)
    mixed = grad(lambda y: grad(lambda x, y: x**y)(2.0, y))  # d/dy of y x**(y - 1) is 1/x at y = 0
    close(mixed(0.0), 0.5)
    close(grad(lambda y: np.sum(grad(lambda x, y: np.sum(x**y))(np.array([2.0, 4.0]), y)))(np.zeros(2)), [0.5, 0.25])
    close(grad(grad(lambda a: np.logaddexp(a, 0.0)))(0.0), 0.25)
    close(grad(grad(lambda a: np.logaddexp(a, 0.0)))(-800.0), 0.0)


# ---------------------------------------------------------------- branches not taken

DEAD: list[tuple[str, Callable[[Any], Any], Any, Any]] = [
    ("where, log", lambda x: np.sum(np.where(x > 0, np.log(x), 0.0)), [0.0, 2.0], [0.0, 0.5]),
    ("where, the other way", lambda x: np.sum(np.where(x <= 0, 0.0, np.log(x))), [0.0, 2.0], [0.0, 0.5]),
    ("where, two branches", lambda x: np.sum(np.where(x >= 0, x, np.sqrt(-x))), [1.0, -4.0], [1.0, -0.25]),
    ("where, overflow", lambda x: np.sum(np.where(x <= 0, np.exp(x), 1.0 + x)), [1000.0, -1.0], [1.0, np.exp(-1.0)]),
    (
        "nested where",
        lambda x: np.sum(np.where(x > 0, np.where(x > 1, np.log(x - 1), 0.0), 0.0)),
        [0.0, 0.5, 3.0],
        [0, 0, 0.5],
    ),
    ("boolean factor", lambda x: np.sum((x > 0) * np.log(x)), [0.0, 2.0], [0.0, 0.5]),
    (
        "through sums",
        lambda x: np.sum(np.where(np.sum(x, axis=1) > 0, np.sum(np.log(x), axis=1), 0.0)),
        [[0.0, 0.0], [1.0, 2.0]],
        [[0.0, 0.0], [1.0, 0.5]],
    ),
    (
        "through reshape and transpose",
        lambda x: np.sum(np.where(x > 0, np.log(x).reshape(2, 1).T, 0.0)),
        [0.0, 2.0],
        [0.0, 0.5],
    ),
    (
        "through broadcasting",
        lambda x: np.sum(np.where(np.array([[True], [True]]) & (x > 0), np.log(x), 0.0)),
        [0.0, 2.0],
        [0.0, 1.0],
    ),
    ("through indexing", lambda x: np.sum(np.where(x[::-1] > 0, np.log(x)[::-1], 0.0)), [0.0, 2.0], [0.0, 0.5]),
    ("entries never read", lambda x: np.log(x)[1] + np.sqrt(x)[2], [0.0, 2.0, 4.0], [0.0, 0.5, 0.25]),
    ("boolean mask", lambda x: np.sum(np.log(x)[x > 0]), [0.0, 2.0], [0.0, 0.5]),
    ("concatenate", lambda x: np.sum(np.concatenate([np.log(x), x])[1:]), [0.0, 2.0], [1.0, 1.5]),
    ("maximum over -inf", lambda x: np.sum(np.maximum(np.log(x), -1.0)), [0.0, 2.0], [0.0, 0.5]),
    ("max over -inf", lambda x: np.max(np.log(x)), [0.0, 2.0], [0.0, 0.5]),
    ("clip", lambda x: np.sum(np.clip(np.log(x), -1.0, 5.0)), [0.0, 2.0], [0.0, 0.5]),
    (
        "matrix product",
        lambda x: np.sum(np.array([[1.0, 2.0], [3.0, 4.0]]) @ np.where(x > 0, np.log(x), 0.0)),
        [0.0, 2.0],
        [0.0, 3.0],
    ),
    (
        "several operations in the branch",
        lambda x: np.sum(np.where(x > 0, 3 * np.sqrt(np.log(x + 1)) / x, x)),
        [0.0, np.e - 1],
        [1.0, 3 * (0.5 / np.e / (np.e - 1) - 1 / (np.e - 1) ** 2)],
    ),
]


@pytest.mark.parametrize(("f", "x", "want"), [k[1:] for k in DEAD], ids=[k[0] for k in DEAD])
def test_a_branch_not_taken_contributes_nothing(f: Callable[[Any], Any], x: Any, want: Any) -> None:
    x = np.array(x)
    close(grad(f)(x), want)
    close(vjp(f, x)[1](2.0)[0], 2 * np.array(want))
    close(jacfwd(f)(x), want)
    with contextlib.suppress(errors.BatchError):  # a mask as an index has no one shape for a batch
        close(vmap(grad(f))(np.stack([x, x])), [want, want])


def test_second_order_through_branches_not_taken() -> None:
    f = lambda x: np.sum(np.where(x > 0, np.log(x) * x**2, 0.0))  # noqa: E731
    x = np.array([0.0, 2.0])
    want = np.diag([0.0, 2 * np.log(2.0) + 3])
    close(hessian(f)(x), want)
    close(jvp(grad(f), (x,), (np.ones(2),))[1], np.diag(want))
    close(grad(lambda x: np.sum(grad(f)(x)))(x), np.diag(want))


HONEST: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("sqrt(x)**2", lambda x: np.sqrt(x) ** 2, 0.0),
    ("sqrt(x * x)", lambda x: np.sqrt(x * x), 0.0),
    ("0.0 * sqrt(x)", lambda x: 0.0 * np.sqrt(x), 0.0),
    ("0.0 * log(x)", lambda x: 0.0 * np.log(x), 0.0),
    ("a float mask", lambda x: np.sum(np.where(x > 0, 1.0, 0.0) * np.log(x)), [0.0, 2.0]),
    ("a taken branch", lambda x: np.sum(np.where(x >= 0, np.sqrt(x) ** 2, 0.0)), [0.0, 2.0]),
]


@pytest.mark.parametrize(("f", "x"), [k[1:] for k in HONEST], ids=[k[0] for k in HONEST])
def test_zero_times_infinity_elsewhere_is_nan(f: Callable[[Any], Any], x: Any) -> None:
    silent = np.isnan(f(np.array(x)))  # the value itself tells
    where = r"The first NaN came from the derivative of np\.\w+, .*test_points.py line"
    with contextlib.nullcontext() if silent else pytest.warns(errors.NaNWarning, match=where):
        g = grad(f)(np.array(x))
    assert np.isnan(g.flat[0])
    assert not np.isnan(g.flat[1:]).any()


def test_infinity_where_one_use_lives_and_another_is_dead() -> None:
    g = grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0) + np.sqrt(x)))(np.array([0.0, 4.0]))
    close(g, [np.inf, 0.5])
