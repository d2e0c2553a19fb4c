"""The course's tests: what the learner's own class must do, and what `meintorch.Tensor` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.tensor import Tensor, as_tensor, unbroadcast

EPS, TOLERANCE = 1e-6, 1e-5
rng = np.random.default_rng(2)


def central_difference(f: Callable[..., Tensor], arrays: list[np.ndarray[Any, Any]], k: int) -> np.ndarray[Any, Any]:
    """Return the gradient of sum(f) with respect to array k, one entry at a time."""
    out = np.zeros_like(arrays[k])
    for index in np.ndindex(*out.shape):
        plus, minus = [a.copy() for a in arrays], [a.copy() for a in arrays]
        plus[k][index] += EPS
        minus[k][index] -= EPS
        up = np.sum(f(*[Tensor(a) for a in plus]).data)
        down = np.sum(f(*[Tensor(a) for a in minus]).data)
        out[index] = (up - down) / (2 * EPS)
    return out


def check(f: Callable[..., Tensor], *arrays: Any) -> None:
    """Hold every gradient against a central difference."""
    values = [np.array(a, dtype=np.float64) for a in arrays]
    tensors = [Tensor(a) for a in values]
    f(*tensors).backward()
    for k, t in enumerate(tensors):
        assert t.grad.shape == values[k].shape
        np.testing.assert_allclose(t.grad, central_difference(f, values, k), rtol=TOLERANCE, atol=TOLERANCE)


def test_derivative_of_x_times_x_plus_x_at_3_is_7() -> None:
    x = Tensor(3.0)
    y = x * x + x
    y.backward()
    assert y.data == 12.0
    assert x.grad == 7.0


def test_x_plus_x_accumulates_to_2() -> None:
    x = Tensor(5.0)
    (x + x).backward()
    assert x.grad == 2.0


def test_gradients_of_a_matrix_product() -> None:
    A, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[5.0], [6.0]])
    y = A @ b
    np.testing.assert_array_equal(y.data, [[17.0], [39.0]])
    y.backward()
    assert A.grad.shape == A.shape == (2, 2)
    assert b.grad.shape == b.shape == (2, 1)
    np.testing.assert_array_equal(A.grad, [[5.0, 6.0], [5.0, 6.0]])
    np.testing.assert_array_equal(b.grad, [[4.0], [6.0]])


def test_grad_is_zeros_before_a_backward_pass_and_zero_grad_cleans_up() -> None:
    x = Tensor([1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [0.0, 0.0])
    (x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    x.zero_grad()
    np.testing.assert_array_equal(x.grad, [0.0, 0.0])


@pytest.mark.parametrize(
    ("small", "want"),
    [([[1.0, 2.0, 3.0]], [[4.0, 4.0, 4.0]]), ([1.0, 2.0, 3.0], [4.0] * 3), ([[1.0]] * 4, [[3.0]] * 4), (2.0, 12.0)],
    ids=["row", "vector", "column", "scalar"],
)
def test_broadcasting(small: Any, want: Any) -> None:
    X, b = Tensor(np.ones((4, 3))), Tensor(small)
    (X + b).backward()
    np.testing.assert_array_equal(b.grad, want)
    np.testing.assert_array_equal(X.grad, np.ones((4, 3)))


def test_a_value_used_twice_and_a_diamond() -> None:
    a = Tensor(3.0)
    b = a + a
    c = b * b + b  # 4 a**2 + 2 a
    c.backward()
    assert a.grad == 8 * 3.0 + 2
    assert b.grad == 2 * 6.0 + 1
    x = Tensor(2.0)
    left, right = x * 3.0, x * x
    (left * right).backward()  # 3 x**3
    assert x.grad == 9 * 4.0


def test_two_backward_calls_double_every_gradient_exactly() -> None:
    x = Tensor([0.1, 0.7])
    y = x * x * x
    z = y.tanh() if hasattr(y, "tanh") else np.tanh(y)
    z.backward()
    once = {id(t): t.grad.copy() for t in (x, y, z)}
    z.backward()
    for t in (x, y, z):
        np.testing.assert_array_equal(t.grad, 2 * once[id(t)])


def test_two_roots_share_a_graph() -> None:
    x = Tensor(3.0)
    y = x * x
    y.backward()
    (y * x).backward()
    assert x.grad == 2 * 3.0 + 3 * 9.0
    assert y.grad == 1 + 3.0


A, B, row, column, positive = (
    rng.normal(size=(3, 4)),
    rng.normal(size=(3, 4)),
    rng.normal(size=4),
    rng.normal(size=(3, 1)),
    rng.uniform(0.5, 2.0, size=(3, 4)),
)


@pytest.mark.parametrize(
    ("f", "arrays"),
    [
        (lambda a, b: a + b, (A, row)),
        (lambda a, b: a - b, (A, column)),
        (lambda a, b: a * b, (A, row)),
        (lambda a, b: a / b, (A, positive)),
        (lambda a, b: a**b, (positive, row)),
        (lambda a: a**2, (A,)),
        (lambda a: a**-1.5, (positive,)),
        (lambda a: 2.0**a, (A,)),
        (lambda a: -a + 1.0, (A,)),
        (lambda a: 1.0 - a, (A,)),
        (lambda a: 3.0 / a, (positive,)),
        (lambda a: np.ones(4) * a, (A,)),
        (lambda a, b: a @ b, (A, B.T.copy())),
        (lambda a, b: a @ b, (A, row)),
        (lambda a, b: a @ b, (row, row + 1)),
        (lambda a: np.ones(3) @ a, (A,)),
        (lambda a: a.T @ a, (A,)),
        (lambda a: a.sum(axis=0) * a, (A,)),
        (lambda a: a.sum(), (A,)),
        (lambda a: a.mean(axis=1), (A,)),
        (lambda a: a.max(axis=1), (A,)),
        (lambda a: a.reshape(4, 3) * 2.0, (A,)),
        (lambda a: a[1:, ::2] * a[0, 0], (A,)),
        (lambda a: a[[0, 0, 2]], (A,)),
        (lambda a: np.exp(a), (A,)),
        (lambda a: np.log(a), (positive,)),
        (lambda a: np.tanh(a), (A,)),
        (lambda a: np.sin(a) * np.cos(a), (A,)),
        (lambda a: np.sqrt(a), (positive,)),
        (lambda a: np.maximum(a, 0.0), (A,)),
        (lambda a: np.where(a.data > 0, a, 0.1 * a), (A,)),
        (lambda a, b: np.concatenate([a, b]), (A, B)),
        (lambda a, b: np.stack([a, b, a]), (A, B)),
        (lambda a: abs(a), (A,)),
        (lambda a: np.split(a, 2, axis=1)[1] * 2.0, (A,)),
    ],
)
def test_every_operation_against_a_central_difference(f: Callable[..., Tensor], arrays: tuple[Any, ...]) -> None:
    check(f, *arrays)


def test_a_layer_with_softmax() -> None:
    def f(x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        z = x @ W + b
        e = np.exp(z - z.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        return -np.log(p[np.arange(3), [0, 2, 1]]).mean()

    check(f, A, rng.normal(size=(4, 3)), rng.normal(size=3))


def test_as_tensor_and_unbroadcast() -> None:
    x = Tensor(1.0)
    assert as_tensor(x) is x
    assert isinstance(as_tensor([1, 2]), Tensor)
    assert as_tensor([1, 2]).data.dtype == np.float64
    np.testing.assert_array_equal(unbroadcast(np.ones((4, 3)), (3,)), [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(unbroadcast(np.ones((4, 3)), (4, 1)), [[3.0]] * 4)
    np.testing.assert_array_equal(unbroadcast(np.ones((4, 3)), ()), 12.0)
    np.testing.assert_array_equal(unbroadcast(np.ones((2, 4, 3)), (1, 3)), [[8.0] * 3])
