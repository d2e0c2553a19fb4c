"""root and fixed_point: derivatives from the equation, not from the solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import fixed_point, grad, hessian, jacfwd, jacrev, jvp, root, vmap


def test_square_root_to_third_order() -> None:
    def sqrt(a: Any) -> Any:
        return root(lambda x, a: x * x - a, 1.0, a)

    assert abs(sqrt(4.0) - 2.0) < 1e-12
    np.testing.assert_allclose(grad(sqrt)(4.0), 0.25, rtol=1e-10)
    np.testing.assert_allclose(grad(grad(sqrt))(4.0), -1 / 32, rtol=1e-10)
    np.testing.assert_allclose(grad(grad(grad(sqrt)))(4.0), 3 / 256, rtol=1e-9)
    np.testing.assert_allclose(jvp(sqrt, (4.0,), (2.0,))[1], 0.5, rtol=1e-10)
    np.testing.assert_allclose(vmap(grad(sqrt))(np.array([1.0, 4.0, 9.0])), [1 / 2, 1 / 4, 1 / 6], rtol=1e-10)


def test_root_of_a_system_with_trees() -> None:
    """x + y = s and x y = p: the roots of t**2 - s t + p."""

    def f(x: Any, q: Any) -> Any:
        return {"x": x["x"] + x["y"] - q["s"], "y": x["x"] * x["y"] - q["p"]}

    def solve(q: Any) -> Any:
        return root(f, {"x": 5.0, "y": 1.0}, q)["x"]

    q = {"s": 5.0, "p": 6.0}
    np.testing.assert_allclose(solve(q), 3.0)
    g = grad(solve)(q)  # t' = t / (2 t - s) by s, -1 / (2 t - s) by p
    np.testing.assert_allclose(g["s"], 3.0)
    np.testing.assert_allclose(g["p"], -1.0)
    h = hessian(solve)(q)
    np.testing.assert_allclose(h["p"]["p"], -2.0, rtol=1e-9)  # -2 / (2 t - s)**3


def test_root_with_another_solver() -> None:
    optimize = pytest.importorskip("scipy.optimize")

    def x_of(a: Any) -> Any:
        return root(lambda x, a: x**3 + a * x - 2, 1.0, a, solver=lambda r, x: optimize.root(r, x, tol=1e-14).x)

    x = x_of(1.0)
    np.testing.assert_allclose(x, 1.0)
    np.testing.assert_allclose(grad(x_of)(1.0), -x / (3 * x**2 + 1), rtol=1e-8)


def test_fixed_point() -> None:
    def f(x: Any, p: Any) -> Any:
        return np.tanh(p["W"] @ x + p["b"])

    p = {"W": np.array([[0.2, -0.4], [0.3, 0.1]]), "b": np.array([0.5, -0.2])}
    x = fixed_point(f, np.zeros(2), p)
    np.testing.assert_allclose(x, f(x, p), rtol=1e-10)  # it stops by the length of the step
    d = 1 - x**2
    want = np.linalg.inv(np.eye(2) - d[:, None] * p["W"]) @ np.diag(d)  # by b
    for jac in (jacfwd, jacrev):
        np.testing.assert_allclose(
            jac(lambda b: fixed_point(f, np.zeros(2), {"W": p["W"], "b": b}))(p["b"]), want, rtol=1e-9
        )
    g = grad(lambda W: fixed_point(f, np.zeros(2), {"W": W, "b": p["b"]})[0])(p["W"])
    np.testing.assert_allclose(g, np.outer(want[0], x), rtol=1e-9)


def test_closing_over_a_traced_value_is_refused() -> None:
    with pytest.raises(errors.LostDerivativeError, match="Pass it in params"):
        grad(lambda a: root(lambda x, _: x * x - a, 1.0, 0.0))(4.0)
    with pytest.raises(errors.LostDerivativeError, match="Pass it in params"):
        grad(lambda a: root(lambda x, p: x * x - a * p, 1.0, a))(4.0)
    with pytest.raises(errors.LostDerivativeError, match="Pass it in params"):
        grad(lambda a: fixed_point(lambda x, _: np.cos(a * x), 0.5, 0.0))(1.0)


def test_not_converging_is_said() -> None:
    with pytest.raises(RuntimeError, match="did not converge"):
        fixed_point(lambda x, p: 2.0 * x + p, 1.0, 1.0, max_iterations=20)
    with pytest.raises(RuntimeError, match="did not converge"):
        root(lambda x, p: x * x + p, 1.0, 1.0, max_iterations=10)
