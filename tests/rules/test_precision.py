"""Single precision stays single inside the rules too: none makes, keeps or passes on a float64 array on float32 input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.core.dead import Gathered, Unowned, kept_by
from meintorch.core.graph import accumulate
from meintorch.core.primitive import ELEMENTWISE, Primitive, registry
from meintorch.core.storage import ValueTrace
from meintorch.core.trace import is_many, rebuild
from meintorch.func import grad, jvp, vjp
from meintorch.func.reverse import Pullback
from meintorch.tensor import DeadTensor
from tests.cases import Case
from tests.cases.table import UNSQUARED
from tests.differences import outputs

SMALL = {"f": np.float32, "c": np.complex64}

# Where NumPy itself computes in double precision on the way to a result in single precision.
EXEMPT = {
    "gradient plain even coordinates": "the coordinates are float64",
    "gradient complex, list of coordinates": "the same",
    "histogram": "the data beside the weights are float64",
    "histogram range, complex": "the same",
    "histogram matrix": "the same",
    "roots": "np.polyder and np.vander give float64",
    "roots complex roots": "the same",
    "roots complex": "the same",
}


def is_wide(x: Any) -> bool:
    """Tell whether something is an array of double precision; lists are looked into."""
    if isinstance(x, (list, tuple)):
        return any([is_wide(e) for e in x])
    return isinstance(x, np.ndarray) and x.size > 1 and x.dtype in (np.float64, np.complex128)


def is_double(x: Any) -> bool:
    return np.asarray(x).dtype in (np.float64, np.complex128)


class Watch(ValueTrace):
    """A trace around a whole derivative, which sees what each function returns, inside the rules as well."""

    tensor = DeadTensor

    def __init__(self) -> None:
        super().__init__()
        self.watching = False
        self.wide: list[str] = []

    def wrap(self, x: Any) -> Any:
        """Watch a value; what has no derivative is left as it is."""
        if np.asarray(x).dtype.kind not in "fc":
            return x
        t = self.tensor()
        t.value, t._trace, t.note = x, self, None
        return t

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ans = prim.fun(*self.lower(args), **{k: self.lower(v) for k, v in kwargs.items()})
        if self.watching and is_wide(ans):
            self.wide.append(prim.name)
        return rebuild(ans, [self.wrap(x) for x in ans]) if is_many(ans) else self.wrap(ans)


def cotangents(out: Any) -> Any:
    """Return ones for all outputs, each in its own precision."""
    ones = [np.ones_like(x) if np.asarray(x).dtype.kind in "fc" else np.zeros_like(x) for x in outputs(out)]
    return rebuild(out, ones) if is_many(out) else ones[0]


def made_by_the_rules(call: Callable[..., Any], args: list[Any]) -> list[str]:
    """Name the functions that return double precision in the backward pass of a call."""
    watch = Watch()
    out, pullback = vjp(call, *[watch.wrap(a) for a in args])
    seeds = cotangents(watch.lower(out))
    watch.watching = True
    pullback(rebuild(seeds, [watch.wrap(x) for x in seeds]) if is_many(seeds) else watch.wrap(seeds))
    return watch.wide


def made_by_the_forward_rules(call: Callable[..., Any], args: list[Any]) -> list[str]:
    """Name the functions that return double precision in forward mode, less those that do so in the call itself."""
    plain, watch = Watch(), Watch()
    plain.watching = watch.watching = True
    call(*[plain.wrap(a) for a in args])
    jvp(call, tuple([watch.wrap(a) for a in args]), tuple([watch.wrap(np.ones_like(a)) for a in args]))
    return sorted((Counter(watch.wide) - Counter(plain.wide)).elements())


def kept_and_passed_on(pullback: Pullback, seeds: list[Any]) -> list[str]:
    """Walk through a graph, and say which nodes keep double precision or pass it on."""
    cts, nodes, owned = Gathered(), Gathered(), Unowned()
    wide = []
    for root, seed in zip(pullback._roots, seeds, strict=True):
        if root is not None:
            accumulate(cts, nodes, owned, root, seed, False)
    while cts:
        serial = max(cts)
        node, g = nodes[serial], cts.pop(serial)
        if node[1] is None:
            continue
        if is_wide(kept_by(node)):
            wide.append(f"{node[1].__qualname__} keeps it")
        cts.touched.clear()
        node[1](node, g, cts, nodes, owned)
        if is_wide([cts[j] for j in cts.touched]):
            wide.append(f"{node[1].__qualname__} passes it on")
    return wide


def small(case: Case) -> list[Any]:
    return [a.astype(SMALL[a.dtype.kind]) for a in case.args]


# The others mix in float64 of their own, or call what returns nothing else.
SINGLE = [case for case in UNSQUARED if not any([is_double(x) for x in outputs(case.call(*small(case)))])]


@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case.id)
def test_no_double_precision_inside_a_derivative(case: Case, engine: str) -> None:
    out = case.call(*small(case))
    wide = made_by_the_rules(case.call, small(case)) + made_by_the_forward_rules(case.call, small(case))
    _, pullback = vjp(case.call, *small(case))
    wide += kept_and_passed_on(pullback, outputs(cotangents(out)))
    assert bool(wide) == (case.id in EXEMPT), wide


SEVERAL = [row for row in registry.values() if row.kind is ELEMENTWISE and getattr(row.fun, "nin", 0) > 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # where an integer is wanted
@pytest.mark.parametrize("number", [0.5, 1.5, 1, 2])
@pytest.mark.parametrize("row", SEVERAL, ids=lambda row: row.name)
def test_python_numbers_do_not_widen(row: Primitive, number: float) -> None:
    """Beside a float32 array a Python number is one of float32, for the ufunc and for its rules."""
    x = np.array([0.3, 0.6, 0.7], np.float32)
    numbers = [number] * row.fun.nin
    for k, rule in enumerate(row.rules.values()):

        def call(t: Any, k: int = k) -> Any:
            return row.fun(*numbers[:k], t, *numbers[k + 1 :])

        if rule is None:
            continue
        try:
            out = call(x)
        except TypeError:  # such as a degree that has to be an integer
            continue
        if out.dtype == np.float32:
            assert made_by_the_rules(call, [x]) == []
            assert grad(lambda t, call=call: np.sum(call(t)))(x).dtype == np.float32
