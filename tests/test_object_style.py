"""The object style beyond the course: own operations, training loops, what a learner looks at, and bad input."""

from __future__ import annotations

import copy
import gc
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import grad, value_and_grad
from meintorch.tensor import Tensor


def relu(x: Tensor) -> Tensor:
    """A learner's own operation, as the course writes it."""
    out = Tensor(np.maximum(0, x.data), (x,), "relu")

    def _backward() -> None:
        x.grad += (out.data > 0) * out.grad

    out._backward = _backward
    return out


class Value(Tensor):
    """A learner's subclass with a method of its own."""

    def cube(self) -> Value:
        out = Value(self.data**3, (self,), "cube")

        def _backward() -> None:
            self.grad += 3 * self.data**2 * out.grad

        out._backward = _backward
        return out


def product(a: Tensor, b: Tensor) -> Tensor:
    """An own operation with two parents, which may be the same tensor."""
    out = Tensor(a.data * b.data, (a, b), "product")

    def _backward() -> None:
        a.grad += b.data * out.grad
        b.grad += a.data * out.grad

    out._backward = _backward
    return out


def test_own_operation_between_built_in_ones() -> None:
    x = Tensor([-1.0, 2.0, 3.0])
    y = relu(x * 2.0) * x  # 2 x**2 where x > 0
    y.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 8.0, 12.0])
    y.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 16.0, 24.0])


def test_own_operation_with_one_tensor_twice_and_after_another_pass() -> None:
    x = Tensor(3.0)
    y = x * x
    y.backward()  # leaves 6 in x.grad, which must not be counted again
    z = product(x, x) + product(y, x)  # x**2 + x**3
    z.backward()
    assert x.grad == 6.0 + 6.0 + 27.0
    assert y.grad == 1.0 + 3.0


def test_own_method_in_a_subclass_survives_operations() -> None:
    x = Value(2.0)
    y = (x * 2.0).cube() + x  # 8 x**3 + x
    y.backward()
    assert isinstance(x * 2.0, Value)
    assert x.grad == 24 * 4.0 + 1


def test_own_operation_deep_in_a_chain() -> None:
    x = Tensor(1.0)
    y = x
    for _ in range(3000):
        y = relu(y) * 1.0
    y.backward()
    assert x.grad == 1.0


def test_own_operation_that_fails_says_where_and_leaves_grads_alone() -> None:
    x = Tensor(2.0)
    y = x * 3.0
    out = Tensor(1.0, (y,), "broken")

    def _backward() -> None:
        raise ZeroDivisionError("of the learner")

    out._backward = _backward
    with pytest.raises(ZeroDivisionError, match="of the learner") as caught:
        (out * 1.0).backward()
    assert caught.value.__notes__ == ["in the _backward of the operation 'broken'"]
    assert y.grad == 0.0


def test_own_operation_without_a_backward_is_an_error_not_a_zero() -> None:
    x = Tensor([1.0, 2.0])
    out = Tensor(x.data * 2, (x,), "double")
    with pytest.raises(errors.NoRuleError, match="'double'.*_backward"):
        (out * x).backward()


def test_bad_children_and_ragged_data() -> None:
    with pytest.raises(errors.InputError, match=r"\(x,\)"):
        Tensor(1.0, Tensor(2.0), "op")  # type: ignore[arg-type]
    with pytest.raises(errors.InputError, match="real numbers"):
        Tensor([[1, 2], [3]])


def test_what_a_learner_looks_at() -> None:
    x, w = Tensor(2.0), Tensor([1.0, 3.0])
    y = x * w
    assert y._op == "*"
    assert set(y._children) == {x, w}
    assert (y @ w)._op == "@"
    assert np.tanh(x)._op == "tanh"
    assert x._children == ()
    assert x._op == ""
    assert repr(x) == "Tensor(2.)"
    assert repr(w) == "Tensor([1., 3.])"
    assert y.shape == (2,)
    assert y.data.dtype == np.float64
    assert len(w) == 2
    assert [float(v.data) for v in w] == [1.0, 3.0]
    seen = {x, y}
    assert x in seen
    assert w not in seen


