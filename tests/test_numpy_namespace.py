"""meintorch.numpy: NumPy's names, with arrays that traced values can be put into."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meintorch.numpy as mnp
import meintorch.numpy.fft as npfft
import meintorch.numpy.random as npr
from meintorch import Tensor, errors
from meintorch.core.memory import bottom
from meintorch.func import (
    checkpoint,
    custom_jvp,
    custom_vjp,
    fixed_point,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    primitive,
    root,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from meintorch.numpy._wrapped import WRAPPED
from meintorch.numpy.linalg import eigh, norm
from tests.differences import gradient, outputs, weighted

X = np.array([0.7, -1.3, 2.1])
COLUMNS = np.ones((2, 3), order="F")
MAKERS = {
    "zeros": lambda: mnp.zeros((2, 3)),
    "ones": lambda: mnp.ones(3, np.float32),
    "empty": lambda: mnp.empty(3),
    "full": lambda: mnp.full(3, 2.0),
    "eye": lambda: mnp.eye(3, k=1),
    "identity": lambda: mnp.identity(2),
    "tri": lambda: mnp.tri(3),
    "linspace": lambda: mnp.linspace(0, 1, 5),
    "linspace with its step": lambda: mnp.linspace(0, 1, 5, retstep=True)[0],
    "logspace": lambda: mnp.logspace(0, 1, 5),
    "geomspace": lambda: mnp.geomspace(1, 2, 5),
    "arange": lambda: mnp.arange(0.0, 1.0, 0.3),
    "zeros_like": lambda: mnp.zeros_like(X),
    "ones_like": lambda: mnp.ones_like(X),
    "empty_like": lambda: mnp.empty_like(X),
    "full_like": lambda: mnp.full_like(X, 3.0),
    "array": lambda: mnp.array([[1.0, 2.0], [3.0, 4.0]], order="F"),
    "array of an array": lambda: mnp.array(X),
    "array of complex numbers": lambda: mnp.array([1j, 2.0]),
    "copy": lambda: mnp.copy(X),
    "asarray": lambda: mnp.asarray([1.0, 2.0]),
    "asarray of a number": lambda: mnp.asarray(1.0),
    "asanyarray": lambda: mnp.asanyarray((1.0, 2.0)),
    "ascontiguousarray": lambda: mnp.ascontiguousarray([1.0, 2.0]),
    "asfortranarray": lambda: mnp.asfortranarray([[1.0, 2.0]]),
    "fromiter": lambda: mnp.fromiter((k / 2 for k in range(3)), float),
    "r_": lambda: mnp.r_[X, 1.0, 0:3],
    "c_": lambda: mnp.c_[X, X],
    "vectorize": lambda: mnp.vectorize(lambda v: v * v)(X),
}
INTEGERS = {
    "zeros": lambda: mnp.zeros(3, int),
    "ones": lambda: mnp.ones(3, bool),
    "full": lambda: mnp.full(3, 7),
    "arange": lambda: mnp.arange(5),
    "array": lambda: mnp.array([1, 2]),
    "asarray": lambda: mnp.asarray([True]),
    "r_": lambda: mnp.r_[0:3],
}


def inside(call: Callable[[], Any]) -> Any:
    """Return what a call returns while a transform runs."""
    kept = []

    def f(x: Any) -> Any:
        kept.append(call())
        return x * 1.0

    grad(f)(1.0)
    return kept[0]


# ---------------------------------------------------------------- names


def test_every_name_is_numpys_own_or_replaced() -> None:
    with warnings.catch_warnings(action="ignore"):
        for name in [n for n in dir(np) if not n.startswith("_")]:
            if name in WRAPPED:
                assert getattr(mnp, name) is WRAPPED[name]
            elif name not in {"linalg", "fft", "random"}:  # which can be imported
                assert getattr(mnp, name) is getattr(np, name), name
    for name in np.linalg.__all__:
        assert name in {"det", "inv", "norm", "solve"} or getattr(mnp.linalg, name) is getattr(np.linalg, name)
    assert set(dir(np)) <= set(dir(mnp))
    assert mnp.__all__ == list(np.__all__)
    assert mnp.__version__ == np.__version__
    with pytest.raises(AttributeError, match="nonsense"):
        mnp.nonsense  # noqa: B018


def test_submodules_are_imported_as_numpys_are() -> None:
    assert npr.RandomState is np.random.RandomState is mnp.random.RandomState
    assert npfft.rfft is np.fft.rfft is mnp.fft.rfft
    assert "rfft" in dir(npfft)
    assert "eigh" in dir(mnp.linalg)
    assert eigh is np.linalg.eigh
    assert norm is mnp.linalg.norm
    assert norm is not np.linalg.norm


@pytest.mark.parametrize("name", sorted(WRAPPED))
def test_replaced_functions_say_who_they_are_and_can_be_pickled(name: str) -> None:
    if name in {"r_", "c_"}:
        return
    fun = getattr(mnp, name)
    assert fun.__name__ == name
    assert f"numpy.{name}" in fun.__doc__
    assert pickle.loads(pickle.dumps(fun)) is fun


# ---------------------------------------------------------------- buffers


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_new_arrays_take_traced_values_inside_a_transform(make: Callable[[], Any]) -> None:
    plain = make()
    assert type(plain) is np.ndarray

    def f(x: Any) -> Any:
        a = make()
        assert type(a) is not np.ndarray
        assert (a.shape, a.dtype) == (plain.shape, plain.dtype)
        assert np.array(a).flags.f_contiguous == plain.flags.f_contiguous
        if make is not MAKERS["empty"] and make is not MAKERS["empty_like"]:
            np.testing.assert_array_equal(np.array(a), plain)
        a[...] = x
        return np.sum(np.real(a))

    assert grad(f)(2.0) == plain.size
    assert jvp(f, (2.0,), (1.0,))[1] == plain.size
    np.testing.assert_array_equal(vmap(grad(f))(np.ones(2)), [plain.size] * 2)


@pytest.mark.parametrize("make", INTEGERS.values(), ids=INTEGERS)
def test_integers_and_booleans_are_plain_everywhere(make: Callable[[], Any]) -> None:
    assert type(make()) is np.ndarray
    assert type(inside(make)) is np.ndarray


def test_a_given_array_stays_what_it_is() -> None:
    """A traced value in a view of somebody else's array would be lost to them."""
    plain = np.zeros(3)
    for view in (mnp.asarray, mnp.asanyarray, mnp.ascontiguousarray, mnp.asfortranarray):
        assert inside(lambda view=view: view(plain)) is plain
    assert inside(lambda: mnp.array(plain, copy=None)) is plain

    def f(x: Any) -> Any:
        mnp.asarray(plain)[0] = x
        return np.sum(plain)

    with pytest.raises(ValueError, match="sequence") as caught:
        grad(f)(1.0)
    assert "meintorch.numpy" in "".join(caught.value.__notes__)


