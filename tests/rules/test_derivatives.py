"""The properties that every case has: the same value, the right derivative, the right second derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meintorch.core.primitive import GENERAL, Primitive, registry
from meintorch.errors import RowError
from meintorch.func import grad, value_and_grad, vjp
from tests.cases import Case
from tests.cases.table import CASES
from tests.differences import directional, gradient, outputs, weighted

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def argnums(case: Case) -> tuple[int, ...]:
    return tuple(range(len(case.args)))


def copies(case: Case) -> list[Any]:
    return [a.copy() for a in case.args]


@every_case
def test_value_is_the_same_bit_for_bit(case: Case) -> None:
    want = outputs(case.call(*copies(case)))
    got = outputs(vjp(case.call, *copies(case))[0])
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(w)
        assert np.asarray(g).dtype == np.asarray(w).dtype
        assert np.array_equal(g, w, equal_nan=np.asarray(w).dtype.kind in "fc")
    loss = weighted(case.call)
    assert np.array_equal(value_and_grad(loss)(*copies(case))[0], loss(*copies(case)), equal_nan=True)


@every_case
def test_gradient_agrees_with_differences(case: Case) -> None:
    loss, before = weighted(case.call), copies(case)
    args = copies(case)
    got = grad(loss, argnums=argnums(case))(*args)
    for a, b in zip(args, before, strict=True):
        assert np.array_equal(a, b)  # no input is written to
    want = gradient(loss, before)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert type(g) is np.ndarray
        assert g.shape == case.args[k].shape
        assert g.dtype == case.args[k].dtype
        assert g.flags.writeable
        assert not np.shares_memory(g, args[k])
        scale = max(1.0, float(np.max(np.abs(w), initial=0.0)))
        np.testing.assert_allclose(g, w, rtol=case.tolerance, atol=case.tolerance * scale, err_msg=f"argument {k}")


@every_case
def test_second_derivative_agrees_with_differences(case: Case) -> None:
    if not case.second:
        pytest.skip("the case says that there is no second derivative at its point")
    loss, nums = weighted(case.call), argnums(case)

    def slope(*args: Any) -> Any:
        parts = grad(loss, argnums=nums)(*args)
        return weighted(lambda *xs: xs, seed=77)(*parts)

    second = grad(slope, argnums=nums)(*copies(case))
    for seed in range(2):  # along random directions, which notice a wrong entry anywhere
        rng = np.random.default_rng(seed)
        direction = [rng.normal(size=a.shape) * (1 + 1j if a.dtype.kind == "c" else 1) for a in case.args]
        got = sum(float(np.sum(np.real(g * d))) for g, d in zip(second, direction, strict=True))
        size = sum(float(np.sum(np.abs(g * d))) for g, d in zip(second, direction, strict=True))
        want = directional(slope, copies(case), direction)
        assert abs(got - want) <= 20 * case.tolerance * max(1.0, size), (got, want)


@every_case
def test_single_precision_stays_single(case: Case) -> None:
    """float32 in, float32 out, for every gradient; only the dtype is looked at, not rounding."""
    small = {"f": np.float32, "c": np.complex64}
    args = [a.astype(small[a.dtype.kind]) for a in case.args]
    wide = any(np.asarray(out).dtype in (np.float64, np.complex128) for out in outputs(case.call(*args)))
    for g, a in zip(grad(weighted(case.call), argnums=argnums(case))(*args), args, strict=True):
        assert g.dtype == a.dtype
    if not wide:
        out, pullback = vjp(case.call, *args)
        ones = [np.ones_like(x) for x in outputs(out)]
        for g, a in zip(
            pullback(ones if isinstance(out, list) else tuple(ones) if isinstance(out, tuple) else ones[0]),
            args,
            strict=True,
        ):
            assert g.dtype == a.dtype


def test_every_differentiable_row_has_a_case() -> None:
    covered = {case.row for case in CASES}
    named = {prim.name for fun, prim in registry.items() if fun in covered}
    missing = [
        prim.name
        for prim in registry.values()
        if (prim.rules or prim.definition is not None) and prim.name not in named
    ]
    assert missing == []


def test_every_rule_asks_for_what_exists() -> None:
    """The rules of users' own are checked when they are registered, those of the library here."""
    for prim in registry.values():
        assert prim.check() is prim


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rules": {"y": lambda g: g}}, "has no parameter 'y'; it has x"),
        ({"rules": {"x": None, "y": None}}, "has no parameter 'y'"),
        ({"rules": {"x": lambda g, y: g * y}}, "asks for 'y'; there are x"),
        ({"rules": {"x": lambda g, y_shape: g}}, "asks for 'y_shape'"),
        ({"rules": {"x": lambda g, g_shape: g}}, "asks for 'g_shape'"),
        ({"rules": {"x": lambda g: g}, "jvps": {"x": lambda t, y: t * y}}, "asks for 'y'"),
        ({"rules": {"x": lambda g: g}, "into": {"x": lambda buffer, g, y: None}}, "asks for 'y'"),
    ],
)
def test_a_rule_that_asks_for_something_else_is_refused(options: dict[str, Any], told: str) -> None:
    row = Primitive(lambda x: x, GENERAL, **options, name="f", signature="x")
    with pytest.raises(RowError, match=told):
        row.check()


def test_a_rule_may_ask_for_the_output_and_for_shapes() -> None:
    Primitive(
        lambda x: x,
        GENERAL,
        {"x": lambda g, ans, ans_shape, x_dtype, x_ndim: g, "y": None},
        jvps={"x": lambda t, ans, x: t},
        into={"x": lambda buffer, g, x_shape: None},
        signature="x, /, y=None",
    ).check()