def test_walking_by_hand_with_the_built_in_closures() -> None:
    x = Tensor(3.0)
    y = x * x
    z = y + x
    z.grad = np.array(1.0)
    z._backward()
    y._backward()
    x._backward()
    assert x.grad == 7.0


def test_backward_from_any_shape_is_seeded_with_ones() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    y = x * x
    y.backward()
    np.testing.assert_array_equal(x.grad, 2 * x.data)
    np.testing.assert_array_equal(y.grad, np.ones((2, 2)))


def test_backward_on_a_leaf() -> None:
    x = Tensor([1.0, 2.0])
    x.backward()
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])


def test_grad_is_an_ordinary_array_that_can_be_assigned() -> None:
    x = Tensor([1.0, 2.0])
    x.grad[0] = 5.0
    np.testing.assert_array_equal(x.grad, [5.0, 0.0])
    x.grad = [1, 2]
    (x * 3.0).backward()
    np.testing.assert_array_equal(x.grad, [4.0, 5.0])
    x.grad = 0.0
    np.testing.assert_array_equal(x.grad, [0.0, 0.0])
    with pytest.raises(ValueError, match="shape"):
        x.grad = np.ones(3)


def test_gradients_share_memory_with_nothing() -> None:
    x = Tensor([1.0, 2.0])
    y = x + 0.0
    y.backward()
    assert not np.shares_memory(x.grad, y.grad)
    y.grad[:] = 9.0
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])


def test_training_loop_as_the_course_writes_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 3))
    target = X @ np.array([[1.0], [-2.0], [0.5]]) + 0.3
    w, b = Tensor(np.zeros((3, 1))), Tensor(np.zeros(1))
    data = w.data
    for _ in range(200):
        error = Tensor(X) @ w + b - target
        loss = (error * error).mean()
        w.zero_grad()
        b.zero_grad()
        loss.backward()
        w.data -= 0.2 * w.grad
        b.data -= 0.2 * b.grad
    assert w.data is data
    np.testing.assert_allclose(w.data, [[1.0], [-2.0], [0.5]], atol=1e-6)
    np.testing.assert_allclose(b.data, [0.3], atol=1e-6)


def test_memory_of_a_training_loop_is_flat_without_the_collector() -> None:
    w = Tensor(np.ones(50_000))

    def step() -> None:
        loss = (np.tanh(w * 2.0) * w).sum()
        w.zero_grad()
        loss.backward()
        w.data -= 1e-3 * w.grad

    step()
    gc.collect()
    gc.disable()
    try:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(30):
            step()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 500_000  # one array is 400 kB


def test_data_changed_between_forward_and_backward_do_not_change_the_gradient() -> None:
    w = Tensor([2.0, 3.0])
    y = w * w
    w.data -= 1.0
    y.backward()
    np.testing.assert_array_equal(w.grad, [4.0, 6.0])
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


def test_data_can_be_assigned() -> None:
    w = Tensor([2.0, 3.0])
    w.data = np.array([5, 6])
    assert w.data.dtype == np.float64
    (w * w).backward()
    np.testing.assert_array_equal(w.grad, [10.0, 12.0])


def test_data_of_a_result_cannot_be_changed_behind_its_users() -> None:
    w = Tensor([2.0, 3.0])
    y = w * 2.0
    z = y * y
    with pytest.raises(ValueError, match="read-only"):
        y.data[0] = 9.0
    z.backward()
    np.testing.assert_array_equal(w.grad, [16.0, 24.0])


def test_the_users_array_is_copied() -> None:
    a = np.array([1.0, 2.0])
    x = Tensor(a)
    x.data[0] = 7.0
    assert a[0] == 1.0


