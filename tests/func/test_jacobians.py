"""jacrev, jacfwd, jacobian, hessian, hvp, gauss_newton_product: closed forms, trees, shapes, dtypes, refusals."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.func import gauss_newton_product, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp, vjp
from tests.conftest import objects_left_by

each = pytest.mark.parametrize("jac", [jacrev, jacfwd, jacobian], ids=["jacrev", "jacfwd", "jacobian"])


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"


def close(got: Any, want: Any, tolerance: float = 1e-11) -> None:
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(want)


# ---------------------------------------------------------------- closed forms


@each
def test_a_linear_map_is_its_own_jacobian(jac: Any, rng: np.random.Generator) -> None:
    A, x = rng.normal(size=(3, 4)), rng.normal(size=4)
    close(jac(lambda x: A @ x)(x), A)
    close(jac(lambda x: np.tanh(A @ x))(x), (1 - np.tanh(A @ x) ** 2)[:, None] * A)
    close(jac(lambda y: y @ A)(rng.normal(size=3)), A.T)


@each
def test_softmax(jac: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=5)
    p = np.exp(x) / np.sum(np.exp(x))
    close(jac(lambda x: np.exp(x) / np.sum(np.exp(x)))(x), np.diag(p) - np.outer(p, p))


@each
@pytest.mark.parametrize("out", [(), (1,), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 2), (0,), (0, 3)])
def test_shapes_are_those_of_the_output_and_then_the_input(
    jac: Any, out: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(2).normal(size=shape)
    w = np.random.default_rng(3).normal(size=out)
    close(jac(lambda x: w * np.sum(x * x))(x), np.multiply.outer(w, 2 * x))


@each
def test_matrices(jac: Any, rng: np.random.Generator) -> None:
    X, A = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    got = jac(lambda X: X @ A)(X)
    close(got, np.einsum("ik,lj->ijkl", np.eye(2), A))
    close(jac(lambda X: X.T)(X), np.einsum("ik,jl->jikl", np.eye(2), np.eye(3)))


@each
@pytest.mark.parametrize("x", [2.0, 2, np.float64(2), np.array(2.0), np.array(2), np.float32(2)])
def test_scalars(jac: Any, x: Any) -> None:
    got = jac(lambda x: x**3)(x)
    close(got, 12.0)
    assert got.dtype == (np.float32 if isinstance(x, np.float32) else np.float64)
    close(jac(lambda x: np.stack([x, x * x]))(x), [1.0, 4.0])


@each
def test_outputs_without_influence(jac: Any) -> None:
    x = np.ones((2, 2))
    close(jac(lambda x: 1.0)(x), np.zeros((2, 2)))
    close(jac(lambda x: np.ones(3))(x), np.zeros((3, 2, 2)))
    close(jac(lambda x: np.floor(x))(x), np.zeros((2, 2, 2, 2)))
    a, b = jac(lambda x, y: y * 1.0, (0, 1))(x, np.ones(2))
    close(a, np.zeros((2, 2, 2)))
    close(b, np.eye(2))
    close(jac(lambda x: 3.0)(2.0), 0.0)


@each
def test_the_input_itself_and_the_same_output_twice(jac: Any) -> None:
    close(jac(lambda x: x)(np.ones(3)), np.eye(3))
    close(jac(lambda x: x)(2.0), 1.0)
    a, (b,) = jac(lambda x: (x, (x,)))(np.ones(3))
    close(a, np.eye(3))
    close(b, np.eye(3))
    a[0, 0] = 7.0
    close(b, np.eye(3))


# ---------------------------------------------------------------- arguments


@each
def test_trees_in_and_out(jac: Any) -> None:
    def f(p: Layer, x: Any) -> Any:
        h = p.weight @ x + p.bias[0]
        return {"h": h, "parts": (np.sum(x), None), "layer": Layer(p.bias[0] ** 2, p.bias[1] * x[0], "out")}

    p, x = Layer(np.arange(6.0).reshape(2, 3), [np.array([1.0, 3.0]), 2.0]), np.array([1.0, 2.0, 3.0])
    got = jac(f)(p, x)
    assert list(got) == ["h", "parts", "layer"]
    assert type(got["h"]) is Layer
    assert got["h"].name == "layer"
    close(got["h"].weight, np.einsum("ij,k->ijk", np.eye(2), x))
    close(got["h"].bias[0], np.eye(2))
    close(got["h"].bias[1], np.zeros(2))
    assert got["parts"][1] is None
    close(got["parts"][0].weight, np.zeros((2, 3)))
    assert got["layer"].name == "out"
    close(got["layer"].weight.bias[0], np.diag([2.0, 6.0]))
    close(got["layer"].bias.bias[1], 1.0)
    both = jac(f, argnums=(1, 0))(p, x)
    close(both["h"][0], p.weight)
    close(both["h"][1].weight, got["h"].weight)


@each
def test_argnums_and_keywords(jac: Any) -> None:
    def f(a: Any, b: Any, *, scale: float = 1.0) -> Any:
        return a * b * scale

    a, b = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    close(jac(f)(a, b), np.diag(b))
    close(jac(f, 1)(a, b), np.diag(a))
    close(jac(f, -1)(a, b, scale=10.0), np.diag(10 * a))
    pair = jac(f, (0, 1))(a, b)
    assert type(pair) is tuple
    close(pair[1], np.diag(a))
    (single,) = jac(f, [0])(a, b)
    close(single, np.diag(b))
    with pytest.raises(errors.InputError, match="argnums=2"):
        jac(f, 2)(a, b)


@each
def test_has_aux(jac: Any) -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        return y * y, {"y": y, "n": 3, "parts": [np.sum(x), "text"]}

    for x in (np.array([0.5, 1.0]), 0.5):
        got, aux = jac(f, has_aux=True)(x)
        close(got, np.diag(np.sin(2 * x)) if np.ndim(x) else np.sin(2 * x))
        assert aux["n"] == 3
        assert aux["parts"][1] == "text"
        assert type(aux["y"]) is type(np.sin(x))
        np.testing.assert_array_equal(aux["y"], np.sin(x))
        assert type(aux["parts"][0]) is np.float64
    with pytest.raises(errors.OutputError, match="has_aux"):
        jac(np.sin, has_aux=True)(np.ones(2))


@each
def test_has_aux_in_chunks(jac: Any) -> None:
    got, aux = jac(lambda x: (x * x, [np.sum(x), x]), has_aux=True, chunk_size=2)(np.arange(5.0))
    close(got, np.diag(2 * np.arange(5.0)))
    assert aux[0] == 10.0
    np.testing.assert_array_equal(aux[1], np.arange(5.0))


@each
def test_aux_is_worth_the_functions_own(jac: Any) -> None:
    """Not that of a batch, which forward mode runs on."""
    _, aux = jac(lambda x: (x * 2, (x, np.ones(2), np.argmax(x))), has_aux=True)(np.array([1.0, 3.0, 2.0]))
    assert aux[0].tolist() == [1.0, 3.0, 2.0]
    assert aux[1].tolist() == [1.0, 1.0]
    assert aux[2] == 1


@each
def test_empty_trees(jac: Any) -> None:
    assert jac(lambda x: 1.0)({}) == {}
    assert jac(lambda x, y: (y, 2.0))([], 3.0) == ([], [])
    assert jac(lambda x: [])(np.ones(2)) == []


@each
@pytest.mark.parametrize(
    "f", [lambda x: x[:0], lambda x: x @ np.ones((3, 0)), lambda x: np.concatenate([x[:0], x[:0]]), lambda x: x[:0] * 2]
)
def test_empty_outputs(jac: Any, f: Callable[[Any], Any]) -> None:
    close(jac(f)(np.ones(3)), np.zeros((0, 3)))


@each
@pytest.mark.parametrize("f", [lambda x: x, lambda x: x @ np.ones((0, 2)), lambda x: np.sum(x), lambda x: np.prod(x)])
def test_empty_inputs(jac: Any, f: Callable[[Any], Any]) -> None:
    got = jac(f)(np.ones(0))
    assert got.shape == (*np.shape(f(np.ones(0))), 0)


@each
def test_strided_and_read_only_inputs_are_untouched(jac: Any, rng: np.random.Generator) -> None:
    base = rng.normal(size=(4, 6))
    for view in (base.T, base[::2, ::-1], np.asfortranarray(base), np.broadcast_to(base[0], (3, 6))):
        x = view.view()
        x.flags.writeable = False
        before = x.copy()
        n = x.size
        close(jac(lambda x: np.sin(x).T)(x).reshape(*x.T.shape, n)[0, 0], np.eye(n)[0] * np.cos(x[0, 0]))
        np.testing.assert_array_equal(x, before)


@each
def test_results_are_writable_and_share_no_memory(jac: Any) -> None:
    x, c = np.ones(3), np.ones((2, 3))
    for f in (
        lambda x: c @ x,
        lambda x: np.sum(x),
        lambda x: x,
        lambda x: np.broadcast_to(x, (2, 3)),
        lambda x: x + c[0],
    ):
        first = jac(f)(x)
        want = first.copy()
        assert first.flags.writeable
        first[...] = 9.0
        np.testing.assert_array_equal(jac(f)(x), want)
    np.testing.assert_array_equal(c, np.ones((2, 3)))
    np.testing.assert_array_equal(x, np.ones(3))


# ---------------------------------------------------------------- dtypes


@each
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_dtype_is_kept(jac: Any, dtype: Any) -> None:
    x = np.array([1.0, 2.0, 4.0], dtype)
    for f in (lambda x: 2.5 * x * x + 1, lambda x: np.sum(x * x), lambda x: x[:2] / 3, lambda x: np.outer(x, x)):
        assert jac(f)(x).dtype == dtype
    assert jac(lambda x: np.stack([x, x]))(dtype(2)).dtype == dtype


@each
def test_each_argument_gives_its_own_dtype(jac: Any) -> None:
    x, y = np.ones(2, np.float32), np.ones(2)
    for shape in ((2,), (5, 2)):
        gx, gy = jac(lambda x, y, shape=shape: np.broadcast_to(x * y, shape), (0, 1))(x, y)
        assert gx.dtype == np.float32
        assert gy.dtype == np.float64


@each
def test_integers_are_float64(jac: Any) -> None:
    close(jac(lambda x: x * x * 0.5)(np.array([1, 2])), np.diag([1.0, 2.0]))


# ---------------------------------------------------------------- chunks


@each
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 6, 7, 100])
def test_chunks_give_the_same(jac: Any, chunk_size: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3))

    def f(x: Any) -> Any:
        return {"a": np.outer(x, x) * np.sum(x), "b": np.tanh(x[0])}

    want, got = jac(f)(x), jac(f, chunk_size=chunk_size)(x)
    close(got["a"], want["a"])
    close(got["b"], want["b"])
    close(hessian(lambda x: np.sum(x**3), chunk_size=chunk_size)(x), np.diag(6 * x.ravel()).reshape(2, 3, 2, 3))


@each
@pytest.mark.usefixtures("usual_sizes")
def test_chunks_bound_the_memory(jac: Any) -> None:
    x = np.linspace(0.1, 1.0, 120)

    def f(x: Any) -> Any:
        total = np.zeros(120)
        for k in range(1, 20):
            total = total + np.sum(np.sin(k * np.outer(x, x)), axis=0)
        return total

    def peak(chunk_size: int | None) -> int:
        tracemalloc.start()
        try:
            jac(f, chunk_size=chunk_size)(x)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    whole, chunked = peak(None), peak(4)
    assert chunked < whole / 2


# ---------------------------------------------------------------- complex numbers


@each
def test_holomorphic(jac: Any) -> None:
    z = np.array([1.0 + 2.0j, 3.0 - 1.0j])
    close(jac(lambda z: np.exp(z) * z, holomorphic=True)(z), np.diag(np.exp(z) * (1 + z)))
    close(jac(lambda z: z * z, holomorphic=True)(1.0 + 2.0j), 2.0 + 4.0j)
    A = np.array([[1.0, 2.0j, 0.5], [0.0, 1j, -1.0]])
    got = jac(lambda z: A.T @ z, holomorphic=True)(z)
    close(got, A.T)
    assert jac(lambda z: z * z, holomorphic=True)(z.astype(np.complex64)).dtype == np.complex64
    close(hessian(lambda z: np.sum(z**3), holomorphic=True)(z), np.diag(6 * z))


@each
def test_holomorphic_refusals(jac: Any) -> None:
    with pytest.raises(errors.InputError, match="holomorphic=True every input has to be complex"):
        jac(lambda z: z * 1j, holomorphic=True)(np.ones(2))
    with pytest.raises(errors.OutputError, match="holomorphic=True every output has to be complex"):
        jac(np.abs, holomorphic=True)(np.ones(2) + 0j)
    with pytest.raises(errors.OutputError, match=r"output is complex.*holomorphic=True.*np\.real"):
        jac(lambda x: x * 1j)(np.ones(2))


@each
def test_a_complex_output_of_a_number_is_refused(jac: Any) -> None:
    with pytest.raises(errors.OutputError, match=r"output is complex.*holomorphic=True"):
        jac(lambda x: x * 1j)(2.0)


def test_complex_inputs_of_real_functions() -> None:
    z = np.array([1.0 + 2.0j, -0.5j])
    close(jacrev(lambda z: np.abs(z) ** 2)(z), np.diag(2 * np.conj(z)))  # df/dx - i df/dy
    with pytest.raises(errors.InputError, match="input is complex.*holomorphic=True.*real and imaginary"):
        jacfwd(lambda z: np.abs(z) ** 2)(z)


@pytest.mark.parametrize("copies", [1, 5])
def test_jacobian_of_a_complex_input_does_not_depend_on_the_shapes(copies: int) -> None:
    z = np.array([1.0 + 2.0j, -0.5j])
    got = jacobian(lambda z: np.stack([np.abs(z) ** 2] * copies))(z)
    close(got, np.stack([np.diag(2 * np.conj(z))] * copies))


# ---------------------------------------------------------------- outputs without a derivative


@each
@pytest.mark.parametrize("f", [np.argmax, lambda x: x > 0, lambda x: (x, 3), lambda x: np.argsort(x)])
def test_integer_and_boolean_outputs(jac: Any, f: Callable[[Any], Any]) -> None:
    with pytest.raises(errors.OutputError, match=r"output has dtype (int64|bool), which has no derivative"):
        jac(f)(np.ones(2))


@each
@pytest.mark.parametrize("returned", ["text", object()])
def test_outputs_that_are_no_numbers(jac: Any, returned: Any) -> None:
    with pytest.raises(errors.OutputError, match="outputs? must be arrays or numbers|no derivative"):
        jac(lambda x: (x, returned))(np.ones(2))


@each
@pytest.mark.parametrize("x", [True, "text", None, np.array([True]), {"a": [1.0, "text"]}])
def test_inputs_without_a_derivative(jac: Any, x: Any) -> None:
    with pytest.raises(errors.InputError, match="argument 0"):
        jac(lambda x: 1.0)(x)


@each
def test_an_exception_passes_through_and_leaves_nothing(jac: Any) -> None:
    def f(x: Any) -> Any:
        jac(lambda y: y * x)(x)
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            jac(f)(np.ones(2))
    close(jac(lambda x: x * x)(np.ones(2)), 2 * np.eye(2))


@each
def test_the_object(jac: Any) -> None:
    j = jac(np.sin, argnums=(0,), chunk_size=3)
    assert j.__name__ == "sin"
    assert repr(j) == f"{jac.__name__}(sin, argnums=(0,), chunk_size=3)"
    close(pickle.loads(pickle.dumps(j))(np.zeros(2))[0], np.eye(2))
    with pytest.raises(errors.InputError, match="takes a function"):
        jac(3.0)


@each
def test_no_cycles(jac: Any) -> None:
    def call() -> None:
        jac(lambda x: np.tanh(x) * np.sum(x))(np.ones(3))
        hessian(lambda x: np.sum(x**3))(np.ones(3))
        hvp(lambda x: np.sum(x**3), np.ones(3), np.ones(3))
        gauss_newton_product(lambda x: x**2, np.ones(3), np.ones(3))

    assert objects_left_by(call) == 0


@pytest.mark.parametrize("n", [2, 20])
def test_an_infinite_slope_of_one_output_is_none_of_the_others(n: int) -> None:
    x = np.arange(float(n))
    squares, _ = jacrev(lambda x: [x * x, np.sum(np.sqrt(x))])(x)
    np.testing.assert_array_equal(squares, np.diag(2 * x))


def test_forward_mode_runs_the_function_on_all_directions_at_once() -> None:
    for jac, want in ((jacrev, 1), (jacobian, 1), (jacfwd, 1)):
        calls: list[int] = []
        jac(lambda x, calls=calls: (calls.append(1), np.tanh(x))[1])(np.ones(6))
        assert len(calls) == want, jac


# ---------------------------------------------------------------- second derivatives


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_hessian(x: Any) -> Any:
    n = len(x)
    H = np.zeros((n, n))
    for i in range(n - 1):
        H[i, i] += 1200 * x[i] ** 2 - 400 * x[i + 1] + 2
        H[i, i + 1] -= 400 * x[i]
        H[i + 1, i] -= 400 * x[i]
        H[i + 1, i + 1] += 200
    return H


@pytest.mark.parametrize("outer", [jacrev, jacfwd, jacobian], ids=["rev", "fwd", "any"])
@pytest.mark.parametrize("inner", [jacrev, jacfwd, grad], ids=["rev", "fwd", "grad"])
def test_every_composition_is_the_hessian(outer: Any, inner: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=5)
    close(outer(inner(rosenbrock))(x), rosenbrock_hessian(x), 1e-9)
    close(outer(inner(lambda t: np.sin(t) * t))(0.7), 2 * np.cos(0.7) - np.sin(0.7) * 0.7)


def test_hessian(rng: np.random.Generator) -> None:
    x, A = rng.normal(size=5), rng.normal(size=(5, 5))
    close(hessian(rosenbrock)(x), rosenbrock_hessian(x), 1e-9)
    close(hessian(lambda x: x @ A @ x)(x), A + A.T)
    close(hessian(lambda x: np.sum(x))(x), np.zeros((5, 5)))
    close(hessian(lambda x: 1.0)(x), np.zeros((5, 5)))
    close(hessian(lambda x: x**3)(2), 12.0)
    close(hessian(lambda x: np.sum(x**3))(np.ones((0,))), np.zeros((0, 0)))
    got = hessian(lambda x: x**3)(x)  # of a vector
    close(got, np.einsum("ij,jk->ijk", np.eye(5), np.diag(6 * x)))
    X = rng.normal(size=(2, 3))
    close(hessian(lambda X: np.sum(X**3))(X), np.diag(6 * X.ravel()).reshape(2, 3, 2, 3))
    assert hessian(lambda x: np.sum(x**3))(np.ones(2, np.float32)).dtype == np.float32


def test_hessian_of_trees_arguments_and_aux() -> None:
    got = hessian(lambda p: p["a"] ** 2 * np.sum(p["b"] ** 2))({"a": 3.0, "b": np.array([1.0, 2.0])})
    close(got["a"]["a"], 10.0)
    close(got["a"]["b"], [12.0, 24.0])
    close(got["b"]["a"], [12.0, 24.0])
    close(got["b"]["b"], 18.0 * np.eye(2))
    (aa, ab), (ba, bb) = hessian(lambda a, b: a**2 * b, (0, 1))(2.0, 3.0)
    for g, w in ((aa, 6.0), (ab, 4.0), (ba, 4.0), (bb, 0.0)):
        close(g, w)
    H, aux = hessian(lambda x: (np.sum(x**3), {"x": x, "n": 1}), has_aux=True)(np.array([1.0, 2.0]))
    close(H, np.diag([6.0, 12.0]))
    assert type(aux["x"]) is np.ndarray
    assert aux["x"].tolist() == [1.0, 2.0]
    assert aux["n"] == 1


def test_hvp(rng: np.random.Generator) -> None:
    x, v = rng.normal(size=5), rng.normal(size=5)
    close(hvp(rosenbrock, x, v), rosenbrock_hessian(x) @ v, 1e-9)
    got = hvp(
        lambda p: p["a"] ** 2 * np.sum(p["b"]), {"a": 3.0, "b": np.ones(2)}, {"a": 1.0, "b": np.array([1.0, 0.0])}
    )
    close(got["a"], 4.0 + 6.0)
    close(got["b"], [6.0, 6.0])
    close(hvp(lambda x: x**3, 2, 1), 12.0)
    close(hvp(lambda x: np.sum(x), x, v), np.zeros(5))
    close(hvp(lambda x: 1.0, x, v), np.zeros(5))
    assert hvp(lambda x: np.sum(x**3), np.ones(2, np.float32), np.ones(2)).dtype == np.float32
    with pytest.raises(errors.OutputError, match="scalar"):
        hvp(lambda x: x, x, v)
    with pytest.raises(errors.InputError, match=r"tangent of argument 0 has shape \(3,\)"):
        hvp(rosenbrock, x, np.ones(3))
    with pytest.raises(errors.TreeError, match="tangent"):
        hvp(rosenbrock, x, (v,))


def test_gauss_newton_product(rng: np.random.Generator) -> None:
    A, x, v = rng.normal(size=(6, 4)), rng.normal(size=4), rng.normal(size=4)
    J = (1 - np.tanh(A @ x) ** 2)[:, None] * A
    close(gauss_newton_product(lambda x: np.tanh(A @ x), x, v), J.T @ (J @ v))
    close(gauss_newton_product(lambda x: x, x, v), v)
    close(gauss_newton_product(lambda x: np.ones(3), x, v), np.zeros(4))
    close(gauss_newton_product(lambda x: x * x, 2.0, 1.0), 16.0)
    got = gauss_newton_product(
        lambda p: (p["a"] * p["b"], [p["a"]]), {"a": np.ones(2), "b": 2.0}, {"a": np.ones(2), "b": 1.0}
    )
    close(got["a"], [7.0, 7.0])  # J v = (a b' + b a', a') = (3, 3, 1, 1)
    close(got["b"], 6.0)
    assert gauss_newton_product(lambda x: x * x, np.ones(2, np.float32), np.ones(2)).dtype == np.float32
    with pytest.raises(errors.InputError, match="tangent"):
        gauss_newton_product(lambda x: x, x, np.ones(3))


def test_products_agree_with_the_matrices(rng: np.random.Generator) -> None:
    W, x, v, u = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=4), rng.normal(size=3)

    def f(x: Any) -> Any:
        h = W @ np.sin(x)
        return h * np.linalg.norm(x) + np.max(x)

    J = jacobian(f)(x)
    for jac in (jacrev, jacfwd):
        close(jac(f)(x), J)
    close(jvp(f, (x,), (v,))[1], J @ v)
    close(vjp(f, x)[1](u)[0], u @ J)
    step = 1e-6
    columns = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(4)]
    close(J, np.stack(columns, 1), 1e-7)
