"""Scalars and arrays that a number was multiplied with or added to: they have no node, which nothing else must notice."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.errors import EscapedTensorError
from meintorch.func import checkpoint, grad, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from meintorch.tensor import ScaledTensor

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def warm() -> None:
    """Call each operator so often that it is generated code."""
    for _ in range(3):
        grad(lambda x: 2.0 * (3.0 - (-(x * 2.0 + 1.0) / 4.0 - 2.0) ** 2) + 1.0 / x)(1.5)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-13, atol=0)


X, Y = 1.3, 0.7
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    "times": (lambda x, y: (2.0 * x) * y, (2 * Y, 2 * X)),
    "both scaled": (lambda x, y: (2.0 * x) * (y * 3 + 1), (2 * (3 * Y + 1), 6 * X)),
    "plus": (lambda x, y: y + (2.0 * x - 1) + 3 * y, (2.0, 4.0)),
    "minus": (lambda x, y: y - 2.0 * x - (5 - y / 4), (-2.0, 1.25)),
    "the same one": (lambda x, y: (2 * x) * (2 * x) - 2 * x - x + y * 0.5, (8 * X - 3, 0.5)),
    "over": (lambda x, y: y / (2.0 * x + 1), (-2 * Y / (2 * X + 1) ** 2, 1 / (2 * X + 1))),
    "divided": (lambda x, y: (2.0 * x) / y / 4, (0.5 / Y, -0.5 * X / Y**2)),
    "number over": (lambda x, y: 3.0 / (2 * x) + y * 1, (-1.5 / X**2, 1.0)),
    "squared": (lambda x, y: (2 * x + 1) ** 2 + (y**2) * 3.0, (4 * (2 * X + 1), 6 * Y)),
    "powers": (lambda x, y: (2 * x) ** 3 + (0.5 * y) ** -1.5, (24 * X**2, -0.75 * (0.5 * Y) ** -2.5)),
    "exponent": (lambda x, y: 2.0 ** (3 * x) + (2 * x) ** (3 * y), (
        3 * np.log(2) * 2 ** (3 * X) + 6 * Y * (2 * X) ** (3 * Y - 1), 3 * np.log(2 * X) * (2 * X) ** (3 * Y))),
    "negative": (lambda x, y: -(1 - (2 * x)) - (-y), (2.0, 1.0)),
    "nodes in between": (lambda x, y: (-(x / y)) / y, (-1 / Y**2, 2 * X / Y**3)),
    "used twice": (lambda x, y: (s := 2 * x) * y + np.exp(s) - s, (2 * Y + 2 * np.exp(2 * X) - 2, 2 * X)),
    "functions": (lambda x, y: np.sin(2 * x) + np.maximum(3 * y, 0.0) + np.where(2 * x > 0, 2 * x, y),
                  (2 * np.cos(2 * X) + 2, 3.0)),
    "joined": (lambda x, y: np.sum(np.stack([2 * x, y + 1, x]) * np.array([1.0, 2, 4])), (6.0, 2.0)),
    "in a list": (lambda x, y: np.sum(np.concatenate([np.stack([2 * x]), np.ones(1)])) + np.hypot(3 * x, 4 * y),
                  (2 + 9 * X / np.hypot(3 * X, 4 * Y), 16 * Y / np.hypot(3 * X, 4 * Y))),
    "NumPy's numbers": (lambda x, y: np.float64(2) * x * np.float64(3) - np.float64(2) * y, (6.0, -2.0)),
    "next to arrays": (lambda x, y: np.sum((2 * x) * np.arange(4.0) + np.ones(4) / (2 * y)), (12.0, -2 / Y**2)),
    "without axes": (lambda x, y: np.sum(2 * x) + np.reshape(3 * y, 1)[0] + np.sum(np.expand_dims(2 * x, 0)), (4.0, 3.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arrays", [(), (0,), (1,), (0, 1)], ids=["numbers", "x 0-d", "y 0-d", "both 0-d"])
def test_gradients_are_those_of_calculus(name: str, arrays: tuple[int, ...]) -> None:
    f, expected = PROGRAMS[name]
    args = [np.array(v) if k in arrays else v for k, v in enumerate((X, Y))]
    for _ in range(3):
        value, gradient = value_and_grad(f, (0, 1))(*args)
    assert value == f(*args)
    close(gradient, expected)
    close(jacrev(f, (0, 1))(*args), expected)
    close(vjp(f, *args)[1](np.float64(1.0)), expected)
    close(linearize(f, *args)[1](1.0, 0.0), expected[0])
    close(grad(checkpoint(f), (0, 1))(*args), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_are_differences_of_first(name: str) -> None:
    f, _ = PROGRAMS[name]
    h = 1e-6
    slope = (grad(f)(X, Y + h) - grad(f)(X, Y - h)) / (2 * h)
    for _ in range(3):
        found = grad(lambda x, y: 2.0 * grad(f)(x, y), 1)(X, Y)
    np.testing.assert_allclose(found, 2 * slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jvp(lambda y: 3 * grad(f)(X, y), (Y,), (1.0,))[1], 3 * slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        vmap(lambda y: grad(f)(X, y) * 1.0)(np.array([Y, 2.0])), [grad(f)(X, Y), grad(f)(X, 2.0)]
    )


def test_a_chain_leaves_no_nodes() -> None:
    grown = []

    def f(x: Any) -> Any:
        before = len(gc.get_objects())
        for _ in range(5000):
            x = 1.0 - (x * 0.999 + 0.5) / 1.5
        grown.append(len(gc.get_objects()) - before)
        return x

    assert grad(f)(0.3) == 0.0  # (-0.666)**5000
    assert grown[-1] < 500


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x * 1e-60 * 1e-60 * 1e60 * 1e60, 1.0),
        (lambda x: x * 1e60 * 1e60 * 1e-60 * 1e-60, 1.0),
        (lambda x: x * 1e150 * 1e-150, 1.0),
        (lambda x: x * 0.0 + x * 2.0, 2.0),
        (lambda x: x * 2**70, 2.0**70),
        (lambda x: (x - 2.0) ** 2, 0.0),
        (lambda x: np.where(x > 0, x * 2.0, (x * np.inf) * 0.0), 2.0),
    ],
)
def test_extreme_factors(f: Callable[..., Any], expected: float) -> None:
    with np.errstate(invalid="ignore"):
        for _ in range(3):
            found = grad(f)(2.0)
    close(found, expected)


def test_division_by_zero_is_what_numpy_makes_of_it() -> None:
    with np.errstate(all="ignore"):
        for _ in range(3):
            assert grad(lambda x: (2.0 * x) / 0.0)(1.0) == np.inf
            assert grad(lambda x: (2.0 * x) / 0)(1.0) == np.inf
            assert grad(lambda x: 1.0 / (2.0 * x))(0.0) == -np.inf
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        grad(lambda x: (2.0 * x) * 1e308 * 1e308)(1.0)
    with pytest.raises(OverflowError):  # NumPy's own
        grad(lambda x: 2.0 * x * 10**400)(1.0)


def test_several_outputs() -> None:
    def f(x: Any) -> Any:
        s = 2.0 * x
        return {"a": s, "b": [s, s + 1.0, 3.0 * s], "c": x, "d": s * s}

    for _ in range(3):
        value, pullback = vjp(f, X)
    close(value["b"], [2 * X, 2 * X + 1, 6 * X])
    one, zero = np.float64(1), np.float64(0)
    (g,) = pullback({"a": one, "b": [one, one, one], "c": one, "d": one})
    close(g, 2 + 2 + 2 + 6 + 1 + 8 * X)
    (g,) = pullback({"a": zero, "b": [zero, zero, one], "c": zero, "d": zero})
    close(g, 6.0)


def test_writing_into_arrays_and_in_place() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        total = 0.0
        for k in range(3):
            y[k] = 2.0 * x[k] + 1.0
            total += 3.0 * x[k]
            total *= 2.0
        return np.sum(y * y) + total

    x = np.array([0.5, 1.5, 2.5])
    for _ in range(3):
        found = grad(f)(x)
    close(found, 4 * (2 * x + 1) + np.array([24.0, 12.0, 6.0]))


def test_a_scalar_kept_for_later_raises() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(2.0 * x)
        return x

    for _ in range(3):
        grad(f)(1.0)
    assert type(kept[-1]) is ScaledTensor
    for use in (lambda s: s + 1.0, lambda s: s * s, np.sin, lambda s: -s, lambda s: np.stack([s, s])):
        with pytest.raises(EscapedTensorError):
            use(kept[-1])
    with pytest.raises(EscapedTensorError):
        grad(lambda x: x * kept[-1])(1.0)


def test_it_cannot_be_assigned_into() -> None:
    def f(x: Any) -> Any:
        s = 2.0 * x
        s[...] = 1.0
        return s

    for _ in range(2):
        with pytest.raises(TypeError):
            grad(f)(1.0)


A = np.array([0.5, 1.5, -2.5])
ADDED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "times itself": (lambda x: x * (x + 1), 2 * A + 1),
    "both": (lambda x: (x + 1) * (x - 2.0), 2 * A - 1),
    "squared": (lambda x: (3 + x) * (3 + x) + (x + 1) ** 2, 4 * A + 8),
    "the same array": (lambda x: (y := x - 1.0) * y, 2 * A - 2),
    "over": (lambda x: (x + 4.0) / (x - 5.0), -9 / (A - 5) ** 2),
    "remainder": (lambda x: x * np.remainder(x, 2.0), np.remainder(A, 2.0) + A),
    "joined": (lambda x: np.concatenate([x, x + 1, x - 1]) ** 2, 6 * A),
    "reversed": (lambda x: (x[::-1] + 1) * x, 2 * A[::-1] + 1),
    "broadcast": (lambda x: (x + 1)[:, None] * (x - 1), 2 * (np.sum(A)) * np.ones(3)),
    "written before": (
        lambda x: with_first(x + 1, x),
        np.array([1 + 0 * A[0], 1, 1]) * (A + 1) + A * np.array([0, 1, 1]),
    ),
    "written after": (lambda x: (y := 1.0 * x, z := y + 1, with_first(y, x), z * x)[-1], 2 * A + 1),
}


def with_first(x: Any, factor: Any) -> Any:
    x[0] = 1.5
    return x * factor


@pytest.mark.parametrize("name", ADDED)
def test_arrays_to_which_a_number_was_added(name: str) -> None:
    f, expected = ADDED[name]
    for _ in range(3):
        found = grad(lambda x: np.sum(f(x)))(A)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_dtypes_of_arrays_to_which_a_number_was_added() -> None:
    for dtype in (np.float32, np.complex64):
        for _ in range(3):
            found = grad(lambda x: np.sum(np.real(x * (x + 1.0))))(A.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, 2 * A + 1, rtol=1e-6)
    for _ in range(3):
        found = grad(lambda x: np.sum(np.float_power(x + np.float32(1), 2.0) + (x + np.float64(2))))(
            A.astype(np.float32)
        )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2 * A + 3, rtol=1e-6)


def test_outputs_that_share_a_node() -> None:
    for _ in range(3):
        value, pullback = vjp(lambda x: (x, x + 1.0, x - 1.0, 2.0 + x), A)
    np.testing.assert_array_equal(value[3], A + 2)
    one, zero = np.ones(3), np.zeros(3)
    np.testing.assert_array_equal(pullback((zero, one, zero, one))[0], 2 * one)
    np.testing.assert_array_equal(pullback((one, one, one, one))[0], 4 * one)
    for block in jacrev(lambda x: (x + 1.0, x - 1.0))(A):
        np.testing.assert_array_equal(block, np.eye(3))
