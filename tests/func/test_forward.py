"""jvp and linearize: trees, dtypes, complex numbers, tangents that do not fit, results."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import grad, jvp, linearize, vjp
from tests.conftest import objects_left_by


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"


def by_jvp(f: Callable[..., Any], *primals: Any, tangents: tuple[Any, ...]) -> Any:
    return jvp(f, primals, tangents)


def by_linearize(f: Callable[..., Any], *primals: Any, tangents: tuple[Any, ...]) -> Any:
    output, pushforward = linearize(f, *primals)
    return output, pushforward(*tangents)


both = pytest.mark.parametrize("push", [by_jvp, by_linearize], ids=["jvp", "linearize"])


def close(got: Any, want: Any, tolerance: float = 1e-12) -> None:
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(want)


# ---------------------------------------------------------------- results


@both
@pytest.mark.parametrize("x", [3.0, 3, np.float64(3), np.array(3.0), np.array(3), np.int32(3), np.float32(3)])
@pytest.mark.parametrize("t", [2.0, 2, np.float64(2), np.array(2.0), np.array(2), np.float32(2)])
def test_scalars(push: Any, x: Any, t: Any) -> None:
    value, tangent = push(lambda x: x * x + x, x, tangents=(t,))
    assert value == 12.0
    close(tangent, 14.0)
    assert tangent.dtype == (np.float32 if isinstance(x, np.float32) else np.float64)


@both
def test_value_is_bit_for_bit_that_of_the_function(push: Any, rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(50, 7)), rng.normal(size=7)

    def f(w: Any) -> Any:
        z = X @ w
        return np.mean(np.logaddexp(0.0, -z)) + 0.5e-3 * np.sum(w**2), np.tanh(z) / 3

    for got, want in zip(push(f, w, tangents=(w,))[0], f(w), strict=True):
        assert type(got) is type(want)
        assert np.array_equal(got, want)


@both
def test_closed_form(push: Any, rng: np.random.Generator) -> None:
    A, x, t = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=4)
    value, tangent = push(lambda x: np.tanh(A @ x), x, tangents=(t,))
    close(tangent, (1 - np.tanh(A @ x) ** 2) * (A @ t))
    close(value, np.tanh(A @ x))


@both
def test_every_argument_contributes(push: Any) -> None:
    value, tangent = push(lambda a, b, c: a * b + np.sin(c), 2.0, 3.0, 0.0, tangents=(1.0, 10.0, 100.0))
    assert value == 6.0
    close(tangent, 3.0 + 20.0 + 100.0)


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128])
def test_dtype_is_that_of_the_output(push: Any, dtype: Any) -> None:
    x = np.array([1.0, 2.0], dtype)
    for f in (lambda x: 2.5 * x * x + 1, lambda x: np.sum(np.exp(x) / 3), lambda x: x**2, lambda x: np.mean(x[:1])):
        value, tangent = push(f, x, tangents=(np.ones(2),))
        assert value.dtype == dtype
        assert tangent.dtype == dtype


@both
def test_mixed_dtypes(push: Any) -> None:
    value, tangent = push(
        lambda x, y: (x * y, x * 2, y * 2), np.float32(1.5), np.array([1.0, 2.0]), tangents=(1, np.array([1, 0]))
    )
    assert [v.dtype for v in value] == [t.dtype for t in tangent] == [np.float64, np.float32, np.float64]
    close(tangent[0], [2.5, 2.0])
    out = push(lambda x, z: x * z, np.ones(2, np.float32), np.ones(2, np.complex64), tangents=(np.ones(2), np.ones(2)))
    assert out[1].dtype == np.complex64


@both
def test_integers_are_float64(push: Any) -> None:
    close(push(lambda x: x * x * 0.5, np.array([1, 2, 3]), tangents=(np.array([1, 1, 2]),))[1], [1.0, 2.0, 6.0])


@both
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1, 3)])
def test_shapes(push: Any, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5)
    value, tangent = push(lambda x: (np.exp(x), np.sum(x * x), x), x, tangents=(np.full(shape, 2.0),))
    close(tangent[0], np.full(shape, 2 * np.exp(0.5)))
    close(tangent[1], 2.0 * x.size)
    close(tangent[2], np.full(shape, 2.0))
    assert value[1] == 0.25 * x.size


@both
def test_strided_and_read_only_inputs_are_untouched(push: Any, rng: np.random.Generator) -> None:
    base = rng.normal(size=(6, 8))
    for view in (base.T, base[::2, ::-1], np.asfortranarray(base), np.broadcast_to(base[0], (3, 8))):
        x = view.view()
        x.flags.writeable = False
        before, t = x.copy(), rng.normal(size=x.shape)
        t.flags.writeable = False
        close(push(lambda x: np.sin(x) * x, x, tangents=(t,))[1], (np.cos(x) * x + np.sin(x)) * t)
        np.testing.assert_array_equal(x, before)


@both
def test_tangents_are_writable_and_share_no_memory(push: Any) -> None:
    x, t = np.arange(6.0), np.ones(6)
    fs = [
        lambda x: x,
        lambda x: x + 0.0,
        lambda x: x.reshape(2, 3).T,
        lambda x: x[::2],
        lambda x: np.broadcast_to(x, (2, 6)),
    ]
    for f in fs:
        out, tangent = push(f, x, tangents=(t,))
        assert tangent.flags.writeable
        assert not np.shares_memory(tangent, t)
        assert not np.shares_memory(tangent, x)
        tangent[...] = 9.0
        np.testing.assert_array_equal(out, f(np.arange(6.0)))
    _, (a, b) = push(lambda x: (x, x), x, tangents=(t,))
    assert not np.shares_memory(a, b)


@both
def test_what_has_no_influence_gives_zeros(push: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return {
            "constant": 4.0,
            "array": np.ones((2, 2), np.float32),
            "other": y * 2,
            "floor": np.floor(x),
            "none": None,
        }

    _, tangent = push(f, 1.5, np.ones(3), tangents=(1.0, np.zeros(3)))
    close(tangent["constant"], 0.0)
    close(tangent["array"], np.zeros((2, 2)))
    assert tangent["array"].dtype == np.float32
    close(tangent["other"], np.zeros(3))
    close(tangent["floor"], 0.0)
    assert tangent["none"] is None


@both
def test_functions_with_several_outputs(push: Any) -> None:
    value, tangent = push(divmod, 5.5, 2.0, tangents=(1.0, 1.0))
    assert value == (2.0, 1.5)
    close(tangent[0], 0.0)
    close(tangent[1], -1.0)
    _, tangent = push(lambda x: np.divmod(x, 2.0), np.array([5.5, 3.0]), tangents=(np.array([1.0, 3.0]),))
    close(tangent[0], [0.0, 0.0])
    close(tangent[1], [1.0, 3.0])
    value, tangent = push(lambda x: np.split(x * x, [1, 3]), np.arange(4.0), tangents=(np.ones(4),))
    assert type(value) is list
    assert type(tangent) is list
    for got, want in zip(tangent, ([0.0], [2.0, 4.0], [6.0]), strict=True):
        close(got, want)
    if hasattr(np, "unstack"):
        _, tangent = push(lambda x: np.unstack(x)[1] * 2, np.arange(4.0).reshape(2, 2), tangents=(np.ones((2, 2)),))
        close(tangent, [2.0, 2.0])


@both
def test_integer_and_boolean_outputs(push: Any) -> None:
    value, tangent = push(lambda x: (np.argmax(x), x > 1.0, x), np.array([1.0, 2.0]), tangents=(np.ones(2),))
    assert value[0] == 1
    assert value[1].tolist() == [False, True]
    for t in tangent[:2]:
        assert type(t) is np.ndarray
        assert not np.any(t)
    close(tangent[2], [1.0, 1.0])


@both
def test_the_same_output_twice(push: Any) -> None:
    def f(x: Any) -> Any:
        y = x * x
        return y, [y, x]

    _, (a, (b, c)) = push(f, 3.0, tangents=(1.0,))
    close(a, 6.0)
    close(b, 6.0)
    close(c, 1.0)


@both
def test_no_arguments(push: Any) -> None:
    value, tangent = push(lambda: np.ones(2), tangents=())
    close(value, [1.0, 1.0])
    close(tangent, [0.0, 0.0])


# ---------------------------------------------------------------- trees


@both
def test_trees(push: Any) -> None:
    def f(t: dict[str, Any], s: Any) -> Any:
        assert t["layer"].name == "layer"
        h = t["act"](t["layer"].weight @ t["list"][0] + t["layer"].bias)
        return OrderedDict(
            h=h * s,
            pair=Pair(t["pair"].left * t["list"][1], t["tuple"][1]),
            layer=Layer(t["pair"].right ** 2, 1.0, "out"),
        )

    def tree(a: float) -> dict[str, Any]:
        return {
            "list": [np.full(2, a), 2.0 * a],
            "tuple": (np.full((2, 1), a), None),
            "pair": Pair(1.0 * a, a * np.arange(3.0)),
            "layer": Layer(a * np.eye(2), np.full(2, 0.1 * a)),
            "act": np.tanh,
        }

    value, tangent = push(f, tree(1.0), 2.0, tangents=(tree(10.0), 0.0))
    slope = 2 * (1 - np.tanh(1.1) ** 2) * (10.0 + 10.0 + 1.0)
    assert type(value) is type(tangent) is OrderedDict
    assert list(tangent) == ["h", "pair", "layer"]
    close(tangent["h"], [slope, slope])
    assert type(tangent["pair"]) is Pair
    close(tangent["pair"].left, 10.0 * 2.0 + 1.0 * 20.0)
    assert tangent["pair"].right is None
    assert type(tangent["layer"]) is Layer
    assert tangent["layer"].name == "out"
    close(tangent["layer"].weight, 20.0 * np.arange(3.0) ** 2)
    close(tangent["layer"].bias, 0.0)


@both
def test_empty_trees(push: Any) -> None:
    value, tangent = push(lambda t, x: (t, x, []), {}, 2.0, tangents=({}, 3.0))
    assert value == ({}, 2.0, [])
    assert tangent == ({}, 3.0, [])


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        return {"y": y * y}, {"y": y, "n": 3, "parts": [x, "text"]}

    value, tangent, aux = jvp(f, (0.5,), (2.0,), has_aux=True)
    output, pushforward, held = linearize(f, 0.5, has_aux=True)
    assert value == output == {"y": np.sin(0.5) ** 2}
    close(tangent["y"], 4 * np.sin(0.5) * np.cos(0.5))
    close(pushforward(2.0)["y"], 4 * np.sin(0.5) * np.cos(0.5))
    for a in (aux, held):
        assert type(a["y"]) is np.float64
        assert a["y"] == np.sin(0.5)
        assert a["n"] == 3
        assert a["parts"] == [0.5, "text"]
        assert type(a["parts"][0]) is np.float64
    for call in (lambda: jvp(np.sin, (1.0,), (1.0,), has_aux=True), lambda: linearize(np.sin, 1.0, has_aux=True)):
        with pytest.raises(errors.OutputError, match="has_aux.*pair"):
            call()


# ---------------------------------------------------------------- complex numbers


@both
def test_a_holomorphic_function(push: Any) -> None:
    z, t = np.array([1.0 + 2.0j, -0.5j]), np.array([1.0j, 2.0 - 1.0j])
    close(push(lambda z: np.exp(z) * z, z, tangents=(t,))[1], np.exp(z) * (1 + z) * t)


@both
def test_complex_inputs_with_real_outputs(push: Any) -> None:
    z = 1.0 + 2.0j
    for t, want in ((1.0, 2.0), (1.0j, 4.0), (3.0 - 1.0j, 2.0)):  # d|z|^2 = 2 (x dx + y dy)
        value, tangent = push(lambda z: np.abs(z) ** 2, z, tangents=(t,))
        assert value.dtype == np.float64
        close(tangent, want)
        assert tangent.dtype == np.float64
        close(push(lambda z: np.real(z) + 3 * np.imag(z), z, tangents=(t,))[1], np.real(t) + 3 * np.imag(t))


@both
def test_functions_that_are_not_holomorphic(push: Any) -> None:
    z, t = np.array([1.0 + 2.0j, -0.5j]), np.array([1.0j, 2.0 - 1.0j])
    close(push(np.conj, z, tangents=(t,))[1], np.conj(t))
    close(push(lambda z: z * np.conj(z), z, tangents=(t,))[1], 2 * np.real(z * np.conj(t)) + 0j)
    close(push(lambda z: np.abs(z) * z, z, tangents=(t,))[1], np.real(np.conj(z) * t) / np.abs(z) * z + np.abs(z) * t)


@both
@pytest.mark.parametrize("x", [np.array([0.5, 1.0]), np.array([]), np.array([[0.5]])])
def test_real_inputs_with_complex_outputs(push: Any, x: Any) -> None:
    value, tangent = push(lambda x: np.exp(1j * x), x, tangents=(np.full_like(x, 2.0),))
    close(tangent, 2j * np.exp(1j * x))
    close(push(lambda x: np.real(x * 1j + x * x), x, tangents=(np.full_like(x, 2.0),))[1], 4 * x)
    np.testing.assert_array_equal(value, np.exp(1j * x))


@pytest.mark.parametrize(
    "f",
    [
        pytest.param(lambda x: 1j * x, id="1j * x"),
        pytest.param(lambda x: x * 1j, id="x * 1j"),
        pytest.param(lambda x: x / 1j, id="x / 1j"),
        pytest.param(lambda x: 1j * x + x * x * 0, id="1j * x + 0"),
        pytest.param(lambda x: x + 1j, id="x + 1j"),
        pytest.param(lambda x: (1 + 1j) - x, id="1j - x"),
    ],
)
def test_a_python_complex_beside_a_real_scalar(f: Callable[[Any], Any]) -> None:
    """NumPy's float64 times a Python complex may be a Python complex, which has no dtype."""
    value, tangent = jvp(f, (2.0,), (3.0,))
    assert value == f(2.0)
    close(tangent, f(3.0) - f(0.0))
    output, pullback = vjp(f, 2.0)
    assert output == f(2.0)
    close(pullback(1.0 + 2.0j)[0], np.real((1.0 + 2.0j) * (f(1.0) - f(0.0))))
    close(linearize(f, 2.0)[1](3.0), f(3.0) - f(0.0))


