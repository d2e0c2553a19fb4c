"""A result without axes: NumPy makes a scalar of it or an array, and only the array changes under all its names.

Whether ``q = y; q *= 2`` changes ``y`` is NumPy's to say, also where ``y`` stands for a batch of examples.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.core.memory import multiplied
from meintorch.core.primitive import STRUCTURAL, registry
from meintorch.core.trace import is_scalar
from meintorch.errors import MeintorchError
from meintorch.func import checkpoint, grad, jvp, vjp, vmap
from tests.cases import Case
from tests.cases.table import UNSQUARED
from tests.differences import outputs, weighted
from tests.rules.test_batching import NO_SHAPE, agrees, batch_of

SIZE = 3


def without_axes(ans: Any) -> list[Any]:
    """Return the arrays and scalars of a result that have no axes."""
    return [x for x in outputs(ans) if hasattr(x, "dtype") and x.shape == ()]


def changed(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that changes results without axes under another name."""

    def run(*args: Any) -> Any:
        ans = call(*args)
        for x in without_axes(ans):
            q = x
            try:
                if x.dtype.kind == "b":
                    q ^= True
                elif x.dtype.kind == "i":
                    q += 1
                else:
                    q *= 2
            except ValueError as error:
                assert "read-only" in str(error)  # noqa: PT017 - what may not be written to is an array
        return ans

    return run


def has_a_result_without_axes(case: Case) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.id not in NO_SHAPE and bool(without_axes(case.call(*[a.copy() for a in case.args])))


CASES = [case for case in UNSQUARED if has_a_result_without_axes(case)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_changes_under_another_name_in_a_batch(case: Case) -> None:
    f, args = changed(case.call), [batch_of(a) for a in case.args]

    def examples() -> Any:
        return zip(*[a.copy() for a in args], strict=True)

    def push(*xs: Any) -> Any:
        value, tangent = jvp(f, xs, tuple([x * 1.0 for x in xs]))
        return [*outputs(value), *outputs(tangent)]

    slope = grad(weighted(f), argnums=tuple(range(len(args))))
    for run in (f, push, slope, checkpoint(f)):
        agrees(outputs(vmap(run)(*args)), [outputs(run(*one)) for one in examples()])
    for run in (f, slope):
        nested = vmap(vmap(run))(*[np.stack([a, a[::-1]]) for a in args])
        agrees([x[0] for x in outputs(nested)], [outputs(run(*one)) for one in examples()])
        agrees([x[1, ::-1] for x in outputs(nested)], [outputs(run(*one)) for one in examples()])
    total = weighted(lambda *xs: [np.sum(x, axis=0) for x in outputs(vmap(f)(*xs))])
    parts = [slope(*one) for one in examples()]
    for k, g in enumerate(grad(total, argnums=tuple(range(len(args))))(*args)):
        np.testing.assert_allclose(g, np.stack([part[k] for part in parts]), rtol=1e-9, atol=1e-9)


number, whole, truth = np.float64(0.5), np.int64(3), np.bool_(True)
vector, matrix = np.array([0.3, 0.7, 0.2]), np.array([[2.0, 0.3], [0.2, 1.0]])
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **{str(x.dtype): ((x,), {}) for x in (number, whole, truth)},
    **{f"two of {x.dtype}": ((x, x), {}) for x in (number, whole, truth)},
    "three": ((number, number, number), {}),
    "keepdims": ((number,), {"keepdims": True}),
    "vector": ((vector,), {}),
    "two vectors": ((vector, vector), {}),
    "vector and place": ((vector, 1), {}),
    "matrix": ((matrix,), {}),
    "two matrices": ((matrix, matrix), {}),
}
WITH_OUT = {np.fix, np.isposinf, np.isneginf}  # as the second argument
REFUSALS = (MeintorchError, TypeError, ValueError, IndexError)


@pytest.mark.parametrize("arrays", [False, True], ids=["scalars", "arrays"])
@pytest.mark.parametrize("label", CALLS)
def test_what_every_function_makes_of_values_without_axes(label: str, arrays: bool) -> None:
    """Scalars and arrays without axes lead to scalars or to arrays: for traced values and batches as in NumPy."""
    args, kwargs = CALLS[label]
    xs = tuple([x for x in args if not isinstance(x, int)])
    batch = [np.stack([x] * SIZE) for x in xs]

    def kinds(fun: Any, *xs: Any) -> Any:
        given = [np.copy(x) if arrays else x for x in xs]
        ans = fun(*given, *args[len(xs) :], **kwargs)
        said.append([is_scalar(x) for x in outputs(ans) if np.shape(x) == ()])
        return given[0] * 1.0

    found = 0
    for prim in registry.values():
        fun: Any = prim.fun
        if prim.kind == STRUCTURAL or fun is multiplied or getattr(fun, "nin", 9) < len(args) or fun in WITH_OUT:
            continue
        said: list[list[bool]] = []
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                kinds(fun, *xs)
            except Exception:  # noqa: BLE001 - it is no function of such arguments
                continue
            found += bool(said[0])
            f = functools.partial(kinds, fun)
            for run in (lambda f=f: vmap(f)(*batch), lambda f=f: jvp(f, xs, xs), lambda f=f: vjp(f, *xs)):
                with contextlib.suppress(*REFUSALS):
                    run()
        assert all([kind == said[0] for kind in said]), prim.name
    assert found > 5
