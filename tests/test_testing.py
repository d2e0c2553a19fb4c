"""check_grads finds wrong rules, and says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import custom_jvp, custom_vjp, stop_gradient
from meintorch.testing import check_grads


def test_right_derivatives_pass() -> None:
    check_grads(np.tanh, (np.array([0.1, -0.7]),), order=3)
    check_grads(lambda x, p: np.tanh(x @ p["w"]) * p["b"], (np.ones((2, 3)), {"w": np.eye(3), "b": 2.0}), order=2)
    check_grads(lambda z: (np.abs(z) * z, np.sum(np.real(z))), (np.array([1 + 2j, 0.3j]),), order=2)
    check_grads(lambda x: np.exp(x) * x, (np.array([0.5, 1.0], np.float32),), order=1)
    check_grads(lambda x, n: x**2, (3.0, 2.0), order=2)


def wrong_at_one_entry(x: Any) -> Any:
    return np.sin(x) + np.where(np.arange(3) == 1, 0.01, 0.0) * (x - stop_gradient(x))


def test_a_wrong_entry_is_named_with_both_numbers() -> None:
    with pytest.raises(
        AssertionError, match=r"reverse mode is wrong for argument 0\['p'\], entry \[1\]: it gives .* differences give"
    ):
        check_grads(lambda tree: wrong_at_one_entry(tree["p"]), ({"p": np.zeros(3)},), modes=("rev",))
    with pytest.raises(AssertionError, match=r"forward mode is wrong for argument 1, entry \[1\]"):
        check_grads(lambda a, x: wrong_at_one_entry(x) * a, (2.0, np.zeros(3)), modes=("fwd",))


def test_a_wrong_second_derivative_is_found() -> None:
    @custom_jvp
    def f(x: Any) -> Any:
        return x**3

    f.defjvp(lambda primals, tangents: (f(*primals), 3 * stop_gradient(primals[0]) ** 2 * tangents[0]))
    check_grads(f, (2.0,), order=1)
    with pytest.raises(AssertionError, match=r"over (reverse|forward) mode"):
        check_grads(f, (2.0,), order=2)


def test_reverse_rules_alone() -> None:
    @custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * x * ct,))
    check_grads(f, (np.array([1.0, 2.0]),), modes=("rev",))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2.001 * x * ct,))
    with pytest.raises(AssertionError, match="reverse mode is wrong"):
        check_grads(f, (np.array([1.0, 2.0]),), modes=("rev",))


def test_large_arrays_are_sampled() -> None:
    check_grads(lambda x: np.sum(x * x), (np.linspace(0.0, 1.0, 2000),), order=1)


@pytest.mark.parametrize("args", [np.ones(3), 2.0, {"x": 1.0}])
def test_arguments_that_are_in_no_tuple(args):
    with pytest.raises(errors.InputError, match=r"in a tuple, such as \(x,\)"):
        check_grads(np.sin, args)
