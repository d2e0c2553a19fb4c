"""A gradient that is NaN though the value is not comes with a warning that says where that began."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import Tensor
from meintorch.errors import NaNWarning
from meintorch.func import checkpoint, custom_vjp, grad, value_and_grad, vjp, vmap

pytestmark = pytest.mark.usefixtures("engine")


def line_of(text: str) -> int:
    """Return the number of the line of this file that ends in a comment."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    (found,) = [k for k, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found


def report_of(call: Callable[[], Any]) -> str:
    """Return the one warning that a call gives, which has to show the line in this file that made the call."""
    with pytest.warns(NaNWarning) as caught:
        call()
    (warning,) = caught
    assert warning.filename == __file__
    assert warning.lineno == call.__code__.co_firstlineno
    return str(warning.message)


def there_and_back(x: Any) -> Any:
    root = np.sqrt(x)  # the root
    return np.sum(root**2)


def root_of_squares(x: Any) -> Any:
    square = np.sum(x * x)  # the squares
    return np.sqrt(square)  # the root of squares


def test_the_derivative_and_the_line_are_named() -> None:
    message = report_of(lambda: grad(there_and_back)(np.array([1.0, 0.0])))
    assert f"the derivative of np.sqrt, {__file__} line {line_of('the root')}, in there_and_back" in message
    assert "infinity came from" not in message
    assert report_of(lambda: value_and_grad(there_and_back)(0.0)) == message


def test_the_infinity_before_it_is_named() -> None:
    message = report_of(lambda: grad(root_of_squares)(np.zeros(2)))
    assert f"NaN came from the derivative of np.multiply, {__file__} line {line_of('the squares')}" in message
    assert f"infinity came from the derivative of np.sqrt, {__file__} line {line_of('the root of squares')}" in message


def test_a_pullback_and_a_checkpoint_report_as_well() -> None:
    _, pullback = vjp(root_of_squares, np.zeros(2))
    assert "the derivative of np.multiply" in report_of(lambda: pullback(1.0))
    assert "the derivative of checkpoint" in report_of(lambda: grad(checkpoint(root_of_squares))(np.zeros(2)))


def test_several_outputs_and_sums_of_infinities() -> None:
    message = report_of(lambda: grad(lambda x: np.linalg.eigh(x)[1][1, 0])(np.eye(2)))
    assert "the derivative of np.linalg.eigh" in message
    message = report_of(lambda: grad(lambda x: np.sqrt(x) - np.sqrt(x))(0.0))
    assert "the derivative of np.sqrt" in message


def test_a_rule_of_ones_own_is_named() -> None:
    def backward(saved: Any, ct: Any) -> Any:
        if not isinstance(ct, (np.ndarray, np.generic)):
            raise TypeError("no masks")  # which leaves the first walk's result, and its report
        return (ct * np.nan,)

    strange = custom_vjp(lambda x: x * 1.0)
    strange.defvjp(lambda x: (x, None), backward)
    assert "the derivative of <lambda>, " in report_of(lambda: grad(strange)(1.0))


def test_a_value_that_is_nan_needs_no_report() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NaNWarning)
        with np.errstate(all="ignore"):
            x = np.array([0.0, np.nan])
            assert np.isnan(grad(there_and_back)(x)).all()
            assert np.isnan(grad(lambda x: np.sum(np.nan * x))(x)).all()
            assert np.isnan(grad(lambda x: 0.0 * np.log(x))(0.0))
            assert np.isnan(vjp(np.sin, x)[1](np.array([np.nan, 0.0]))[0][0])


def test_branches_not_taken_and_infinite_gradients_need_no_report() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NaNWarning)
        assert np.array_equal(grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))(np.zeros(2)), [0.0, 0.0])
        x = np.zeros((2, 2))[:, :1]
        signs = np.array([[1.0], [-1.0]])
        assert np.array_equal(grad(lambda x: np.sum(signs * np.sqrt(x)))(x), [[np.inf], [-np.inf]])


def test_an_inner_transform_is_silent_and_the_outer_one_reports() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NaNWarning)
        assert np.isnan(vmap(grad(root_of_squares))(np.zeros((3, 2)))).all()

    def slope(x: Any) -> Any:
        return grad(lambda y: np.abs(y) ** 1.5)(x)

    message = report_of(lambda: grad(slope)(0.0))
    assert "the derivative of np.power" in message
    assert "meintorch/rules" not in message


# ---------------------------------------------------------------- the object style


def doubled(a: Tensor, runs: list[Any], hidden: Tensor | None = None) -> Tensor:
    """Make an operation as learners do, which notes with what cotangent it runs."""
    out = Tensor(a.data * 2.0, (a,), "doubled")

    def _backward() -> None:
        runs.append(out.grad)
        a.grad += 2.0 * out.grad
        if hidden is not None:
            hidden.grad += np.sum(out.grad)

    out._backward = _backward
    return out


def test_the_object_style_reports() -> None:
    x = Tensor([0.0, 1.0])
    y = there_and_back(x)
    message = report_of(lambda: y.backward())
    assert f"the derivative of np.sqrt, {__file__} line {line_of('the root')}" in message
    np.testing.assert_array_equal(x.grad, [np.nan, 1.0])


def test_a_closure_that_makes_the_nan_is_named() -> None:
    x = Tensor(0.0)
    out = Tensor(0.0, (x,), "bad")

    def _backward() -> None:
        x.grad += out.grad * np.nan

    out._backward = _backward
    y = out * 2.0
    assert "the _backward of the operation 'bad'" in report_of(lambda: y.backward())


@pytest.mark.parametrize("honest", [False, True])
def test_closures_run_once_in_a_backward_pass(honest: bool) -> None:
    runs: list[Any] = []
    x, hidden = Tensor([0.0, 1.0]), Tensor(0.0)
    first = doubled(x, runs, hidden)
    root = np.sqrt(first)
    last = doubled(root**2 if honest else np.where(first.data > 0, root, 0.0), runs, hidden)
    y = last.sum()
    if honest:
        assert "the derivative of np.sqrt" in report_of(lambda: y.backward())
    else:
        y.backward()
    assert len(runs) == 2
    np.testing.assert_array_equal(runs[0], [1.0, 1.0])
    slope = np.array([np.nan, 2.0]) if honest else np.array([0.0, np.sqrt(0.5)])
    np.testing.assert_allclose(runs[1], slope)
    np.testing.assert_allclose(x.grad, 2.0 * slope)
    np.testing.assert_allclose(hidden.grad, 2.0 + np.sum(slope))