def test_a_buffer_holds_plain_values_after_the_transform() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        a = mnp.zeros(2)
        a[0] = x * x
        kept.append(a)
        return a, np.sum(a)

    (out, total), _ = jvp(f, (3.0,), (1.0,))
    assert type(out) is np.ndarray
    assert total == 9.0
    gradient_, aux = grad(lambda x: f(x)[::-1], has_aux=True)(3.0)
    assert type(aux) is np.ndarray
    assert gradient_ == 6.0
    for a in kept:
        assert repr(a) == "array([9., 0.])"
        for plain in (np.asarray(a), mnp.array(a), mnp.asarray(a), pickle.loads(pickle.dumps(a)), copy.deepcopy(a)):
            assert type(plain) is np.ndarray
            np.testing.assert_array_equal(plain, [9.0, 0.0])
        assert float(a[0]) == 9.0
        assert np.sum(a) == 9.0


def test_buffers_answer_like_arrays_of_numbers() -> None:
    def f(x: Any) -> Any:
        z = mnp.zeros(2)
        assert list(range(int(z[0]), 2)) == [0, 1]
        assert float(z[1]) == 0.0
        assert not z.any()
        assert x[mnp.arange(3)].shape == (3,)
        assert x[np.zeros(3) == mnp.zeros(3)].shape == (3,)
        return x[mnp.array([2, 0])] @ mnp.array([1.0, 10.0])

    np.testing.assert_array_equal(grad(f)(X), [10.0, 0.0, 1.0])


