"""Test the tests: the case table must notice a rule that is off by a tenth of a per cent, or in which one sign is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

import tests.rules.test_points as points
from meintorch.core.primitive import Primitive, Recipe, registry
from meintorch.func import grad, jvp
from tests.cases import Case
from tests.cases.table import CASES
from tests.differences import gradient, weighted, weights
from tests.mutants import Mutant, has_sign, mutants_of, reached

by_row: dict[str, list[Case]] = defaultdict(list)
for case in CASES:
    by_row[registry[case.row].name].append(case)

# What a row is tested with beside its cases, by the name that its label mentions: kinks, and values that mpmath computes.
exactly: list[tuple[str, Callable[[], None]]] = [
    (label, partial(points.test_kinks, *kink)) for label, *kink in points.KINKS
]
if find_spec("scipy") and find_spec("mpmath"):
    import tests.rules.test_special as special

    exactly += [(row[0], partial(special.test_derivative_agrees_with_mpmath, *row)) for row in special.POINTS]


@cache
def differences(case: Case) -> list[Any]:
    return gradient(weighted(case.call), case.args)


def notices(case: Case) -> bool:
    """Tell whether a case finds a derivative wrong, in reverse or in forward mode."""
    loss, want = weighted(case.call), differences(case)
    tangents = tuple([weights(a.shape, 40 + k).astype(a.dtype) for k, a in enumerate(case.args)])
    try:
        got = grad(loss, argnums=tuple(range(len(case.args))))(*case.args)
        slope = jvp(loss, case.args, tangents)[1]
    except Exception:  # noqa: BLE001 - an error is noticed, whatever it is
        return True
    for g, w in zip(got, want, strict=True):
        scale = max(1.0, float(np.max(np.abs(w), initial=0.0)))
        if g.shape != w.shape or not np.allclose(g, w, rtol=case.tolerance, atol=case.tolerance * scale):
            return True
    parts = [np.real(w * t) for w, t in zip(want, tangents, strict=True)]
    scale = max(1.0, sum([float(np.sum(np.abs(part))) for part in parts]))
    return not abs(slope - sum([np.sum(part) for part in parts])) <= case.tolerance * scale


@cache
def sound(case: Case) -> bool:
    return not notices(case)


def mentions(names: list[str]) -> list[Callable[[], None]]:
    """Return the exact tests whose labels mention a row."""
    return [check for label, check in exactly if any([name.rpartition(".")[2] in label for name in names])]


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:  # noqa: BLE001 - as above
        return True
    return False


# ---------------------------------------------------------------- a thousandth too large

RULES = [
    (prim, kind, parameter)
    for prim in registry.values()
    for kind in ("rules", "jvps", "into")
    for parameter, rule in getattr(prim, kind).items()
    if rule is not None and prim.name in by_row
]


def scaled(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [None if r is None else scaled(r) for r in result]
    return result * 1.001 if np.any(result != 0) else result + 1e-3


def mutate(step: Any, kind: str) -> Any:
    """Return a step of a recipe whose contributions are too large by a factor of 1.001."""
    if kind == "into":
        return step._replace(into=lambda buffer, g, *args: step.into(buffer, scaled(g), *args))
    changed: dict[str, Callable[..., Any] | None] = {"rule": lambda *args: scaled(step.rule(*args))}
    if step.into is not None:
        changed["into"] = None
    return step._replace(**changed)


@pytest.mark.parametrize(
    ("prim", "kind", "parameter"), RULES, ids=[f"{p.name} {x} {k} {i}" for i, (p, k, x) in enumerate(RULES)]
)
def test_a_rule_scaled_by_a_thousandth_is_noticed(
    prim: Primitive, kind: str, parameter: str, monkeypatch: pytest.MonkeyPatch, plain_engine: None
) -> None:
    original = Recipe.__init__

    def broken(self: Recipe, of: Primitive, traced: tuple[str, ...], rules: Any) -> None:
        original(self, of, traced, rules)
        if of.name == prim.name and parameter in traced and (rules is of.jvps) == (kind == "jvps"):
            k = traced.index(parameter)
            self.steps[k] = mutate(self.steps[k], kind)

    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "__init__", broken)
        for spelled in registry.values():
            if spelled.name == prim.name:
                patch.setattr(spelled, "_recipes", {})
        found = next(filter(notices, by_row[prim.name]), None)
    assert found is not None, "no case notices it"
    assert sound(found)


# ---------------------------------------------------------------- a sign flipped

users: dict[CodeType, list[FunctionType]] = defaultdict(list)  # the functions that a piece of code belongs to
rows: dict[CodeType, set[str]] = defaultdict(set)  # the rows that use it
for row in registry.values():
    for given in (*row.rules.values(), *row.jvps.values(), *row.into.values()):
        for function in reached(given) if row.name in by_row else ():
            rows[function.__code__].add(row.name)
            if function not in users[function.__code__]:
                users[function.__code__].append(function)

MUTANTS = [mutant for path in sorted({code.co_filename for code in users}) for mutant in mutants_of(path, users)]

# Mutants that are no faults, each with the reason.
EQUIVALENT = {
    "matrices._cofactors_third: k[:, None] + k": "the power of -1 is that of the difference",
    "products._subscripts: len(shape_of(x)) - (bool(flags) and extra[k])": "rules give no flags; tests of vmap notice it",
    "special._rgamma_partial: x - n": "what follows has period 2; the difference is small, which saves digits",
    "special.<lambda>: (sp().jve(x1 - 1, x2) - sp().jve(x1 + 1, x2)) / 2 - _sign(x2, 'jve', 'jv', 'imag')": (
        "what is subtracted is 0, or an error for complex numbers"
    ),
}


def test_every_rule_with_a_sign_has_a_mutant() -> None:
    mutated = {mutant.original for mutant in MUTANTS}
    assert [code.co_qualname for code in users if has_sign(code) and code not in mutated] == []
    assert EQUIVALENT.keys() <= {mutant.id for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_flipped_sign_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, plain_engine: None) -> None:
    names = sorted(rows[mutant.original])
    with monkeypatch.context() as patch:
        for function in users[mutant.original]:
            patch.setattr(function, "__code__", mutant.code)
        found = next((case for name in names for case in by_row[name] if notices(case)), None)
        failed = found is None and any([fails(check) for check in mentions(names)])
    if found is None and not failed:
        assert mutant.id in EQUIVALENT, f"no case of {', '.join(names)} notices it"
    else:
        assert mutant.id not in EQUIVALENT
        assert found is None or sound(found)