def test_a_deep_graph() -> None:
    x = Tensor(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1e-6
    y.backward()
    assert x.grad == 1.0
    del y


def test_a_branch_not_taken_contributes_nothing() -> None:
    x = Tensor([0.0, 4.0])
    y = np.where(x > 0, np.sqrt(x), 0.0)
    y.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 0.25])
    with np.errstate(divide="ignore"):
        z = relu(np.where(x > 0, np.log(x), 0.0)) * 2.0
    z.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 0.75])


def test_walking_by_hand_through_several_outputs() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    a, b = np.split(x, 2)
    a.grad = np.ones(2)
    b.grad = np.full(2, 5.0)
    a._backward()
    b._backward()
    np.testing.assert_array_equal(x.grad, [1.0, 1.0, 5.0, 5.0])


def test_grad_of_a_number_stays_an_array() -> None:
    x = Tensor(2.0)
    y = x * x
    for _ in range(3):
        y.backward()
        assert type(x.grad) is np.ndarray
    assert x.grad == 12.0


def test_several_outputs() -> None:
    x = Tensor([5.0, 7.5])
    whole, rest = divmod(x, 2.0)
    (rest * x).sum().backward()  # d (x % 2) x = x % 2 + x
    np.testing.assert_array_equal(x.grad, [1.0 + 5.0, 1.5 + 7.5])
    assert isinstance(whole, np.ndarray)


def test_in_place_operators_rebind() -> None:
    x = Tensor([1.0, 2.0])
    total = Tensor([0.0, 0.0])
    first = total
    for _ in range(3):
        total += x * x
    total.backward()
    np.testing.assert_array_equal(first.data, [0.0, 0.0])
    np.testing.assert_array_equal(x.grad, [6.0, 12.0])


def test_ndarray_on_the_left() -> None:
    x = Tensor([1.0, 2.0])
    y = np.array([3.0, 4.0]) * x - np.float64(1.0)
    assert isinstance(y, Tensor)
    y.backward()
    np.testing.assert_array_equal(x.grad, [3.0, 4.0])


def test_a_functional_derivative_of_a_function_that_uses_a_tensor() -> None:
    w = Tensor(3.0)
    d = grad(lambda x: w * x * x)(2.0)  # 2 w x, still an object-style tensor
    assert isinstance(d, Tensor)
    d.backward()
    assert d.data == 12.0
    assert w.grad == 4.0
    value, slope = value_and_grad(lambda x: x * x * x)(w)
    (value + slope).backward()  # w**3 + 3 w**2
    assert w.grad == 4.0 + 27.0 + 18.0


def test_pickle_and_copy_of_a_leaf() -> None:
    x = Tensor([1.0, 2.0])
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        np.testing.assert_array_equal(y.data, x.data)
        assert y is not x
    with pytest.raises(TypeError, match=r"Tensor\(x.data\)"):
        copy.deepcopy(x * 2.0)


@pytest.mark.parametrize("bad", [True, "text", 1j, None, np.array([object()]), [True, False]])
def test_bad_data(bad: Any) -> None:
    with pytest.raises(errors.InputError, match="real numbers"):
        Tensor(bad)


def test_a_transforms_value_is_not_an_object_style_tensor() -> None:
    def f(x: Any) -> Any:
        return Tensor(x) * 2.0

    with pytest.raises(errors.LostDerivativeError, match="use the value as it is"):
        grad(f)(1.0)
    for use in (lambda x: x.grad, lambda x: x.backward(), lambda x: x.data, lambda x: x.zero_grad()):
        with pytest.raises(errors.LostDerivativeError, match="Tensor"):
            grad(use)(1.0)


@pytest.mark.parametrize("use", [float, np.asarray, lambda t: np.array([t, t]), lambda t: t.item()])
def test_losing_the_derivative_raises(use: Any) -> None:
    with pytest.raises(errors.LostDerivativeError, match="lose its derivative"):
        use(Tensor(1.0))