def test_a_plain_view_of_a_buffer_sees_plain_writes_and_forbids_traced_ones() -> None:
    def f(x: Any, view: Callable[[Any], Any]) -> Any:
        a = mnp.zeros(4)
        seen = view(np.asarray(a))
        a[1] = 5.0
        assert np.sum(seen) == 5.0
        a[2] = x
        return np.sum(seen)

    for view in (lambda s: s, lambda s: s[1:3], lambda s: s.reshape(2, 2).T[::-1], memoryview):
        with pytest.raises(errors.InPlaceError, match="np.asarray"):
            grad(f)(1.0, view)

    def with_a_copy(x: Any) -> Any:
        a = mnp.zeros(4)
        seen = np.asarray(a)
        assert np.shares_memory(seen, np.asarray(a))
        seen = np.array(a)
        a[2] = x
        return np.sum(seen) + np.sum(a)

    assert grad(with_a_copy)(1.0) == 1.0


def test_a_buffer_that_nobody_writes_into_is_a_constant() -> None:
    weights = np.linspace(0, 1, 3)
    f = lambda x: np.sum(mnp.linspace(0, 1, 3) * np.exp(mnp.eye(3) @ x))  # noqa: E731
    value, g = value_and_grad(f)(X)
    assert value == f(X)
    np.testing.assert_allclose(g, weights * np.exp(X))


