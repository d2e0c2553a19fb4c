"""What cannot be differentiated raises an error that names it, the user's own line, and the way out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import Tensor, errors
from meintorch.func import grad, jvp, primitive, stop_gradient, value_and_grad, vjp, vmap


def line_of(f: Callable[..., Any], text: str) -> int:
    """Return the number of the line of a function's source that holds a text."""
    lines, start = inspect.getsourcelines(f)
    return start + next(k for k, line in enumerate(lines) if text in line)


twice = np.frompyfunc(lambda v: 2 * v, 1, 1)


def no_rule(x: Any) -> Any:
    y = x * 2.0
    z = twice(y)
    return np.sum(z)


def test_a_function_without_a_rule_names_itself_and_the_line() -> None:
    with pytest.raises(
        errors.NoRuleError, match=r"<lambda> \(vectorized\) has no derivative rule.*stop_gradient"
    ) as caught:
        grad(no_rule)(np.ones(3))
    assert f"test_errors.py line {line_of(no_rule, 'twice(y)')}, in no_rule" in str(caught.value)


@pytest.mark.parametrize(
    ("lose", "advice"),
    [
        (float, r"float\(stop_gradient"),
        (math.sin, r"np\.sin"),
        (np.asarray, r"np\.stack"),
        (lambda t: np.array([t, t]), r"np\.stack"),
        (lambda t: np.array(t), r"np\.stack"),
        (lambda t: np.ones(2).dot(t), r"np\.stack"),
        (lambda t: np.full(3, t), r"np\.stack|np\.where"),
        (complex, r"x \+ 0j"),
        (lambda t: [1, 2][t], r"int\(x\)"),
        (lambda t: t.item(), r"stop_gradient"),
        (lambda t: t.tolist(), r"stop_gradient"),
    ],
)
def test_losing_the_derivative(lose: Any, advice: str) -> None:
    with pytest.raises(errors.LostDerivativeError, match=advice) as caught:
        grad(lambda x: lose(x) * x)(2.0)
    assert "test_errors.py line" in str(caught.value)


def test_assigning_into_a_plain_array_has_a_note_with_the_line_and_the_way_out() -> None:
    def fill(x: Any) -> Any:
        out = np.zeros(3)
        out[1] = x * 2.0
        return np.sum(out)

    with pytest.raises((TypeError, ValueError)) as caught:
        grad(fill)(1.0)
    notes = "\n".join([*getattr(caught.value, "__notes__", []), str(caught.value)])
    assert "np.stack" in notes
    assert f"test_errors.py line {line_of(fill, 'out[1]')}" in notes


def test_in_place_operator_with_a_plain_array_on_the_left() -> None:
    def accumulate(x: Any) -> Any:
        total = np.zeros(3)
        alias = total
        total += x
        return np.sum(alias)

    with pytest.raises(errors.InPlaceError, match=r"a = a \+ t.*np\.zeros_like") as caught:
        grad(accumulate)(np.ones(3))
    assert f"line {line_of(accumulate, 'total += x')}" in str(caught.value)
    with pytest.raises(errors.InPlaceError, match="out="):
        grad(lambda x: np.sum(np.sum(x, axis=0, out=np.zeros(3))))(np.ones((2, 3)))


@pytest.mark.parametrize("make", [lambda: np.matrix([[1.0, 2.0]]), lambda: np.ma.array([1.0, 2.0], mask=[1, 0])])
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_subclasses_of_ndarray_as_constants(make: Any) -> None:
    constant = make()
    for use in (lambda x: x + constant, lambda x: x * constant, lambda x: np.multiply(x, constant)):
        with pytest.raises(errors.InputError, match=r"np\.asarray"):
            grad(lambda x, use=use: np.sum(use(x)))(np.ones(2))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda a, t: np.put(a, [0], t[0]), r"np\.put"),
        (lambda a, t: np.place(a, a > 0, t), r"np\.place"),
        (lambda a, t: np.putmask(a, a > 0, t), r"np\.putmask"),
        (lambda a, t: np.copyto(a, t), r"np\.copyto"),
        (lambda a, t: np.put_along_axis(a, np.array([0]), t[:1], 0), r"np\.put_along_axis"),
        (lambda a, t: np.add.at(a, [0], t[0]), r"np\.add\.at"),
        (lambda a, t: np.full_like(a, t[0]), r"np\.full_like"),
    ],
)
def test_plain_arrays_are_not_written_into_by_functions(write: Any, name: str) -> None:
    with pytest.raises(errors.InPlaceError, match=rf"{name}.*np\.zeros_like|np\.zeros_like.*{name}"):
        grad(lambda t: (write(np.ones(3), t), np.sum(t))[1])(np.ones(3))


@pytest.mark.parametrize("write", [lambda t: t.__setitem__(0, 1.0), lambda t: t.fill(1.0), lambda t: t.sort()])
def test_tensors_of_the_object_style_are_not_written_into(write: Any) -> None:
    with pytest.raises(errors.InPlaceError, match=r"assign to t\.data"):
        write(Tensor([1.0, 2.0]))


def test_scalars_are_rebound_as_in_numpy() -> None:
    def f(x: Any) -> Any:
        total = x[0]
        first = total
        total *= x[1]
        total += 1.0
        return total * first

    np.testing.assert_allclose(grad(f)(np.array([2.0, 3.0])), [13.0, 4.0])


