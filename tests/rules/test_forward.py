"""Forward mode, for every case: against central differences, as the transpose of reverse mode, and over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from meintorch.func import grad, hvp, jvp, linearize, vjp
from tests.cases import Case
from tests.cases.table import UNSQUARED
from tests.differences import outputs, weighted, weights

every_case = pytest.mark.parametrize("case", UNSQUARED, ids=lambda case: case.id)


def copies(case: Case) -> tuple[Any, ...]:
    return tuple([a.copy() for a in case.args])


def direction(args: Sequence[Any], seed: int = 40) -> tuple[Any, ...]:
    """Draw one tangent for each argument, complex for a complex one."""
    tangents = []
    for k, a in enumerate(args):
        t = weights(a.shape, seed + 10 * k).astype(a.dtype)
        if np.iscomplexobj(a):
            t = t + 1j * weights(a.shape, seed + 10 * k + 5)
        tangents.append(np.asarray(t, a.dtype))
    return tuple(tangents)


def slopes(case: Case, tangents: Sequence[Any], step: float) -> list[Any]:
    """Return the central differences of the outputs along a direction, of several outputs those that are inexact."""
    ends = []
    for signed in (step, -step):
        moved = [a + signed * t for a, t in zip(copies(case), tangents, strict=True)]
        moved = [np.asarray(m, a.dtype) for m, a in zip(moved, case.args, strict=True)]
        ends.append([np.asarray(x) for x in outputs(case.call(*moved))])
    return [(plus - minus) / (2 * step) if plus.dtype.kind in "fc" else None for plus, minus in zip(*ends, strict=True)]


@every_case
def test_tangent_agrees_with_differences(case: Case) -> None:
    tangents = direction(case.args)
    args, directions = copies(case), tuple([t.copy() for t in tangents])
    plain = outputs(case.call(*copies(case)))
    value, tangent = jvp(case.call, args, directions)
    got, values = outputs(tangent), outputs(value)
    for given, before in zip((*args, *directions), (*case.args, *tangents), strict=True):
        assert np.array_equal(given, before)  # no input is written to
    assert len(got) == len(values) == len(plain)
    pairs = zip(slopes(case, tangents, 1e-6), slopes(case, tangents, 2e-6), strict=True)
    wanted = [None if fine is None else (4 * fine - coarse) / 3 for fine, coarse in pairs]
    for out, same, t, want in zip(plain, values, got, wanted, strict=True):
        assert np.array_equal(out, same, equal_nan=np.asarray(out).dtype.kind in "fc")
        assert type(out) is type(same)
        assert type(t) is np.ndarray
        assert t.shape == np.shape(out)
        assert t.dtype == np.asarray(out).dtype
        assert t.flags.writeable
        assert not any(np.shares_memory(t, x) for x in (*args, *directions))
        if want is None:  # an integer output
            assert not np.any(t)
            continue
        scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
        np.testing.assert_allclose(t, want, rtol=case.tolerance, atol=case.tolerance * scale)


@every_case
def test_reverse_mode_is_the_transpose(case: Case) -> None:
    """<ct, J t> and <J^T ct, t> are equal, with plain transposes: Re(ct * out) weighs real and imaginary parts."""
    tangents = direction(case.args, seed=50)
    tangent = jvp(case.call, copies(case), tangents)[1]
    out, pullback = vjp(case.call, *copies(case))
    cts = []
    for i, x in enumerate(outputs(out)):
        ct = weights(np.shape(x), 10 * i)
        cts.append(ct - 1j * weights(np.shape(x), 10 * i + 5) if np.iscomplexobj(x) else ct)
        if np.asarray(x).dtype.kind not in "fc":
            cts[-1] = np.zeros_like(x)
    back = pullback(type(out)(cts) if isinstance(out, (tuple, list)) else cts[0])
    left = float(weighted(lambda: tangent)())
    terms = [np.real(g * t) for g, t in zip(back, tangents, strict=True)]
    right = float(sum([np.sum(term) for term in terms]))
    scale = max(1.0, sum([float(np.sum(np.abs(term))) for term in terms]))
    assert abs(left - right) <= 1e-10 * scale, (left, right)


@every_case
def test_linearize_agrees_with_jvp(case: Case) -> None:
    tangents = direction(case.args, seed=50)
    tangent = jvp(case.call, copies(case), tangents)[1]
    again = linearize(case.call, *copies(case))[1](*tangents)
    for a, b in zip(outputs(again), outputs(tangent), strict=True):
        assert type(a) is np.ndarray
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, float(np.max(np.abs(b), initial=0.0))))


@every_case
def test_forward_over_reverse_is_reverse_over_reverse(case: Case) -> None:
    if not case.second:
        pytest.skip("the case says that there is no second derivative at its point")
    tangents = direction(case.args, seed=60)
    loss = weighted(case.call)

    def of_one(args: Any) -> Any:
        return loss(*args)

    def along(args: Any) -> Any:
        return sum([np.sum(np.real(g * t)) for g, t in zip(grad(of_one)(args), tangents, strict=True)])

    got, want = hvp(of_one, copies(case), tangents), grad(along)(copies(case))
    for g, w, a in zip(got, want, case.args, strict=True):
        assert type(g) is np.ndarray
        assert g.shape == a.shape
        assert g.dtype == a.dtype
        scale = max(1.0, float(np.max(np.abs(w), initial=0.0)))
        np.testing.assert_allclose(g, w, rtol=1e-8, atol=1e-8 * scale)


@every_case
def test_single_precision_stays_single(case: Case) -> None:
    """The tangent has the output's dtype, which for float32 is what NumPy makes of it."""
    small = {"f": np.float32, "c": np.complex64}
    args = tuple([a.astype(small[a.dtype.kind]) for a in case.args])
    tangents = tuple([np.ones_like(a) for a in args])
    plain = outputs(case.call(*[a.copy() for a in args]))
    value, tangent = jvp(case.call, args, tangents)
    for x, v, t in zip(plain, outputs(value), outputs(tangent), strict=True):
        assert np.asarray(v).dtype == t.dtype == np.asarray(x).dtype
