"""The generated functions do what the plain ones do; only the order in which shares are added up may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.core import specialise
from meintorch.core.primitive import registry
from meintorch.func import grad, value_and_grad
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


@pytest.mark.parametrize(
    "case", [c for c in CASES if registry[c.row].kind == "elementwise" and c.second], ids=lambda c: c.id
)
def test_cases_agree(case: Case, request: pytest.FixtureRequest) -> None:
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
]


def random_program(seed: int) -> Callable[..., Any]:
    """Return a function of two values that applies random operators to what it has."""
    rng = np.random.default_rng(seed)
    plan = [(int(rng.integers(8)), int(rng.integers(100)), int(rng.integers(100)), rng.random()) for _ in range(12)]

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


@pytest.mark.parametrize("seed", range(60))
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