def test_options_without_a_rule_are_refused_not_ignored() -> None:
    with pytest.raises(errors.NoRuleError, match="where="):
        grad(lambda x: np.sum(np.modf(x, where=np.array([True, False, True]))[0]))(np.ones(3))
    with pytest.raises(errors.NoRuleError, match="'initial'"):
        grad(lambda x: np.max(x * np.ones(3), initial=x))(1.0)


def test_a_value_used_after_its_trace_ended() -> None:
    kept = []

    def f(x: Any) -> Any:
        kept.append(x * 2.0)
        return x * x

    grad(f)(np.array([1.0, 2.0])[0])
    (leaked,) = kept
    for use in (
        lambda t: t * 2.0,
        lambda t: 2.0 * t,
        lambda t: t + t,
        lambda t: -t,
        np.sin,
        np.sum,
        lambda t: t > 1.0,
        lambda t: grad(lambda y: y * t)(1.0),
        lambda t: np.shape(t),
    ):
        with pytest.raises(errors.EscapedTensorError, match="has_aux=True"):
            use(leaked)
    assert "2." in repr(leaked)


def test_errors_in_the_backward_pass_name_the_derivative_and_the_line() -> None:
    def broken(g: Any) -> Any:
        raise ZeroDivisionError("of the rule")

    @primitive(x=broken)
    def odd(x: Any) -> Any:
        return np.abs(x)

    def f(x: Any) -> Any:
        y = x * 2.0
        return np.sum(odd(y))

    with pytest.raises(ZeroDivisionError, match="of the rule") as caught:
        grad(f)(np.eye(2))
    (note,) = caught.value.__notes__
    assert note.startswith("in the derivative of odd, ")
    assert f"test_errors.py line {line_of(f, 'odd(y)')}" in note


def test_the_users_own_exception_is_left_alone() -> None:
    class MyError(Exception):
        pass

    def f(x: Any) -> Any:
        raise MyError("mine")

    for call in (lambda: grad(f)(1.0), lambda: value_and_grad(f)(1.0), lambda: vjp(f, 1.0)):
        with pytest.raises(MyError, match="^mine$") as caught:
            call()
        assert not hasattr(caught.value, "__notes__")


def test_warnings_of_the_forward_pass_are_numpys_own_and_the_backward_pass_adds_none() -> None:
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        grad(np.log)(0.0)
    assert grad(np.sqrt)(0.0) == np.inf


def test_what_works_on_a_traced_value() -> None:
    def f(x: Any) -> Any:
        assert int(x) == 2
        assert bool(x)
        assert f"{x:.1f}" == "2.5"
        assert round(x) == 2
        assert math.floor(x) == 2
        assert math.ceil(x) == 3
        assert math.trunc(x) == 2
        assert x > 2
        assert 3 > x >= 2.5
        assert x == 2.5
        assert x != 2
        with pytest.raises(errors.LostDerivativeError, match=r"float\(stop_gradient"):
            {x: 1}[x]
        assert x.shape == ()
        assert x.ndim == 0
        assert x.size == 1
        assert x.dtype == np.float64
        assert "2.5" in repr(x)
        assert float(stop_gradient(x)) == 2.5
        with pytest.raises(TypeError, match="no axes"):
            len(x)
        with pytest.raises(TypeError, match="without axes"):
            iter(x)
        return x

    assert grad(f)(2.5) == 1.0


@pytest.mark.parametrize(
    "name", ["special.logsumexp", "special.softmax", "stats.norm.logpdf", "linalg.solve", "integrate.simpson"]
)
def test_a_function_of_scipy_that_is_no_ufunc_is_named(name: str) -> None:
    package, *names = name.split(".")
    fun = pytest.importorskip(f"scipy.{package}")
    for attribute in names:
        fun = getattr(fun, attribute)
    args = (np.ones(2),) if package == "linalg" else ()

    def f(x: Any) -> Any:
        return np.sum(fun(np.outer(x, x) + np.eye(3)[:2, :2] if args else x, *args))

    for transform in (grad, jvp_of, vmap):
        with pytest.raises(
            errors.LostDerivativeError, match=rf"in .*f: scipy\.{package}\..*{names[-1]}, which needs.*Write it"
        ) as caught:
            transform(f)(np.ones((2, 2)) if transform is vmap else np.ones(2))
        assert f"test_errors.py line {line_of(f, 'fun(')}" in str(caught.value)


def test_a_function_of_numpy_that_sees_no_traced_value_is_named() -> None:
    with pytest.raises(errors.LostDerivativeError, match=r"numpy\.full, which needs.*np\.stack"):
        grad(lambda x: np.sum(np.full(3, x)))(2.0)
    with pytest.raises(errors.LostDerivativeError, match=r"numpy\.lib\.vectorize, which needs"):
        grad(lambda x: np.sum(np.vectorize(lambda e: e)(x)))(np.ones(2))


def test_a_class_that_is_not_known_can_be_made_known() -> None:
    class Parameters:
        rate = 1.0

    with pytest.raises(errors.InputError, match="make it a dataclass, or register it with register_pytree_node"):
        grad(lambda p: p.rate)(Parameters())


def jvp_of(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jvp(f, (x,), (x,))