@both
def test_real_tangents_of_complex_primals(push: Any) -> None:
    tangent = push(lambda z: z * z, 1.0 + 2.0j, tangents=(1,))[1]
    close(tangent, 2.0 + 4.0j)
    assert tangent.dtype == np.complex128


# ---------------------------------------------------------------- conventions

KINKS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "abs": (np.abs, [0.0, 2.0], [0.0, 1.0]),
    "abs of complex": (np.abs, [0j, 2.0 + 0j], [0.0, 1.0]),
    "norm": (np.linalg.norm, [0.0, 0.0], [0.0, 0.0]),
    "hypot": (lambda x: np.hypot(x, 2 * x), [0.0], [0.0]),
    "arctan2": (lambda x: np.arctan2(x, 2 * x), [0.0], [0.0]),
    "std": (np.std, [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
    "power zero": (lambda x: x**0.0, [0.0], [0.0]),
    "sinc": (np.sinc, [0.0], [0.0]),
    "prod": (np.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    "max": (np.max, [2.0, 2.0, 1.0], [0.5, 0.5, 0.0]),
    "min": (np.min, [2.0, 2.0, 1.0], [0.0, 0.0, 1.0]),
    "ptp": (np.ptp, [1.0, 1.0, 3.0, 3.0], [-0.5, -0.5, 0.5, 0.5]),
    "maximum": (lambda x: np.maximum(x, 1.0), [1.0, 2.0], [0.5, 1.0]),
    "fmin": (lambda x: np.fmin(1.0, x), [1.0, 2.0], [0.5, 0.0]),
    "clip": (lambda x: np.clip(x, 0.0, 1.0), [0.0, 1.0, 1.5], [1.0, 1.0, 0.0]),
    "logaddexp": (lambda x: np.logaddexp(x, -np.inf), [-np.inf], [0.5]),
    "floor": (lambda x: np.floor(x) * x, [2.5], [2.0]),
}


@both
@pytest.mark.parametrize("name", KINKS)
def test_conventions_at_kinks(push: Any, name: str) -> None:
    """The derivative of the sum of the outputs along every unit vector is what reverse mode gives."""
    f, point, want = KINKS[name]
    x = np.array(point)
    with np.errstate(all="ignore"):
        tangents = [push(f, x, tangents=(t,))[1] for t in np.eye(len(x))]
        np.testing.assert_allclose([np.sum(t) for t in tangents], want, rtol=1e-12)
        np.testing.assert_allclose(np.real(grad(lambda x: np.sum(f(x)))(x)), want, rtol=1e-12)


@pytest.mark.xfail(strict=True, reason="0 * inf = nan in forward mode; reverse mode's rule for the variance gives 0")
@both
@pytest.mark.parametrize("f", [lambda x: np.var(x) ** 0.5, lambda x: np.sqrt(np.var(x))], ids=["power", "sqrt"])
def test_the_root_of_the_variance_of_equal_values(push: Any, f: Callable[[Any], Any]) -> None:
    with np.errstate(all="ignore"):
        close(push(f, np.ones(3), tangents=(np.array([1.0, 0.0, 0.0]),))[1], 0.0)


@pytest.mark.parametrize("f", [np.max, np.min])
def test_linearize_where_initial_is_the_extreme(f: Callable[..., Any]) -> None:
    _, push = linearize(lambda x: f(x, axis=1, initial=4.0), np.array([[3.0, 5.0], [2.0, 3.0], [6.0, 7.0]]))
    got = push(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    close(got, [1.0, 0.0, 1.0] if f is np.max else [1.0, 1.0, 0.0])


# ---------------------------------------------------------------- linearize


def test_a_pushforward_is_linear_and_may_be_called_again(rng: np.random.Generator) -> None:
    calls = []

    def f(x: Any, w: Any) -> Any:
        calls.append(1)
        return np.tanh(w @ x), np.sum(x**3)

    x, w = rng.normal(size=3), rng.normal(size=(2, 3))
    _, push = linearize(f, x, w)
    for _ in range(5):
        t, v = rng.normal(size=3), rng.normal(size=(2, 3))
        a, b = push(t, v)
        close(a, (1 - np.tanh(w @ x) ** 2) * (w @ t + v @ x))
        close(b, np.sum(3 * x**2 * t))
        close(push(2 * t, 2 * v)[0], 2 * a)
    assert len(calls) == 1
    assert "pushforward" in repr(push)


@pytest.mark.parametrize("n", [3, 5000])
def test_a_pushforward_does_not_change_with_its_inputs(n: int) -> None:
    x, t = np.zeros(n), np.ones(n)
    _, push = linearize(lambda x: np.exp(x) * x, x)
    first = push(t)
    x += 5.0
    first += 7.0
    t += 1.0
    close(push(t), np.full(n, 2.0))


@pytest.mark.parametrize("n", [3, 5000])
@pytest.mark.parametrize("has_aux", [False, True])
def test_writing_to_an_output_does_not_change_the_maps(n: int, has_aux: bool) -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        return (np.sum(y * y), y) if has_aux else (y, x, y * x)

    def spoil(arrays: Any) -> None:
        for a in arrays:
            if isinstance(a, np.ndarray):
                a[...] = 77.0

    x = np.zeros(n)
    output, pullback, *aux = vjp(f, x, has_aux=has_aux)
    spoil([*aux, *(output if isinstance(output, tuple) else ())])
    close(pullback(1.0 if has_aux else (np.ones(n),) * 3)[0], np.full(n, 2.0 if has_aux else 3.0))
    output, push, *aux = linearize(f, x, has_aux=has_aux)
    spoil([*aux, *(output if isinstance(output, tuple) else ())])
    got = push(np.ones(n))
    for g, want in zip([got] if has_aux else got, [2.0 * n] if has_aux else [np.ones(n)] * 3, strict=True):
        close(g, want)
    np.testing.assert_array_equal(x, np.zeros(n))


def test_a_pushforward_from_many_threads(rng: np.random.Generator) -> None:
    x = rng.normal(size=(8, 8))
    _, push = linearize(lambda x: np.tanh(x @ x), x)
    tangents = rng.normal(size=(40, 8, 8))
    want = [(1 - np.tanh(x @ x) ** 2) * (t @ x + x @ t) for t in tangents]
    with ThreadPoolExecutor(8) as pool:
        for got, w in zip(pool.map(push, tangents), want, strict=True):
            close(got, w)


def test_linearize_agrees_with_jvp_along_every_unit_vector(rng: np.random.Generator) -> None:
    def f(x: Any) -> Any:
        return {"a": np.cos(x[1:] * x[:-1]), "b": [np.max(x), np.linalg.norm(x)], "c": np.outer(x, x)[::2]}

    x = rng.normal(size=4)
    _, push = linearize(f, x)
    for t in np.eye(4):
        got, want = push(t), jvp(f, (x,), (t,))[1]
        assert list(got) == list(want)
        close(got["a"], want["a"])
        close(got["b"][0], want["b"][0])
        close(got["b"][1], want["b"][1])
        close(got["c"], want["c"])


def test_jvp_and_linearize_leave_no_cycles() -> None:
    x = np.ones(4)
    calls = [
        lambda: jvp(lambda x: np.tanh(x) * np.sum(x), (x,), (x,)),
        lambda: linearize(lambda x: np.tanh(x) * np.sum(x), x)[1](x),
        lambda: jvp(lambda x: jvp(lambda y: y * y * x, (x,), (x,))[1], (x,), (x,)),
        lambda: jvp(grad(lambda x: np.sum(x**3)), (x,), (x,)),
    ]
    for call in calls:
        assert objects_left_by(call) == 0


@pytest.mark.usefixtures("usual_sizes")
def test_memory_of_a_long_loop_is_flat_in_forward_mode() -> None:
    """Nothing is kept of what has passed: a jvp of many steps needs no more than one of few."""

    def f(x: Any) -> Any:
        for _ in range(300):
            x = np.sin(x) * 1.01
        return np.sum(x)

    x = np.linspace(0.0, 1.0, 10_000)
    tracemalloc.start()
    try:
        jvp(f, (x,), (x,))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * x.nbytes


# ---------------------------------------------------------------- what goes wrong


@both
@pytest.mark.parametrize(
    ("tangents", "kind", "message"),
    [
        ((np.ones(3),), errors.InputError, r"tangent of argument 0 has shape \(3,\); the primal has shape \(2,\)"),
        ((1.0,), errors.InputError, r"tangent of argument 0 has shape \(\); the primal has shape \(2,\)"),
        ((np.ones((2, 1)),), errors.InputError, r"shape \(2, 1\)"),
        ((np.ones(2) * 1j,), errors.InputError, "dtype complex128; the primal has dtype float64"),
        ((np.array([True, False]),), errors.InputError, "tangent of argument 0 has dtype bool"),
        ((np.array(["a", "b"]),), errors.InputError, "dtype <U1"),
        ((np.array([None, 1.0]),), errors.InputError, "dtype object"),
        (([np.ones(2)],), errors.TreeError, "tangent of argument 0"),
        ((None,), errors.TreeError, "tangent of argument 0.*found None"),
        ((), errors.InputError, "0 tangents were given for 1 primals"),
        ((np.ones(2), np.ones(2)), errors.InputError, "2 tangents were given for 1 primals"),
    ],
)
def test_tangents_that_do_not_fit(push: Any, tangents: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        push(lambda x: x * 2.0, np.ones(2), tangents=tangents)


@both
def test_tangents_that_do_not_fit_in_a_tree(push: Any) -> None:
    primal = {"a": [1.0, np.ones(2)], "b": 2.0}
    with pytest.raises(errors.InputError, match=r"tangent of argument 1\['a'\]\[1\] has shape \(3,\)"):
        push(lambda x, t: t["b"], 1.0, primal, tangents=(1.0, {"a": [1.0, np.ones(3)], "b": 2.0}))
    with pytest.raises(errors.TreeError, match="tangent of argument 1.*missing keys: \\['b'\\]"):
        push(lambda x, t: t["b"], 1.0, primal, tangents=(1.0, {"a": [1.0, np.ones(2)]}))
    with pytest.raises(errors.TreeError, match="tangent of argument 1"):
        push(lambda x, t: t["b"], 1.0, primal, tangents=(1.0, {"a": (1.0, np.ones(2)), "b": 2.0}))


@pytest.mark.parametrize(
    ("primals", "tangents"), [(1.0, 1.0), (np.ones(2), np.ones(2)), ((1.0,), 1.0), ({"x": 1.0}, (1.0,))]
)
def test_primals_and_tangents_have_to_be_tuples(primals: Any, tangents: Any) -> None:
    with pytest.raises(errors.InputError, match=r"tuples.*jvp\(f, \(x,\), \(t,\)\)"):
        jvp(np.sin, primals, tangents)


@both
@pytest.mark.parametrize("x", [True, "text", None, np.array([True]), np.array([object()])])
def test_primals_without_a_derivative(push: Any, x: Any) -> None:
    with pytest.raises(errors.InputError, match="argument 1"):
        push(lambda a, x: a, 1.0, x, tangents=(1.0, x))


@pytest.mark.parametrize(
    ("push", "returned"),
    [
        (by_linearize, "text"),
        (by_linearize, object()),
        pytest.param(by_linearize, np.array(["a"])),
        pytest.param(by_jvp, "text"),
        pytest.param(by_jvp, object()),
        pytest.param(by_jvp, np.array(["a"])),
    ],
)
def test_outputs_without_a_derivative(push: Any, returned: Any) -> None:
    with pytest.raises(errors.OutputError, match="outputs? must be arrays or numbers|has dtype"):
        push(lambda x: (x, returned), 1.0, tangents=(1.0,))


@both
def test_an_exception_in_the_function_passes_through_and_leaves_nothing(push: Any) -> None:
    def f(x: Any) -> Any:
        jvp(lambda y: y * x, (x,), (x,))
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            push(f, 2.0, tangents=(1.0,))
    close(push(lambda x: x * x, 3.0, tangents=(1.0,))[1], 6.0)


@pytest.mark.parametrize("use", [lambda x: x * 2, np.sin, np.ones_like, np.floor, lambda x: x[0], lambda x: x > 0])
def test_a_value_that_escapes_is_an_error(use: Callable[[Any], Any]) -> None:
    kept = []
    jvp(lambda x: (kept.append(x), x)[1], (np.ones(2),), (np.ones(2),))
    linearize(lambda x: (kept.append(x), x)[1], np.ones(2))
    for x in kept:
        with pytest.raises(errors.EscapedTensorError, match="after the transform"):
            use(x)


@both
def test_a_generator_and_a_recursion(push: Any) -> None:
    """The function is x + x^2 + x^3 + x (x + 1) (x + 2)."""

    def powers(x: Any) -> Any:
        y = x
        while True:
            yield y
            y = y * x

    def factorial_like(x: Any, n: int) -> Any:
        return x * factorial_like(x + 1, n - 1) if n else 1.0

    def f(x: Any) -> Any:
        return sum([p for p, _ in zip(powers(x), range(3), strict=False)]) + factorial_like(x, 3)

    close(push(f, 2.0, tangents=(1.0,))[1], 1 + 2 * 2.0 + 3 * 4.0 + 3 * 4.0 + 6 * 2.0 + 2)


@both
def test_branches_and_conversions_look_at_the_value(push: Any) -> None:
    def f(x: Any) -> Any:
        table = [1.0, 10.0, 100.0]
        y = x if x > 1 else -x
        while y < 20:
            y = y * 2
        return y * table[int(x)] + round(x) * x + len(np.ones(int(x)))

    close(push(f, 2.4, tangents=(1.0,))[1], 16 * 100.0 + 2)
