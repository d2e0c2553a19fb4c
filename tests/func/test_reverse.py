"""grad, value_and_grad, vjp, stop_gradient: arguments, results, trees, nesting."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections import OrderedDict, UserList, deque, namedtuple
from typing import Any

import numpy as np
import pytest

import meintorch
from meintorch import errors
from meintorch.func import grad, hessian, stop_gradient, value_and_grad, vjp, vmap

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - the untyped kind has to work too


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"


def cubic(x: Any, scale: Any = 1.0) -> Any:
    """Return scale x**3 + x."""
    return scale * x * x * x + x


def total(tree: dict[str, Any]) -> Any:
    return np.sum(tree["w"] ** 2) + tree["s"]


def close(got: Any, want: Any) -> None:
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert got.shape == np.shape(want)


# ---------------------------------------------------------------- results


def test_the_first_example() -> None:
    got = grad(lambda x: x * x + x)(3.0)
    assert type(got) is np.ndarray
    assert got.shape == ()
    assert got.dtype == np.float64
    assert got == 7.0
    assert meintorch.grad is grad


@pytest.mark.parametrize("x", [3.0, 3, np.float64(3), np.array(3.0), np.array(3), np.int32(3), np.float32(3)])
def test_scalar_inputs(x: Any) -> None:
    value, g = value_and_grad(cubic)(x)
    assert value == 30.0
    assert g == 28.0
    assert g.dtype == (np.float32 if isinstance(x, np.float32) else np.float64)


def test_integer_arrays_are_float64() -> None:
    close(grad(lambda x: np.sum(0.5 * x))(np.array([1, 2, 3])), [0.5] * 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_dtype_is_kept(dtype: Any) -> None:
    x = np.array([1.0, 2.0], dtype)
    for f in (lambda x: np.sum(2.5 * x * x + 1), lambda x: np.sum(np.tanh(x) / 3), lambda x: np.sum(x**2)):
        value, g = value_and_grad(f)(x)
        assert value.dtype == dtype
        assert g.dtype == dtype


def test_complex_input_follows_the_convention() -> None:
    z = np.array([1.0 + 2.0j, -0.5j])
    g = grad(lambda z: np.sum(np.real(z) ** 2 + 3 * np.imag(z)))(z)  # df/dx - i df/dy
    close(g, 2 * z.real - 3j)


def test_holomorphic_functions() -> None:
    z = 0.3 + 0.7j
    f = lambda z: np.exp(z) * z * z  # noqa: E731
    close(grad(f, holomorphic=True)(z), np.exp(z) * (z * z + 2 * z))
    close(grad(grad(f, holomorphic=True), holomorphic=True)(z), np.exp(z) * (z * z + 4 * z + 2))
    with pytest.raises(errors.InputError, match="complex"):
        grad(f, holomorphic=True)(0.3)
    with pytest.raises(errors.OutputError, match="has to be complex"):
        grad(lambda z: np.abs(z), holomorphic=True)(z)
    with pytest.raises(errors.OutputError, match="holomorphic=True"):
        grad(f)(z)


def test_mixed_dtypes_give_each_its_own() -> None:
    x, y = np.float32(1.5), np.array([1.0, 2.0])
    gx, gy = grad(lambda x, y: np.sum(x * y), argnums=(0, 1))(x, y)
    assert gx.dtype == np.float32
    assert gy.dtype == np.float64
    gz = grad(lambda a: np.real(np.sum(a * np.array([1j, 2.0]))))(y)
    close(gz, [0.0, 2.0])


def test_an_input_without_influence_gets_zeros() -> None:
    a, b = grad(lambda a, b: a * 2.0, argnums=(0, 1))(1.0, np.ones((2, 3), np.float32))
    close(a, 2.0)
    assert b.dtype == np.float32
    np.testing.assert_array_equal(b, np.zeros((2, 3)))
    close(grad(lambda x: 4.0)(2.0), 0.0)
    close(grad(lambda x: 1)(2.0), 0.0)


def test_results_are_writable_and_share_no_memory() -> None:
    x, y = np.arange(3.0), np.ones(3)
    gx, gy = grad(lambda x, y: np.sum(x + y), argnums=(0, 1))(x, y)
    assert gx.flags.writeable
    assert gy.flags.writeable
    gx[:] = 9.0
    close(gy, np.ones(3))
    seed = np.ones(3)
    out, pullback = vjp(lambda x: x + 0.0, x)
    (g,) = pullback(seed)
    assert not np.shares_memory(g, seed)
    (h,) = pullback(seed)
    assert not np.shares_memory(g, h)
    assert not np.shares_memory(out, x)


def test_value_is_bit_for_bit_that_of_the_function(rng: np.random.Generator) -> None:
    X, w = rng.normal(size=(50, 7)), rng.normal(size=7)

    def f(w: Any) -> Any:
        z = X @ w
        return np.mean(np.logaddexp(0.0, -z)) + 0.5e-3 * np.sum(w**2) + np.max(z) ** 3 % 2.0

    assert value_and_grad(f)(w)[0] == f(w)


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("kind", [lambda parts: Pair(*parts), deque, UserList])
@pytest.mark.parametrize("join", [np.stack, np.concatenate, np.vstack])
@pytest.mark.parametrize("transform", [grad, hessian, lambda f: vmap(grad(f), in_axes=None, axis_size=2)])
def test_traced_values_are_found_in_any_sequence(transform: Any, join: Any, kind: Any) -> None:
    x = np.array([1.0, 2.0])
    got = transform(lambda x: np.sum(join(kind([x, 2 * x])) ** 3))(x)
    want = transform(lambda x: np.sum(join([x, 2 * x]) ** 3))(x)
    np.testing.assert_array_equal(got, want)


def test_argnums() -> None:
    f = lambda a, b, c: a * b * b * c  # noqa: E731
    close(grad(f)(2.0, 3.0, 5.0), 45.0)
    close(grad(f, 1)(2.0, 3.0, 5.0), 60.0)
    close(grad(f, argnums=-1)(2.0, 3.0, 5.0), 18.0)
    both = grad(f, argnums=(-1, 0))(2.0, 3.0, 5.0)
    assert isinstance(both, tuple)
    close(both[0], 18.0)
    close(both[1], 45.0)
    (single,) = grad(f, argnums=(1,))(2.0, 3.0, 5.0)
    close(single, 60.0)
    close(grad(f, argnums=[0])(2.0, 3.0, 5.0)[0], 45.0)


@pytest.mark.parametrize("argnums", [True, 1.0, "x", np.array([0, 1]), {0, 1}, (0, False)])
def test_argnums_are_integers(argnums: Any) -> None:
    with pytest.raises(errors.InputError, match="integer"):
        grad(lambda a, b: a * b, argnums)(2.0, 3.0)
    assert grad(lambda a, b: a * b, np.int64(1))(2.0, 3.0) == 2.0


@pytest.mark.parametrize("argnames", [{"b"}, 1, ("b", 0)])
def test_argnames_are_strings(argnames: Any) -> None:
    with pytest.raises(errors.InputError, match="string"):
        grad(lambda a, b: a * b, argnames=argnames)(2.0, b=3.0)


def test_argnames() -> None:
    f = lambda a, *, b, c=1.0: a * b * b * c  # noqa: E731
    close(grad(f, argnames="b")(2.0, b=3.0), 12.0)
    named = grad(f, argnames=("c", "b"))(2.0, b=3.0, c=5.0)
    assert list(named) == ["c", "b"]
    close(named["c"], 18.0)
    by_number, by_name = grad(f, 0, argnames="b")(2.0, b=3.0)
    close(by_number, 9.0)
    close(by_name, 12.0)
    (value, aux), g = value_and_grad(lambda *, p: (p["x"] ** 2, p["x"]), argnames="p", has_aux=True)(p={"x": 3.0})
    assert value == 9.0
    assert aux == 3.0
    close(g["x"], 6.0)
    with pytest.raises(errors.InputError, match="by keyword"):
        grad(f, argnames="c")(2.0, b=3.0)


def test_keyword_arguments_pass_through() -> None:
    close(grad(cubic)(2.0, scale=10.0), 121.0)
    close(grad(lambda x, *, mode: x * x if mode == "square" else x)(3.0, mode="square"), 6.0)


def test_arguments_that_are_not_differentiated_are_anything() -> None:
    def f(x: Any, n: int, name: str, flag: bool, act: Any, extra: Any) -> Any:
        assert isinstance(n, int)
        assert name == "tanh"
        assert flag is True
        assert extra == {"k": [1, "two"]}
        return act(x) * n

    close(grad(f)(0.5, 3, "tanh", True, np.tanh, {"k": [1, "two"]}), 3 * (1 - np.tanh(0.5) ** 2))


def test_trees() -> None:
    tree = {
        "list": [np.ones(2), 2.0],
        "tuple": (np.ones((2, 1)), None),
        "pair": Pair(1.0, np.arange(3.0)),
        "ordered": OrderedDict(b=1.0, a=2.0),
        "layer": Layer(np.eye(2), np.zeros(2)),
        "act": np.tanh,
    }

    def f(t: dict[str, Any]) -> Any:
        assert t["layer"].name == "layer"
        h = t["act"](t["layer"].weight @ t["list"][0] + t["layer"].bias)
        return (
            np.sum(h) * t["list"][1]
            + np.sum(t["tuple"][0]) * t["pair"].left
            + np.sum(t["pair"].right ** 2)
            + t["ordered"]["a"] * t["ordered"]["b"]
        )

    g = grad(f)(tree)
    s = 1 - np.tanh(1.0) ** 2
    assert list(g) == list(tree)
    close(g["list"][0], [2 * s, 2 * s])
    close(g["list"][1], 2 * np.tanh(1.0))
    close(g["tuple"][0], [[1.0], [1.0]])
    assert g["tuple"][1] is None
    assert isinstance(g["pair"], Pair)
    close(g["pair"].right, [0.0, 2.0, 4.0])
    assert isinstance(g["ordered"], OrderedDict)
    assert list(g["ordered"]) == ["b", "a"]
    close(g["ordered"]["b"], 2.0)
    assert isinstance(g["layer"], Layer)
    close(g["layer"].weight, 2 * s * np.ones((2, 2)))
    assert g["layer"].name == "layer"
    assert g["act"] is np.tanh


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        return y * y, {"y": y, "n": 3, "parts": [x, "text"]}

    (value, aux), g = value_and_grad(f, has_aux=True)(0.5)
    assert value == np.sin(0.5) ** 2
    close(g, 2 * np.sin(0.5) * np.cos(0.5))
    assert type(aux["y"]) is np.float64
    assert aux["y"] == np.sin(0.5)
    assert aux["n"] == 3
    assert type(aux["parts"][0]) is np.float64
    assert aux["parts"][1] == "text"
    g2, aux2 = grad(f, has_aux=True)(0.5)
    close(g2, g)
    assert aux2["y"] == aux["y"]
    with pytest.raises(errors.OutputError, match="has_aux"):
        grad(cubic, has_aux=True)(1.0)


# ---------------------------------------------------------------- vjp


def test_vjp_of_trees() -> None:
    def f(p: dict[str, Any], x: Any) -> Any:
        return {"sum": p["a"] + x, "rest": (p["a"] * x, 1.0)}

    out, pullback = vjp(f, {"a": np.array([1.0, 2.0])}, 3.0)
    close(out["sum"], [4.0, 5.0])
    assert out["rest"][1] == 1.0
    p_ct, x_ct = pullback({"sum": np.ones(2), "rest": (np.array([1.0, 10.0]), 0.0)})
    close(p_ct["a"], [4.0, 31.0])
    close(x_ct, 23.0)


def test_pullback_is_linear_and_may_be_called_again() -> None:
    x = np.array([0.3, 0.7])
    _, pullback = vjp(lambda x: np.exp(x) * x, x)
    for seed in ([1.0, 0.0], [0.0, 1.0], [2.0, -3.0]):
        close(pullback(np.array(seed))[0], np.array(seed) * np.exp(x) * (1 + x))
    assert "pullback" in repr(pullback)


def test_vjp_has_aux() -> None:
    out, pullback, aux = vjp(lambda x: (x * 2.0, {"x": x}), np.ones(2), has_aux=True)
    assert type(aux["x"]) is np.ndarray
    close(pullback(np.ones(2))[0], [2.0, 2.0])
    assert out.tolist() == [2.0, 2.0]


def test_vjp_refuses_cotangents_that_do_not_fit() -> None:
    out, pullback = vjp(lambda x: x * 2.0, np.ones(2))
    with pytest.raises(errors.OutputError, match=r"shape \(3,\).*shape \(2,\)"):
        pullback(np.ones(3))
    with pytest.raises(errors.OutputError, match="complex"):
        pullback(np.ones(2) * 1j)
    with pytest.raises(errors.TreeError, match="cotangent"):
        pullback((np.ones(2), np.ones(2)))
    assert out.shape == (2,)


# ---------------------------------------------------------------- nesting


def test_no_perturbation_confusion() -> None:
    close(grad(lambda x: x * grad(lambda y: x * y)(2.0))(1.0), 2.0)
    close(grad(lambda x: grad(lambda y: y * (x - y))(x))(1.0), -1.0)
    close(grad(lambda x: grad(lambda y: x * x * y * y)(3.0))(2.0), 2 * 2.0 * 2 * 3.0)
    close(grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0), 1.0)
    close(grad(lambda x: grad(lambda y: grad(lambda z: x * y * z * z)(x))(x) * x)(2.0), 6 * 4.0)


def test_high_orders() -> None:
    f = np.sin
    for want in (np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7), np.cos(0.7)):
        f = grad(f)
        close(f(0.7), want)


def test_value_and_grad_under_grad() -> None:
    def f(x: Any) -> Any:
        value, slope = value_and_grad(cubic)(x)
        return value * slope

    close(grad(f)(2.0), 13.0 * 13.0 + 10.0 * 12.0)


def test_closures_over_outer_values_in_trees() -> None:
    def outer(p: dict[str, Any]) -> Any:
        inner = grad(lambda q: np.sum(q["w"] ** 3) * p["s"] + p["s"] * q["s"])({"w": p["w"], "s": p["s"]})
        return np.sum(inner["w"]) + inner["s"]

    g = grad(outer)({"w": np.array([1.0, 2.0]), "s": 3.0})
    close(g["w"], 6 * np.array([1.0, 2.0]) * 3.0)
    close(g["s"], 3 * 5.0 + 1)


def test_vjp_under_grad() -> None:
    def f(x: Any) -> Any:
        out, pullback = vjp(lambda y: y * y * x, x)
        return pullback(out)[0]  # 2 x**2 times x**3

    close(grad(f)(2.0), 10 * 16.0)


def test_stop_gradient() -> None:
    close(grad(lambda x: x * stop_gradient(x))(3.0), 3.0)
    close(grad(grad(lambda x: x * x * stop_gradient(x)))(3.0), 6.0)
    close(grad(lambda p: p["a"] * stop_gradient(p)["a"])({"a": 2.0})["a"], 2.0)
    x = np.array([1.0, 2.0])
    held = stop_gradient(x)
    held[0] = 9.0
    assert x[0] == 1.0
    close(grad(lambda x: grad(lambda y: y * stop_gradient(x * y))(x) + x)(3.0), 1.0)


# ---------------------------------------------------------------- objects


def test_transforms_are_objects_with_the_functions_face() -> None:
    g = grad(cubic)
    assert g.__name__ == "cubic"
    assert g.__doc__ == cubic.__doc__
    assert inspect.signature(g) == inspect.signature(cubic)
    assert repr(g) == "grad(cubic)"
    assert repr(value_and_grad(g, argnums=(0, 1), has_aux=True)) == (
        "value_and_grad(grad(cubic), argnums=(0, 1), has_aux=True)"
    )


def test_transforms_pickle() -> None:
    g = pickle.loads(pickle.dumps(grad(grad(cubic), argnums=0)))
    close(g(2.0), 12.0)
    h = pickle.loads(pickle.dumps(value_and_grad(total)))
    value, slope = h({"w": np.arange(3.0), "s": 1.0})
    assert value == 6.0
    close(slope["w"], [0.0, 2.0, 4.0])


def test_transforms_are_methods_when_defined_in_a_class() -> None:
    class Model:
        power = 3

        def loss(self, x: Any) -> Any:
            return x**self.power

        slope = grad(loss, argnums=1)

    close(Model().slope(2.0), 12.0)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("returned", [np.ones(3), np.ones((2, 2))])
def test_output_that_is_no_scalar(returned: Any) -> None:
    with pytest.raises(errors.OutputError, match=r"np\.sum.*jacrev"):
        grad(lambda x: x * returned)(2.0)


def test_output_of_shape_1() -> None:
    with pytest.raises(errors.OutputError, match=r"index it with \[0\]"):
        grad(lambda x: x * np.ones(1))(2.0)


@pytest.mark.parametrize("returned", [None, "text", (1.0, 2.0), [1.0]])
def test_output_that_is_no_number(returned: Any) -> None:
    with pytest.raises(errors.OutputError, match="has_aux=True"):
        grad(lambda x: returned)(2.0)


def test_complex_and_bool_outputs() -> None:
    with pytest.raises(errors.OutputError, match=r"np\.real"):
        grad(lambda x: x * 1j)(2.0)
    with pytest.raises(errors.OutputError, match="bool"):
        grad(lambda x: x > 1)(2.0)


def test_missing_argument() -> None:
    with pytest.raises(errors.InputError, match="argnums=2.*called with 2 positional"):
        grad(cubic, argnums=2)(1.0, 2.0)
    with pytest.raises(errors.InputError, match="by position|argnames"):
        grad(cubic)(x=1.0)
    with pytest.raises(errors.InputError, match="twice"):
        grad(cubic, argnums=(0, -2))(1.0, 2.0)


@pytest.mark.parametrize(
    ("tree", "where", "what"),
    [
        (True, "argument 0 ", "bool"),
        ("text", "argument 0 ", "str"),
        (None, "argument 0 ", "None"),
        (np.tanh, "argument 0 ", "ufunc"),
        (np.array([True, False]), "argument 0 ", "dtype bool"),
        ({"w": [1.0, "text"]}, r"argument 0\['w'\]\[1\] ", "str"),
        ({"w": [1.0, True]}, r"argument 0\['w'\]\[1\] ", "bool"),
        (np.array([object()]), "argument 0 ", "dtype object"),
        (np.array(["a"]), "argument 0 ", "dtype <U1"),
        (np.ma.masked_array([1.0]), "argument 0 ", "MaskedArray"),
        (np.array(["2020-01-01"], "M8[D]"), "argument 0 ", "datetime"),
    ],
)
def test_inputs_without_a_derivative(tree: Any, where: str, what: str) -> None:
    with pytest.raises(errors.InputError, match=where + ".*" + what):
        grad(lambda x: 1.0)(tree)


def test_not_a_function() -> None:
    with pytest.raises(errors.InputError, match="takes a function"):
        grad(3.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("lay", [np.asfortranarray, np.transpose])
def test_vjp_adds_in_the_order_of_the_input_in_memory(rng: np.random.Generator, lay: Any) -> None:
    x = lay(rng.normal(size=(40, 50)))
    assert vjp(np.sum, x)[0] == np.sum(x)
    assert vjp(lambda x: np.sum(x * x), x)[0] == np.sum(x * x)
