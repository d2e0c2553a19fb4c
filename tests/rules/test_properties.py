"""Core families at random shapes, axes, strides and dtypes, against closed forms and differences."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from meintorch.core.primitive import registry
from meintorch.func import grad, jvp, value_and_grad, vmap
from tests.cases import Case
from tests.cases.table import CASES
from tests.differences import directional, weighted, weights

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")
hnp = pytest.importorskip("hypothesis.extra.numpy")

settings = hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
FLOATS = [np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128]


def arrays(draw: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Draw well-scaled, pairwise different entries, in a random memory layout."""
    size = int(np.prod(shape))
    order = np.array(draw(st.permutations(range(size))), dtype=float) if size else np.zeros(0)
    values = ((order + 1) / (size + 1) * 2.4 - 1.13).reshape(shape)  # no entry is 0
    if np.dtype(dtype).kind == "c":
        values = values + 1j * values[..., ::-1] if shape else values + 0.5j
    x = values.astype(dtype)
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed", "read-only"]))
    if layout == "F":
        x = np.asfortranarray(x)
    elif layout == "strided" and shape:
        wide = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
        wide[..., ::2] = x
        x = wide[..., ::2]
    elif layout == "reversed" and shape:
        x = x[::-1].copy()[::-1]
    elif layout == "read-only":
        x.flags.writeable = False
    return x


def check(f: Any, *args: Any) -> None:
    """Hold value, gradient, forward mode and vmap of a function against the plain program."""
    loss = weighted(f)
    nums = tuple(range(len(args)))
    value, grads = value_and_grad(loss, argnums=nums)(*args)
    assert np.array_equal(value, loss(*args), equal_nan=True)
    for g, a in zip(grads, args, strict=True):
        assert (g.shape, g.dtype) == (a.shape, a.dtype)
    direction = [weights(a.shape, k + 3) for k, a in enumerate(args)]
    want = directional(loss, args, direction)
    got = sum(float(np.sum(g * d)) for g, d in zip(grads, direction, strict=True))
    size = sum(float(np.sum(np.abs(g * d))) for g, d in zip(grads, direction, strict=True))
    assert abs(got - want) <= 1e-6 * max(1.0, size)
    assert abs(float(jvp(loss, args, tuple(direction))[1]) - want) <= 1e-6 * max(1.0, size)
    batched = vmap(grad(loss, argnums=nums))(*[np.stack([a, a]) for a in args])
    for b, g in zip(batched, grads, strict=True):
        np.testing.assert_allclose(b, np.stack([g, g]), rtol=1e-10, atol=1e-12)


@settings
@hypothesis.given(st.data())
def test_reductions(data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, max_side=4))
    x = arrays(data.draw, shape)
    fun = data.draw(st.sampled_from([np.sum, np.mean, np.max, np.min, np.prod, np.var, np.std, np.linalg.norm]))
    axes = st.none() if not shape else st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1))
    if fun is not np.linalg.norm and shape:
        axes = st.one_of(axes, hnp.valid_tuple_axes(len(shape), min_size=1))
    axis, keepdims = data.draw(axes), data.draw(st.booleans())
    combined = np.size(x) // max(np.size(np.sum(x, axis=axis)), 1)
    hypothesis.assume(fun is not np.std or combined > 1)  # of one entry it has a kink
    check(lambda x: fun(x, axis=axis, keepdims=keepdims), x)


@settings
@hypothesis.given(st.data())
def test_broadcasting_operators(data: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3)).input_shapes
    a, b = arrays(data.draw, shapes[0]), arrays(data.draw, shapes[1]) + 2.5
    fun = data.draw(
        st.sampled_from(
            [operator.add, operator.sub, operator.mul, operator.truediv, np.maximum, np.arctan2, np.hypot, np.logaddexp]
        )
    )
    check(fun, a, b)
    check(lambda a: fun(fun(a, 2.5), a), a + 3.0)
    check(lambda a: np.where(a > 0, fun(a, b), a), a)


@settings
@hypothesis.given(st.data())
def test_shapes_and_indices(data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    x = arrays(data.draw, shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    check(lambda x: x[index] * x[index], x)
    axes = data.draw(st.permutations(range(len(shape))))
    check(lambda x: np.transpose(x, axes) ** 2, x)
    check(lambda x: np.reshape(np.transpose(x, axes), -1) ** 2, x)
    integers = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
    check(lambda x: x[integers] ** 2, x)


@settings
@hypothesis.given(st.data())
def test_matrix_products(data: Any) -> None:
    shapes = data.draw(
        hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, max_side=3)
    ).input_shapes
    a, b = arrays(data.draw, shapes[0]), arrays(data.draw, shapes[1])
    check(lambda a, b: a @ b, a, b)
    check(np.matmul, a, b)


FAMILIES = ("meintorch.rules.arithmetic", "meintorch.rules.elementwise", "meintorch.rules.reductions")


def family(case: Case) -> str:
    rules = [r for r in registry[case.row].rules.values() if r is not None]
    return rules[0].__module__ if rules else ""


@pytest.mark.parametrize(
    "case", [c for c in CASES if family(c) in FAMILIES and "dtype" not in c.label], ids=lambda c: c.id
)
@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_half_and_long_precision_are_kept(case: Case, dtype: Any) -> None:
    if any(a.dtype.kind == "c" for a in case.args):
        pytest.skip("NumPy has no complex half, and long complex follows the same rules")
    args = [a.astype(dtype) for a in case.args]
    for g, a in zip(grad(weighted(case.call), argnums=tuple(range(len(args))))(*args), args, strict=True):
        assert g.dtype == a.dtype
        assert g.shape == a.shape


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtype_through_a_network(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(3, 4)).astype(dtype), "b": rng.normal(size=4).astype(dtype)}
    x = rng.normal(size=(5, 3)).astype(dtype)

    def loss(p: Any) -> Any:
        h = np.tanh(x @ p["W"] + p["b"])
        z = np.exp(h - np.mean(h, axis=1, keepdims=True)) / 3
        return np.sum(np.abs(z[:, 1:] * z[:, :-1]) ** 2)

    value, g = value_and_grad(loss)(params)
    real = np.empty(0, dtype).real.dtype
    assert value.dtype == real
    assert g["W"].dtype == g["b"].dtype == dtype