# ---------------------------------------------------------------- what NumPy's protocols cannot see

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "array of scalars": lambda np, x: np.array([x[0] * x[1], 2, x[2]]),
    "array of rows": lambda np, x: np.array([[x[0], 0], [1, x[1]]], dtype=float),
    "array of arrays": lambda np, x: np.array([x, x * x]),
    "array of a tuple": lambda np, x: np.array((x[0], x[1] ** 2)),
    "array of an array": lambda np, x: np.array(x),
    "array with axes": lambda np, x: np.array([x[0], x[1]], ndmin=3),
    "array in another order": lambda np, x: np.array([[x[0], x[1]], [x[2], 1.0]], order="F"),
    "array of single precision": lambda np, x: np.array([x[0], x[1]], np.float32).astype(float),
    "array of complex numbers": lambda np, x: np.array([x[0] * 1j, x[1]]),
    "asarray": lambda np, x: np.asarray(x) * x,
    "asarray of a list": lambda np, x: np.asarray([x[0], x[1]], order="C"),
    "asanyarray": lambda np, x: np.asanyarray([x[0], 1.0]),
    "ascontiguousarray": lambda np, x: np.ascontiguousarray(np.array([x, x]).T),
    "ascontiguousarray of a number": lambda np, x: np.ascontiguousarray(x[0]),
    "asfortranarray": lambda np, x: np.asfortranarray([x, x]),
    "copy": lambda np, x: np.copy([x[0], x[2]]),
    "full": lambda np, x: np.full((2, 3), x[0]),
    "full of rows": lambda np, x: np.full((2, 3), x * x, order="F"),
    "full of a list": lambda np, x: np.full((2, 2), [x[0], 3.0]),
    "full_like": lambda np, x: np.full_like([[1.0], [2.0]], x[1]),
    "full_like of columns": lambda np, x: np.full_like(COLUMNS, x[1]),
    "full_like with a shape": lambda np, x: np.full_like([1.0], x, shape=(2, 3)),
    "arange by step": lambda np, x: np.arange(0.5, 3.0, x[0]),
    "arange from": lambda np, x: np.arange(x[0], x[0] * 0 + 3.0),
    "arange to": lambda np, x: np.arange(x[2]) * x[0],
    "arange of a dtype": lambda np, x: np.arange(x[0], 3.0, 0.5, dtype=float),
    "fromiter": lambda np, x: np.fromiter((v * v for v in x), float, 2),
    "fromfunction": lambda np, x: np.fromfunction(lambda i, j: x[0] * i + j, (2, 3)),
    "r_": lambda np, x: np.r_[x, 1.0, x[0], 0:2, [x[1], 2.0]],
    "r_ of one": lambda np, x: np.r_[x[0]],
    "r_ of rows": lambda np, x: np.r_[np.array([x]), np.ones((2, 3))],
    "c_": lambda np, x: np.c_[x, x * x, np.ones((3, 2))],
    "c_ of scalars": lambda np, x: np.c_[x[0], 1.0],
    "sum": lambda np, x: np.sum([x[0], x[1] * x[1], 2]),
    "sum along an axis": lambda np, x: np.sum([[x[0], 1.0], [x[1], x[2]]], axis=0),
    "mean": lambda np, x: np.mean([x, x + 2.0, 3.0 * x], axis=0),
    "max": lambda np, x: np.max([x[0], x[1], 1.0]),
    "std": lambda np, x: np.std(a=[x[0], x[1], 1.0]),
    "median": lambda np, x: np.median([x[0], x[1], x[2]]),
    "argmax": lambda np, x: x[np.argmax([x[0], x[1], x[2]])],
    "sort": lambda np, x: np.sort([x[0], x[1], x[2]]),
    "dot": lambda np, x: np.dot([x[0], x[1]], [2.0, 3.0]),
    "dot with a traced array": lambda np, x: np.dot(x, [x[1], x[0], 1.0]),
    "outer": lambda np, x: np.outer([x[0], 1.0], x),
    "cross": lambda np, x: np.cross([x[0], x[1], 0.0], [1.0, 2.0, x[2]]),
    "diag": lambda np, x: np.diag([x[0], x[1]]),
    "reshape": lambda np, x: np.reshape([x[0], x[1], x[2], 1.0], (2, 2)),
    "polyval": lambda np, x: np.polyval([x[0], 1.0, x[1]], x[2]),
    "interp": lambda np, x: np.interp(0.3, [0.0, 1.0], [x[0], x[1]]),
    "append": lambda np, x: np.append([x[0]], [x[1], x[2]]),
    "concatenate": lambda np, x: np.concatenate([[x[0], 1.0], x]),
    "vstack": lambda np, x: np.vstack([[x[0], x[1]], [1.0, 2.0]]),
    "hstack": lambda np, x: np.hstack(([x[0]], x)),
    "column_stack": lambda np, x: np.column_stack([[x[0], x[1]], [1, 2]]),
    "norm": lambda np, x: np.linalg.norm([x[0], x[1]]),
    "det": lambda np, x: np.linalg.det([[x[0], 1.0], [2.0, x[1]]]),
    "solve": lambda np, x: np.linalg.solve([[x[0], x[1]], [1, 4]], [1.0, x[2]]),
    "inv": lambda np, x: np.linalg.inv([[x[0], x[1]], [1, 4]]),
    "pad with a traced constant": lambda np, x: np.pad([1.0, 2.0], 1, constant_values=x[0]),
    "pad with constants by side": lambda np, x: np.pad(np.ones((2, 1)), 1, constant_values=((x[0], 0), (x[1], 1.0))),
    "pad a list": lambda np, x: np.pad([x[0], x[1]], (1, 2), "edge"),
    "piecewise with values": lambda np, x: np.piecewise([1.0, -1.0], [np.array([True, False])], [x[0], x[1]]),
    "piecewise with a closure": lambda np, x: np.piecewise(
        np.ones(3), [np.array([1, 0, 1], bool)], [lambda v: v * x[0], lambda v: -v]
    ),
    "apply_along_axis with a closure": lambda np, x: np.apply_along_axis(lambda r: r * x[0], 0, np.ones((2, 2))),
    "vectorize": lambda np, x: np.vectorize(lambda v: v * np.sin(v))(x),
    "vectorize over several": lambda np, x: np.vectorize(lambda v, w: v * w * x[0])(np.ones((2, 1)), np.arange(1.0, 4)),
    "vectorize with options": lambda np, x: np.vectorize(
        lambda v, p, n: np.polyval(p, v) ** n, otypes=[float], excluded={1, "n"}
    )(x, [1.0, 2.0], n=2),
    "vectorize with two results": lambda np, x: np.vectorize(lambda v: (v * v, 2.0 * v))(x),
    "vectorize as a decorator": lambda np, x: np.vectorize(otypes=[float])(lambda v: v**3)(x),
}
SIZES_DEPEND_ON_VALUES = {"arange by step", "arange from", "arange to", "arange of a dtype"}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_the_protocols_cannot_see(name: str) -> None:
    call = CALLS[name]
    with_plain, with_ours = weighted(lambda x: call(np, x)), weighted(lambda x: call(mnp, x))
    value, g = value_and_grad(with_ours)(X)
    assert value == with_plain(X)
    kept: list[Any] = []
    grad(lambda x: (kept.append(call(mnp, x)), np.sum(x))[1])(X)
    for plain, traced in zip(outputs(call(np, X)), outputs(kept[0]), strict=True):
        value = bottom(traced)
        assert (plain.shape, plain.dtype) == (value.shape, value.dtype)
        assert np.ndim(plain) == 0 or plain.flags.f_contiguous == value.flags.f_contiguous
    slope = gradient(with_plain, [X])[0]
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if name != "array of single precision" else {"atol": 1.0}
    np.testing.assert_allclose(g, slope, **tolerance)
    np.testing.assert_allclose(jacfwd(with_ours)(X), g)
    np.testing.assert_allclose(hessian(with_ours)(X), jacrev(grad(with_ours))(X), atol=1e-12)
    batch = np.stack([X, X * 1.01])
    if name in SIZES_DEPEND_ON_VALUES:
        with pytest.raises(errors.BatchError):
            vmap(grad(with_ours))(batch)
    else:
        expected = [grad(with_ours)(x) for x in batch]
        np.testing.assert_allclose(vmap(grad(with_ours))(batch), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_outside_of_transforms_they_are_numpys(name: str) -> None:
    plain, ours = CALLS[name](np, X), CALLS[name](mnp, X)
    assert type(plain) is type(ours)
    np.testing.assert_array_equal(plain, ours)


def test_python_numbers_do_not_widen_single_precision() -> None:
    x = np.array([1.0, 2.0], np.float32)
    for call in (lambda np, x: np.r_[x, 1.0], lambda np, x: np.c_[x, x], lambda np, x: np.r_[x[0], 1.0]):
        out, _ = jvp(lambda x, call=call: call(mnp, x), (x,), (x,))
        assert out.dtype == call(np, x).dtype == np.float32


def test_an_array_is_copied_and_asarray_is_not() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        copied, same = mnp.array(y), mnp.asarray(y)
        assert same is y
        assert mnp.ascontiguousarray(y) is y
        y[0] = 0.0
        return np.sum(copied) + 10.0 * np.sum(same)

    np.testing.assert_array_equal(grad(f)(X), [1.0, 11.0, 11.0])


def test_tensors_of_the_object_style_build_arrays_too() -> None:
    x = Tensor([1.0, 2.0])
    y = np.sum(mnp.array([[x[0], 0], [1, x[1]]]) ** 2) + mnp.mean([x[0], x[1]]) + mnp.full(2, x[0])[1]
    y.backward()
    np.testing.assert_array_equal(x.grad, [3.5, 4.5])
    assert type(mnp.zeros(2)) is np.ndarray


# ---------------------------------------------------------------- refusals


def test_what_cannot_hold_a_derivative_is_refused() -> None:
    refused: list[tuple[Callable[[Any], Any], str]] = [
        (lambda x: mnp.array([x[0], "a"]), "Keep them in a list"),
        (lambda x: mnp.array([x[0], None]), "Keep them in a list"),
        (lambda x: mnp.array([x[0], x[1]], dtype=object), "Keep them in a list"),
        (lambda x: mnp.r_["0,2", x, x], "np.concatenate"),
        (lambda x: mnp.vectorize(lambda v: 0 if v < 1 else v)(x), "otypes"),
        (lambda x: mnp.vectorize(lambda v: v, signature="(n)->(n)")(x), "vmap"),
        (lambda x: np.copyto(np.zeros(3), x), "meintorch.numpy"),
    ]
    for call, advice in refused:
        with pytest.raises((errors.LostDerivativeError, errors.NoRuleError, errors.InPlaceError), match=advice) as info:
            grad(lambda x, call=call: np.sum(call(x)))(X)
        assert "test_numpy_namespace.py line" in str(info.value)
    with pytest.raises(ValueError, match="same shape"):
        grad(lambda x: np.sum(mnp.array([[x[0]], [x[1], x[2]]])))(X)
    with pytest.raises(ValueError, match="too short"):
        grad(lambda x: np.sum(mnp.fromiter(iter([x[0]]), float, 2)))(X)


def test_an_integer_dtype_makes_constants() -> None:
    value, g = value_and_grad(lambda x: mnp.array([x[2], 1.0], dtype=int)[0] * x[0])(X)
    assert value == 2 * X[0]
    np.testing.assert_array_equal(g, [2.0, 0.0, 0.0])
    for call in (
        lambda x: mnp.vectorize(lambda v: v, otypes=[int])(x),
        lambda x: mnp.full_like([1, 2], x[2]),
        lambda x: mnp.pad([1, 2], 1, constant_values=x[2]),
    ):
        value, g = value_and_grad(lambda x, call=call: np.sum(call(x)) * x[0])(X)
        np.testing.assert_array_equal(g, [value / X[0], 0.0, 0.0])


def test_a_range_is_rounded_as_numpys() -> None:
    kept = []
    grad(lambda x: (kept.append(mnp.arange(x, 2.0**53 + 6, 1.0)), x)[1])(2.0**53)
    np.testing.assert_array_equal(bottom(kept[0]), np.arange(2.0**53, 2.0**53 + 6, 1.0))


# ---------------------------------------------------------------- where a transform is running


def test_an_exception_leaves_nothing_behind() -> None:
    def f(x: Any) -> Any:
        assert type(mnp.zeros(1)) is not np.ndarray
        raise KeyError

    for transform in (grad(f), vmap(f), jacfwd(f), checkpoint(f)):
        with pytest.raises(KeyError):
            transform(np.ones(2))
        assert type(mnp.zeros(1)) is np.ndarray


def test_threads_do_not_see_each_others_transforms() -> None:
    entered, seen = threading.Event(), threading.Event()
    kinds = []

    def f(x: Any) -> Any:
        entered.set()
        assert seen.wait(10)
        kinds.append(type(mnp.zeros(1)))
        return x * 1.0

    thread = threading.Thread(target=grad(f), args=(1.0,))
    thread.start()
    assert entered.wait(10)
    kinds.append(type(mnp.zeros(1)))
    seen.set()
    thread.join()
    assert kinds[0] is np.ndarray
    assert kinds[1] is not np.ndarray


def test_generators_make_what_their_caller_needs() -> None:
    def arrays() -> Iterator[Any]:
        while True:
            yield mnp.zeros(2)

    steps = arrays()
    assert type(next(steps)) is np.ndarray

    def f(x: Any) -> Any:
        a = next(steps)
        a[0] = x * x
        return np.sum(a)

    assert grad(f)(3.0) == 6.0
    assert type(next(steps)) is np.ndarray
    made_inside = inside(arrays)
    assert type(next(made_inside)) is np.ndarray


def filled(x: Any) -> Any:
    """Return x squared, entry by entry, in a buffer."""
    a = mnp.empty(3)
    for k in range(3):
        a[k] = x[k] * x[k]
    return a


def test_rules_of_ones_own_may_fill_buffers() -> None:
    def doubled(x: Any, g: Any) -> Any:
        a = mnp.zeros(3)
        for k in range(3):
            a[k] = 2 * x[k] * g[k]
        return a

    reverse = custom_vjp(filled)
    reverse.defvjp(lambda x: (filled(x), {"x": mnp.array(x)}), lambda saved, g: (doubled(saved["x"], g),))
    forward = custom_jvp(filled)
    forward.defjvp(lambda primals, tangents: (filled(primals[0]), doubled(primals[0], tangents[0])))
    by_name = primitive(x=lambda g, x: doubled(x, g))(filled)
    for f in (reverse, forward, by_name, checkpoint(filled), filled):
        loss = lambda x, f=f: np.sum(np.sin(f(x)))  # noqa: E731
        expected = 2 * X * np.cos(X * X)
        np.testing.assert_allclose(grad(loss)(X), expected)
        np.testing.assert_allclose(vmap(grad(loss))(np.stack([X, X]))[1], expected)
        np.testing.assert_allclose(jacrev(f)(X), np.diag(2 * X))
        curvature = np.diag(2 * np.cos(X * X) - 4 * X * X * np.sin(X * X))
        np.testing.assert_allclose(jacrev(grad(loss))(X), curvature, atol=1e-12)
        if f is not reverse:
            np.testing.assert_allclose(jvp(f, (X,), (X,))[1], 2 * X * X)
        np.testing.assert_allclose(linearize(f, X)[1](X), 2 * X * X)
        assert type(f(X)) is np.ndarray
        assert type(vjp(f, X)[0]) is np.ndarray
        with np.errstate(divide="ignore"):
            dead = grad(lambda x, f=f: np.sum(np.where(x > 0, np.log(f(x)), 0)))(np.array([1.0, 0.0, 2.0]))
        np.testing.assert_allclose(dead, [2.0, 0.0, 1.0])


def test_nan_in_buffers_of_rules_is_reported() -> None:
    f = custom_vjp(lambda x: x * 1.0)
    f.defvjp(lambda x: (x * 1.0, None), lambda _, g: (mnp.full(3, np.nan),))
    with pytest.warns(errors.NaNWarning):
        vmap(lambda _: grad(lambda x: np.sum(f(x)))(X))(np.ones(2))


def test_equations_may_fill_buffers() -> None:
    def residual(x: Any, a: Any) -> Any:
        r = mnp.zeros(2)
        r[0] = x[0] * x[0] - a
        r[1] = x[1] - x[0]
        return r

    solve = lambda a: np.sum(root(residual, np.ones(2), a))  # noqa: E731
    np.testing.assert_allclose(value_and_grad(solve)(4.0), (4.0, 0.5))
    np.testing.assert_allclose(grad(lambda b: solve(b * 2.0))(2.0), 1.0)
    half = lambda x, a: mnp.array([0.5 * x[0] + a])  # noqa: E731
    np.testing.assert_allclose(grad(lambda a: fixed_point(half, np.zeros(1), a)[0])(3.0), 2.0)


def test_a_checkpointed_function_finds_the_buffers_it_uses_as_they_were() -> None:
    def f(x: Any, *, later: float) -> Any:
        scale = mnp.ones(3)
        y = checkpoint(lambda x: np.sum(np.sin(x) * scale))(x)
        scale[0] = later
        return y

    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        grad(lambda x: f(x, later=5.0))(X)
    np.testing.assert_allclose(grad(lambda x: f(x, later=1.0))(X), np.cos(X))

    def steps(x: Any) -> Any:
        scale, total = mnp.zeros(3), 0.0
        for k in range(3):
            scale[k] = k + 1.0  # its own buffer, which it makes again when it is replayed
            total = total + np.sum(np.sin(x) * scale)
        return total

    np.testing.assert_allclose(grad(checkpoint(steps))(X), grad(steps)(X))


def test_buffers_of_an_outer_transform_take_values_of_an_inner_one() -> None:
    def outer(x: Any) -> Any:
        a = mnp.zeros(2)
        a[0] = x

        def inner(y: Any) -> Any:
            b = mnp.array([y, x])
            b[0] *= a[0] * y
            return np.sum(b) + np.sum(a)

        return grad(inner)(x) * stop_gradient(2.0)

    assert outer(3.0) == 2 * 2 * 3.0 * 3.0  # d/dy of x y^2 at y = x
    assert grad(outer)(3.0) == 24.0
    np.testing.assert_allclose(vmap(grad(outer))(np.array([1.0, 3.0])), [8.0, 24.0])


# ---------------------------------------------------------------- programs


def rotation(np: Any, angles: Any) -> Any:
    """Turn a point about three axes."""
    a, b, c = np.cos(angles), np.sin(angles), angles * 0
    about_x = np.array([[1, 0, 0], [0, a[0], -b[0]], [0, b[0], a[0]]])
    about_y = np.array([[a[1], c[1], b[1]], [0.0, 1.0, 0.0], [-b[1], 0, a[1]]])
    about_z = np.array([[a[2], -b[2], 0], [b[2], a[2], 0], [0, 0, 1]], dtype=np.float64)
    return about_z @ about_y @ about_x @ np.array([1.0, 2.0, 3.0])


def companion(np: Any, coefficients: Any) -> Any:
    """Return power sums of the roots of a polynomial."""
    n = len(coefficients)
    C = np.zeros((n, n))
    C[0, :] = -coefficients
    C[1:, :-1] = np.eye(n - 1)
    return np.array([np.trace(C), np.trace(C @ C), np.trace(C @ C @ C)])


def trajectory(np: Any, parameters: Any) -> Any:
    """Integrate a pendulum into a table of its states."""
    states = np.empty((20, 2))
    states[0] = parameters[:2]
    for k in range(1, 20):
        angle, speed = states[k - 1]
        states[k, 0] = angle + 0.1 * speed
        states[k, 1] = speed - 0.1 * parameters[2] * np.sin(angle)
    return states[-1]


def kalman(np: Any, logs: Any) -> Any:
    """Return the log-likelihood of observations under a model of constant velocity."""
    F, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    Q, R = np.diag([np.exp(logs[0]), np.exp(logs[1])]), np.full((1, 1), np.exp(logs[2]))
    m, P = np.zeros(2), np.eye(2)
    total = np.zeros(())
    for y in [0.3, 1.1, 2.3, 2.8, 4.2]:
        m, P = F @ m, F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        error = np.asarray([y]) - H @ m
        m, P = m + K @ error, P - K @ H @ P
        total += -0.5 * (np.log(S[0, 0]) + error @ error / S[0, 0])
    return total


def tridiagonal(np: Any, x: Any) -> Any:
    """Solve a tridiagonal system by Thomas's algorithm."""
    n = 6
    lower, upper = np.full(n, x[0]), np.full(n, x[1])
    right = np.linspace(0.0, 1.0, n)
    c, d, out = np.zeros(n), np.zeros(n), np.zeros_like(right)
    c[0], d[0] = upper[0] / 4.0, right[0] / 4.0
    for i in range(1, n):
        pivot = 4.0 + x[2] ** 2 - lower[i] * c[i - 1]
        c[i] = upper[i] / pivot
        d[i] = (right[i] - lower[i] * d[i - 1]) / pivot
    out[-1] = d[-1]
    for i in range(n - 2, -1, -1):
        out[i] = d[i] - c[i] * out[i + 1]
    return out


@pytest.mark.parametrize("program", [rotation, companion, trajectory, kalman, tridiagonal])
def test_programs_run_unchanged(program: Callable[[Any, Any], Any]) -> None:
    with_plain, with_ours = weighted(lambda x: program(np, x)), weighted(lambda x: program(mnp, x))
    value, g = value_and_grad(with_ours)(X)
    assert value == with_plain(X) == with_ours(X)
    slope = gradient(with_plain, [X])[0]
    np.testing.assert_allclose(g, slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jacfwd(with_ours)(X), slope, rtol=1e-6, atol=1e-8)
    rows = [gradient(lambda x, k=k: grad(with_ours)(x)[k], [X], 1e-5)[0] for k in range(3)]
    np.testing.assert_allclose(hessian(with_ours)(X), rows, rtol=1e-5, atol=1e-7)
    batch = np.stack([X, X + 0.1])
    np.testing.assert_allclose(vmap(lambda x: program(mnp, x))(batch), [program(np, x) for x in batch], rtol=1e-12)
    np.testing.assert_allclose(vmap(grad(with_ours))(batch), [grad(with_ours)(x) for x in batch], rtol=1e-10)
