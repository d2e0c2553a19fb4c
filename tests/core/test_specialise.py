"""The generated functions do what the plain ones do; only the order in which shares are added up may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.core import forms, specialise
from meintorch.func import grad, jvp, value_and_grad, vjp, vmap
from meintorch.tensor import GraphTensor
from tests.cases import Case
from tests.cases.table import CASES
from tests.differences import weighted


def results(f: Callable[..., Any], args: Any) -> list[Any]:
    nums = tuple(range(len(args)))
    value, first = value_and_grad(f, argnums=nums)(*args)
    second = grad(lambda *a: weighted(lambda *g: g)(*grad(f, argnums=nums)(*a)), argnums=nums)(*args)
    return [value, *first, *second]


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a.dtype == b.dtype and np.allclose(a, b, rtol=1e-13, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("case", [c for c in CASES if c.second], ids=lambda c: c.id)
def test_cases_agree(case: Case, request: pytest.FixtureRequest) -> None:
    results(weighted(case.call), case.args)  # the generated function of a form is made after its first call
    fast = results(weighted(case.call), case.args)
    request.getfixturevalue("plain_engine")
    plain = results(weighted(case.call), case.args)
    for a, b in zip(fast, plain, strict=True):
        assert same(a, b)


OPERANDS: list[Any] = [1.5, 2, np.float64(0.75), np.array([0.5, 1.5, 2.5]), np.array([[1.25], [0.5]]), np.float32(1.5)]


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (2.0 + b * b),
    lambda a, b: (1.5 + a * a) ** np.tanh(b),
    lambda a, b: np.tanh(a),
    lambda a, b: -a,
    np.logaddexp,
    lambda a, b: (2.5 - a / 3) * 0.75 + b,
    lambda a, b: (1.5 * a) * (b - 1) - a * 2,
    lambda a, b: (0.5 * a) / (3 + (2 * b) ** 2),
]


def random_program(seed: int) -> Callable[..., Any]:
    """Return a function of two values that applies random operators to what it has."""
    rng = np.random.default_rng(seed)
    plan = [
        (int(rng.integers(len(OPERATIONS))), int(rng.integers(100)), int(rng.integers(100)), rng.random())
        for _ in range(12)
    ]

    def f(x: Any, y: Any) -> Any:
        have = [x, y]
        for kind, i, j, share in plan:
            a = have[i % len(have)]
            b = have[j % len(have)] if share < 0.6 else OPERANDS[j % len(OPERANDS)]
            a, b = (a, b) if share < 0.8 else (b, a)
            new = OPERATIONS[kind](a, b)
            have.append(np.tanh(new))
        return np.sum(have[-1] * have[-2]) + np.sum(have[-3])

    return f


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_agree(seed: int, request: pytest.FixtureRequest) -> None:
    f = random_program(seed)
    rng = np.random.default_rng([seed, 1])
    shapes = [(), (3,), (2, 1), (2, 3)]
    points: list[Any] = [rng.normal(size=shapes[k]) for k in rng.integers(4, size=2)]
    if seed % 5 == 0:
        points[0] = np.float64(0.3)
    if seed % 7 == 0:
        points[1] = np.asarray(points[1], np.float32)
    fast = results(f, points)
    request.getfixturevalue("plain_engine")
    for a, b in zip(fast, results(f, points), strict=True):
        if seed % 7:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)  # sums come together in another order
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        assert type(a) is type(b)
        assert a.dtype == b.dtype


def test_specialisation_is_what_these_tests_are_about() -> None:
    grad(np.sin)(1.0)
    assert specialise.enabled
    assert "__mul__" in vars(GraphTensor)


def test_plain_engine_has_none(plain_engine: None) -> None:
    assert grad(np.sin)(0.0) == 1.0
    assert "__mul__" not in vars(GraphTensor)


def test_a_view_of_a_cotangent_is_not_taken_for_our_own(engine: str) -> None:
    """A real operand of a complex result gets np.real(g), a view of what the other operand gets."""
    x, y = np.array([1.0, 2.0]), np.array([1 + 1j, 2 + 3j])

    def f(x: Any, y: Any) -> Any:
        q = x * x
        z = x + y
        return np.sum(np.real(z * z)) + np.sum(q)

    gx, gy = grad(f, argnums=(0, 1))(x, y)
    np.testing.assert_allclose(gy, 2 * (x + y))
    np.testing.assert_allclose(gx, 2 * np.real(x + y) + 2 * x)


def test_a_square_overflows_no_sooner_than_the_product(engine: str) -> None:
    _, pullback = vjp(lambda x: x * x, np.array([0.01], np.float16))
    np.testing.assert_allclose(pullback(np.array([40_000], np.float16))[0], 800, rtol=1e-2)


N = 30_000


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (lambda x: np.sum(np.where(np.arange(N) % 3, x, 0.0)), lambda x: np.arange(N) % 3 > 0),
        (lambda x: np.sum(np.where(np.arange(N) % 3.0, 0.0, x)), lambda x: np.arange(N) % 3 == 0),
        (lambda x: np.sum(np.maximum(x, 0.0)), lambda x: (x > 0) + 0.5 * (x == 0)),
        (lambda x: np.max(x), lambda x: (x == x.max()) / np.sum(x == x.max())),
        (lambda x: np.sum(np.max(x.reshape(-1, 3), axis=1)), lambda x: share_of_rows(x.reshape(-1, 3))),
        (lambda x: np.sum(x.reshape(-1, 3) * np.ones((1, 3)) * x[:3]), lambda x: product_of_rows(x)),
        (lambda x: np.sum(np.where(x > 0, np.log(x), 0.0)), lambda x: np.where(x > 0, 1 / np.where(x > 0, x, 1), 0)),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_paths_for_large_arrays(f: Any, want: Any) -> None:
    x = np.round(np.random.default_rng(0).normal(size=N), 1)  # with ties and zeros
    np.testing.assert_allclose(grad(f)(x), want(x), rtol=1e-10, atol=1e-10)
    assert not np.signbit(grad(f)(x)[grad(f)(x) == 0]).any()


def share_of_rows(rows: Any) -> Any:
    hit = rows == rows.max(axis=1, keepdims=True)
    return (hit / hit.sum(axis=1, keepdims=True)).ravel()


def product_of_rows(x: Any) -> Any:
    g = np.tile(x[:3], N // 3)
    g[:3] += x.reshape(-1, 3).sum(axis=0)
    return g


@pytest.mark.parametrize("f", [np.sum, np.cumsum, lambda x: x[0] + x[1], lambda x: np.subtract(x, -x[::-1])])
@pytest.mark.parametrize("state", ["warn", "raise"])
def test_infinite_tangents_cause_no_warning(engine: str, f: Any, state: Any) -> None:
    x, tangent = np.array([1.0, 2.0]), np.array([np.inf, -np.inf])
    for _ in range(2 * forms.WARM):
        with np.errstate(all=state):
            value, pushed = jvp(f, (x,), (tangent,))
        np.testing.assert_array_equal(value, f(x))
        assert np.any(np.isnan(pushed))


def test_functions_of_the_users_are_not_kept_alive() -> None:
    double = np.frompyfunc(lambda x, y: x + y, 2, 1)
    for use in (lambda x: double(x, x), lambda x: double(x, x, dtype=object), double.reduce):
        for transform in (grad(use), lambda x, f=use: jvp(f, (x,), (x,))):
            with pytest.raises(errors.NoRuleError):
                transform(np.ones(2))
    assert not [form for form in forms.forms if form[0] in (double, double.reduce)]


def test_a_function_is_generated_only_for_what_is_called_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "WARM", 3)
    installed: list[str] = []
    first = forms.warming(lambda x: 2 * x, lambda: "generated", installed.append)
    assert [first(k) for k in range(2)] == [0, 2]
    assert installed == []
    assert first(5) == 10
    assert installed == ["generated"]


def test_the_gradient_of_each_example_keeps_single_precision() -> None:
    x = np.linspace(0.5, 1.0, 6, dtype=np.float32)
    slope = vmap(grad(lambda x: np.sum(np.float_power(x, 1.5))))  # which makes double precision of it
    for _ in range(3):
        slopes = slope(x.reshape(2, 3))
        assert slopes.dtype == np.float32
        assert np.allclose(slopes.reshape(-1), 1.5 * np.sqrt(x), rtol=1e-6)
