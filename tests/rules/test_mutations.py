"""Test the tests: a rule that is off by a tenth of a per cent must be noticed by the case table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.core.primitive import Primitive, Recipe, registry
from meintorch.func import grad
from tests.cases import Case
from tests.cases.table import CASES
from tests.differences import gradient, weighted

by_row: dict[str, list[Case]] = defaultdict(list)
for case in CASES:
    by_row[registry[case.row].name].append(case)

RULES = [
    (prim, parameter)
    for prim in registry.values()
    for parameter, rule in prim.rules.items()
    if rule is not None and prim.name in by_row
]


def scaled(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [None if r is None else scaled(r) for r in result]
    return result * 1.001 if np.any(result != 0) else result + 1e-3


def mutate(step: Any) -> Any:
    """Return a step of a recipe whose contributions are too large by a factor of 1.001."""
    changed: dict[str, Callable[..., Any] | None] = {"rule": lambda *args: scaled(step.rule(*args))}
    if step.into is not None:
        changed["into"] = None
    return step._replace(**changed)


@pytest.mark.parametrize(("prim", "parameter"), RULES, ids=[f"{p.name} {k} {i}" for i, (p, k) in enumerate(RULES)])
def test_a_rule_scaled_by_a_thousandth_is_noticed(
    prim: Primitive, parameter: str, monkeypatch: pytest.MonkeyPatch, plain_engine: None
) -> None:
    original = Recipe.__init__

    def broken(self: Recipe, of: Primitive, traced: tuple[str, ...], rules: Any) -> None:
        original(self, of, traced, rules)
        if of.name == prim.name and parameter in traced:
            k = traced.index(parameter)
            self.steps[k] = mutate(self.steps[k])

    monkeypatch.setattr(Recipe, "__init__", broken)
    for spelled in registry.values():
        if spelled.name == prim.name:
            monkeypatch.setattr(spelled, "_recipes", {})
    for case in by_row[prim.name]:
        loss = weighted(case.call)
        nums = tuple(range(len(case.args)))
        got = grad(loss, argnums=nums)(*case.args)
        for g, w in zip(got, gradient(loss, case.args), strict=True):
            scale = max(1.0, float(np.max(np.abs(w), initial=0.0)))
            if not np.allclose(g, w, rtol=case.tolerance, atol=case.tolerance * scale):
                return
    pytest.fail(f"no case of {prim.name} notices that its rule for {parameter!r} is wrong")
