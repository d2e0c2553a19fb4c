"""Generated forward and backward functions for elementwise operations in reverse mode.

These do what `ReverseTrace.process` and `graph.pull` do, for the commonest case: one or two operands, no options, one
trace. They exist for speed alone. The code is written out for each row and for each case (which operands are traced; a
scalar result, equal shapes, or broadcasting), so that no loop over arguments, no test and no call is left that the case
does not need. `meintorch.core.specialise.enabled` turned off before the first transform leaves only the plain functions,
which define what these must do; the tests run both ways.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from meintorch.core import large
from meintorch.core.captured import SMALL
from meintorch.core.forms import ARRAY, all_small, forms, is_identity, pooled
from meintorch.core.graph import ReverseTrace, add_to, can_add_into, pull, pull_view, pull_write
from meintorch.core.large import binary, by_blocks, distinct, product, ufuncs, unary, zeros
from meintorch.core.primitive import ELEMENTWISE, Primitive, needs_of
from meintorch.core.shapes import contract, fit
from meintorch.core.storage import Place, place_of, replayed
from meintorch.core.trace import bind, caller

ndarray = np.ndarray
enabled = os.environ.get("MEINTORCH_SPECIALISE", "1") != "0"

# ``h``, the contribution to one parent's cotangent, is added to what has come together there so far.
SCALAR = ARRAY.replace("        owned[j] = {fresh}\n", "").replace("add_to(cts, owned, j, c, h)", "cts[j] = c + h")

UNARY = """
def forward(x):
    trace = x._trace
    v = x.value{number}
    ans = {run}
    n = trace.serial
    trace.serial = n + 1
    frame = getframe({depth})
    t = T()
    t.value = ans
    t._trace = trace
    t.note = (n, back, x.note, {keep}frame.f_code, frame.f_lasti)
    return t
"""
# One note for a scalar result, one for operands of the result's shape and dtype, one for all else.
CASES = """
        n = trace.serial
        trace.serial = n + 1
        frame = getframe({depth})
        t = T()
        t.value = ans
        t._trace = trace
        if ans.__class__ is float64:
            t.note = (n, {side}_scalar, {parents}{keep}frame.f_code, frame.f_lasti)
        elif {same}:
            t.note = (n, {side}_same, {parents}{keep}frame.f_code, frame.f_lasti)
        else:
            t.note = (n, {side}_broadcast, {parents}{keep}{fits}frame.f_code, frame.f_lasti)
        return t
"""
# A traced scalar and a number make a scalar that notes no node, but what the derivative by the scalar's own is.
NUMBER = """
    if {test}:
        {convert}
        ans = {call}
        if ans.__class__ is float64{condition}:
            u = {factor}{derivative}
            if LEAST < u < MOST or -MOST < u < -LEAST:
                trace = {own}._trace
                trace.serial + 0  # which raises if the trace has ended
                t = S()
                t.value = ans
                t._trace = trace
                t.base = {base}
                t.factor = u
                return t
"""
# Two traced scalars, of which at least one has no node.
PAIR = """
    if kind is {kind}:
        trace = a._trace
        {read}
        if b._trace is trace and {other}.__class__ is float64:
            ans = {call}
            n = trace.serial
            trace.serial = n + 1
            frame = getframe(1)
            t = T()
            t.value = ans
            t._trace = trace
            t.note = (n, {back}, {parents}, {keep}frame.f_code, frame.f_lasti)
            return t
"""
# An array and a number that was added to it have one node: what comes back to the one goes on to the other as it is.
SHARED = """
        if {x}.__class__ is not float64 and {same}:
            trace.serial + 0  # which raises if the trace has ended
            t = T()
            t.value = ans
            t._trace = trace
            t.note = {parents}
            return t
"""
KEEP = """
        if kind is ndarray:
            if {x}.size <= SMALL:
                {x} = {x}.copy()
            else:
                {x} = trace.captured.keep({x}, *caller())
"""
# The operand on the left is traced; that on the right may be.
LEFT = """
def forward(a, b):
    trace = a._trace
    x1 = a.value
    kind = b.__class__
    if kind is T:
        if b._trace is not trace:
            return bind(prim, (a, b), {{}})
        x2 = b.value
        ans = {run_first}
{both}{number}
    if kind is float or kind is int:
        x2 = b
        ans = {run_first}
{weak}
    if kind is ndarray or kind is float64:
        x2 = b
        ans = {run}
{keep_right}{left}
    return {fallback}
"""
RIGHT = """
def forward({swapped}):
    trace = b._trace
    x2 = b.value
    kind = a.__class__{number}
    if kind is float or kind is int:
        x1 = a
        ans = {run_weak}
{weak}
    if kind is ndarray or kind is float64:
        x1 = a
        ans = {run}
{keep_left}{right}
    return {fallback}
"""


LEAST, MOST = 1e-100, 1e100  # of derivatives that are multiplied with each other beforehand
# Operators of numbers whose derivatives are so simple that they are computed on the way forward, and when that is right.
SIMPLE = {
    operator.add: "",
    operator.sub: "",
    operator.mul: "",
    operator.truediv: " and x2",
    operator.pow: " and x2 == 2",
    operator.neg: "",
}


class Partial:
    """How a partial derivative enters generated code: which residuals it needs, and the contribution it makes."""

    def __init__(self, rule: Callable[..., Any], symbol: str, parameters: tuple[str, ...]) -> None:
        self.needs = needs_of(rule)
        self.fresh = True
        self.factor = ""  # the residual that the cotangent is multiplied with, if the derivative is just that
        given = self.needs[:1] == ("g",)  # the rule makes the product itself
        if given:
            self.product, self.fresh = f"{symbol}({', '.join(self.needs)})", False
            self.needs = self.needs[1:]
        self.value = f"{symbol}({', '.join(self.needs)})"  # the derivative by itself
        self.large = ""  # the same of large arrays
        if set(self.needs) <= {"ans", *parameters}:
            listed = "".join([n + ", " for n in self.needs])
            self.large = f"by_blocks({symbol}, ({listed}), g, {{owned}}, {given})"
        if given:
            return
        constant = rule() if not self.needs else None
        if constant is not None and np.ndim(constant) == 0 and constant == 1:
            self.product, self.value, self.fresh, self.large = "g", "1.0", False, ""
        elif constant is not None and np.ndim(constant) == 0 and constant == -1:
            self.product, self.value, self.large = "-g", "-1.0", "unary(negative, g)"
        elif is_identity(rule):
            self.factor = self.value = self.needs[0]  # such as x2 in the product rule: no call is needed
            self.product, self.large = f"{self.factor} * g", f"binary(multiply, {self.factor}, g)"
        else:
            self.product = f"{self.value} * g"

    def of_arrays(self, owned: str) -> str:
        """Write the contribution where the cotangent may be a large array, which may be ``owned``."""
        if not self.large:
            return self.product
        return f"{self.product} if small else {self.large.format(owned=owned)}"


def is_product(partials: dict[str, Partial]) -> bool:
    """Tell whether the partial derivative by each of two operands is the other one."""
    return [p.factor for p in partials.values()] == ["x2", "x1"]


def scaled(x: Any, g: Any) -> Any:
    """Return ``x * g`` in the memory of ``g``, an array of the walk's own, if it fits there."""
    if g.__class__ is ndarray and (x.__class__ is float or (x.__class__ is ndarray and x.dtype is g.dtype)):
        return np.multiply(x, g, g)
    return x * g


def doubled(x: Any, g: Any) -> Any:
    """Return ``2 * x * g``."""
    if g.__class__ is not ndarray or g.size < large.LARGE:
        return (x + x) * g
    if 0 in g.strides:  # what is doubled before is smaller
        g = distinct(g)
        return binary(np.multiply, x, g + g)
    h = product(x, g)
    h += h
    return h


def negated(g: Any) -> Any:
    """Return ``-g`` in the memory of ``g``, if it is an array."""
    return np.negative(g, g) if g.__class__ is ndarray else -g


# `fit` may return the cotangent itself, or a view of it.
OURS = "h is not g and h.__class__ is ndarray and h.base is None"


def backward(
    prim: Primitive,
    partials: dict[str, Partial],
    side: str,
    case: str,
    keep: list[str],
    without_node: Sequence[str] = (),
) -> str:
    """Write the backward function of one case. ``side``: which operands are traced; the factors of some follow the parents."""
    traced = {"both": ["x1", "x2"], "left": ["x1"], "right": ["x2"], "only": ["x"]}[side]
    parents = ["p", "q"][: len(traced)]
    fits = [f"{x}_{what}" for x in traced for what in ("shape", "dtype")] if case == "broadcast" else []
    factors = [f"{x}_factor" for x in without_node]
    scalar = case == "scalar" or bool(factors)
    lines = [f"def {side}_{case}(node, g, cts, nodes, owned):"]
    lines.append(f"    {', '.join(['_, _', *parents, *factors, *keep, *fits, '_, _'])} = node")
    if side == "both" and case == "same" and is_product(partials):  # x * x: two passes for 2 x g instead of three
        lines.append("    if p is q and x1 is x2:")
        lines.append(
            ARRAY.format(h="h = doubled(x1, g)", p="p", fresh="1").replace("\n    ", "\n        ") + "        return"
        )
    if not scalar and any([partials[x].large for x in traced]):
        lines.append(f"    small = {all_small(['g'])}")
    passed = [x for x in traced if partials[x].product == "g"]
    for x, p in zip(traced, parents, strict=True):
        partial = partials[x]
        last = case == "same" and x == traced[-1] and not passed  # the cotangent is not needed any more
        product = partial.product if scalar else partial.of_arrays("owned[node[0]]" if last else "0")
        h, fresh = f"h = {product}", str(int(partial.fresh))
        if last and partial.factor:
            h = f"h = scaled({partial.factor}, g) if owned[node[0]] else {product}"
        elif last and partial.product == "-g":
            h = f"h = negated(g) if owned[node[0]] else {product}"
        if passed == [x]:  # the cotangent goes on to one operand as it is, and with it whether it is the walk's own
            fresh = "owned[node[0]]"
        if x in without_node:
            h = f"h = {x}_factor * ({product})"
        if case == "broadcast":
            h = f"h = fit({product}, {x}_shape, {x}_dtype)"
            fresh = "1" if partial.fresh else f"owned[node[0]] if h is g else {OURS}" if passed == [x] else OURS
            if partial.product == "-g":  # what is negated last is smaller
                h = f"h = -fit(g, {x}_shape, {x}_dtype)"
            elif partial.factor:
                h = f"h = contract({partial.factor}, g, {x}_shape, {x}_dtype)"
        lines.append((SCALAR if scalar else ARRAY).format(h=h, p=p, fresh=fresh))
    return "\n".join(lines)


def rules_of(prim: Primitive) -> dict[str, Callable[..., Any]]:
    """Return the rules of a row by parameter."""
    return {name: rule for name, rule in prim.rules.items() if rule is not None}


def namespace_of(prim: Primitive) -> dict[str, Any]:
    """Return what the generated functions of a row refer to."""
    return {
        "__name__": __name__,  # by which errors tell the user's frames from ours
        "S": ReverseTrace.scaled,
        "T": ReverseTrace.tensor,
        "SMALL": SMALL,
        "add_to": add_to,
        "bind": bind,
        "caller": caller,
        "contract": contract,
        "doubled": doubled,
        "fit": fit,
        "LARGE": large.LARGE,
        "LEAST": LEAST,
        "MOST": MOST,
        "binary": binary,
        "by_blocks": by_blocks,
        "float64": np.float64,
        "fun": prim.fun,
        "getframe": sys._getframe,
        "multiply": np.multiply,
        "ndarray": np.ndarray,
        "negated": negated,
        "negative": np.negative,
        "prim": prim,
        "scaled": scaled,
        "ufunc": ufuncs[prim.fun],
        "unary": unary,
        **{f"d_{name}": rule for name, rule in rules_of(prim).items()},
    }


def with_number(prim: Primitive, call: str, form: str, *, node: bool) -> str:
    """Write the case that one operand is a traced scalar, which has a ``node`` or not, and the other a number."""
    own, value, other, number = {
        "left": ("a", "x1", "b", "x2"),
        "right": ("b", "x2", "a", "x1"),
        "unary": ("x", "v", "", ""),
    }[form]
    if prim.fun not in SIMPLE or (form == "right" and prim.fun is operator.pow):
        return ""
    (derivative,) = [
        Partial(rule, f"d_{name}", prim.parameters).value
        for name, rule in rules_of(prim).items()
        if name in {value, own}
    ]
    tests = [f"{value}.__class__ is float64"] if node else []
    tests += ["(kind is float or kind is int or kind is float64)"] if other else []
    if prim.fun is operator.pow:
        derivative = "(x1 + x1)"
    return NUMBER.format(
        test=" and ".join(tests) or "True",
        convert=f"{number} = {other} if kind is float else float({other})" if other else "pass",
        call=call,
        condition=SIMPLE[prim.fun],
        factor="" if node else f"{own}.factor * ",
        derivative=derivative,
        own=own,
        base=f"{own}.note" if node else f"{own}.base",
    )


def compile_scaled(prim: Primitive, call: str, form: str, method: str) -> Callable[..., Any]:
    """Generate an operator's method for scalars without a node; what it does not know is left to those with one."""
    number = with_number(prim, call, form, node=False)
    if form == "unary":
        source = f"def forward(x):\n    v = x.value{number}\n    return T.{method}(x.with_node())\n"
        return made_of(prim, source, namespace_of(prim))
    partials = {name: Partial(rule, f"d_{name}", prim.parameters) for name, rule in rules_of(prim).items()}
    keep = sorted({n for partial in partials.values() for n in partial.needs})
    of_two = ["a.base, b.base, a.factor, b.factor", "x1", "x2"]
    if form == "left":
        begin, own, otherwise = (
            "def forward(a, b):\n    x1 = a.value\n    kind = b.__class__",
            "a",
            f"T.{method}(a.with_node(), b)",
        )
        pairs = {"S": of_two, "T": ["a.base, b.note, a.factor", "x1"]}
    else:
        begin, own, otherwise = (
            "def forward(b, a):\n    x2 = b.value\n    kind = a.__class__",
            "b",
            f"T.{method}(b.with_node(), a)",
        )
        pairs = {"T": ["a.note, b.base, b.factor", "x2"]}
    source, body = "", number
    for kind, (parents, *without_node) in pairs.items():
        source += backward(prim, partials, "both", f"pair_{kind}", keep, without_node) + "\n"
        body += PAIR.format(
            kind=kind,
            read="x2 = b.value" if own == "a" else "x1 = a.value",
            other="x2" if own == "a" else "x1",
            call=call,
            back=f"both_pair_{kind}",
            parents=parents,
            keep="".join([n + ", " for n in keep]),
        )
    return made_of(prim, f"{source}\n{begin}{body}    return {otherwise}\n", namespace_of(prim))


def made_of(prim: Primitive, source: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Return the function ``forward`` of generated code, whose functions are called as the row is."""
    exec(compile(source, f"<meintorch: {prim.name}>", "exec"), namespace)
    for made in namespace.values():
        if getattr(made, "__globals__", None) is namespace:
            made.__qualname__ = prim.name
    forward: Callable[..., Any] = namespace["forward"]
    return forward


def compile_forward(prim: Primitive, call: str, form: str, depth: int) -> Callable[..., Any]:
    """Generate the forward function of an elementwise row, with its backward functions.

    Parameters
    ----------
    call : the expression of the operation on values, such as ``x1 * x2`` or ``fun(v)``
    form : "unary"; "left" and "right" for an operator's method and its reflected one; "call" for a ufunc
    depth : how many frames up the user's is
    """
    rules = rules_of(prim)
    ufunc = ufuncs[prim.fun]
    run = pooled(call, ("x1", "x2"), ufunc)
    namespace = namespace_of(prim)
    partials = {name: Partial(rule, f"d_{name}", prim.parameters) for name, rule in rules.items()}

    def keep_of(*traced: str) -> list[str]:
        return sorted({n for x in traced for n in partials[x].needs})

    def listed(names: list[str]) -> str:
        return "".join([n + ", " for n in names])

    if form == "unary":
        keep = keep_of("x")
        source = backward(prim, partials, "only", "same", keep).replace("only_same", "back")
        number = with_number(prim, call, form, node=True)
        source += UNARY.format(
            number=number, run=pooled(call, ("v",), ufunc), depth=depth, keep=listed(keep).replace("x,", "v,")
        )
    else:
        source = ""
        notes: dict[str, str] = {}
        for side, traced, parents in (
            ("both", ["x1", "x2"], "a.note, b.note, "),
            ("left", ["x1"], "a.note, "),
            ("right", ["x2"], "b.note, "),
        ):
            keep = keep_of(*traced)
            if form == "call" or (side == "right") == (form == "right"):
                source += "\n".join(
                    [backward(prim, partials, side, case, keep) for case in ("scalar", "same", "broadcast")]
                )
            one, other = ("x1", "x2") if side == "both" else ("ans", traced[0])
            same = f"{one}.shape == {other}.shape and {one}.dtype is {other}.dtype"
            fits = listed([f"{x}.{what}" for x in traced for what in ("shape", "dtype")])
            # Next to a Python number most functions keep an array's dtype, but not np.float_power.
            keeps = ufunc is not None or prim.fun is operator.pow
            for kind, test in ((side, same), ("weak_" + side, "True" if keeps else f"ans.dtype is {traced[0]}.dtype")):
                notes[kind] = CASES.format(
                    depth=depth, side=side, parents=parents, keep=listed(keep), same=test, fits=fits
                )
                if kind != side and partials[traced[0]].product == "g":
                    shared = SHARED.format(
                        x=traced[0], same=f"ans.__class__ is {traced[0]}.__class__", parents=parents[:-2]
                    )
                    notes[kind] = shared + notes[kind]
        left = LEFT.format(
            number=with_number(prim, call, "left", node=True),
            keep_right=KEEP.format(x="x2") if "x2" in keep_of("x1") else "",
            run=run,
            run_first=pooled(call, ("x1",), ufunc, ("x1", "x2")),
            both=notes["both"],
            weak=notes["weak_left"],
            left=notes["left"],
            fallback="bind(prim, (a, b), {})",
        )
        right = RIGHT.format(
            number=with_number(prim, call, "right", node=True),
            keep_left=KEEP.format(x="x1") if "x1" in keep_of("x2") else "",
            run=run,
            run_weak=pooled(call, ("x2",), ufunc, ("x1", "x2")),
            weak=notes["weak_right"],
            right=notes["right"],
            fallback="bind(prim, (a, b), {})",
            swapped="b, a" if form == "right" else "a, b",
        )
        if form == "call":
            source += left.replace("def forward", "def left") + right.replace("def forward", "def right")
            source += "\ndef forward(a, b):\n    return left(a, b) if a.__class__ is T else right(a, b)\n"
        else:
            source += left if form == "left" else right
    return made_of(prim, source, namespace)


class Shaped:
    """Stands for an array of which only the shape matters."""

    __slots__ = ("shape",)

    def __init__(self, shape: Any) -> None:
        self.shape = shape


def compile_getitem(prim: Primitive) -> Callable[..., Any]:  # noqa: PLR0915 - functions that share what they are made of
    """Make the function that reads an entry of a plain array, or a slice; all else is left to `bind`."""
    new = ReverseTrace.tensor
    getframe, ndarray, float64 = sys._getframe, np.ndarray, np.float64
    recipe = prim.recipe(("a",))
    basic = {int, slice, type(None), type(Ellipsis)}

    def pull_other(node: Any, g: Any, cts: Any, nodes: Any, owned: Any) -> None:
        _, _, p, index, shape, code, offset = node
        residuals = recipe.keep(None, Shaped(shape), index)
        pull((0, pull, (p,), residuals, recipe, code, offset), g, cts, nodes, owned)

    def back(node: Any, g: Any, cts: Any, nodes: Any, owned: Any) -> None:
        j = node[2][0]
        c = cts[j]
        if owned[j] and c.__class__ is ndarray and g.__class__ is float64:
            c[node[3]] += g
        elif c is None and g.__class__ is float64:
            cts[j] = c = np.zeros(node[4])
            c[node[3]] = g
            nodes[j] = node[2]
            owned[j] = True
        else:
            pull_other(node, g, cts, nodes, owned)

    def back_slice(node: Any, g: Any, cts: Any, nodes: Any, owned: Any) -> None:
        _, _, p, index, shape, _, _ = node
        j = p[0]
        c = cts[j]
        if g.__class__ is not ndarray or (c is not None and (c.__class__ is not ndarray or not owned[j])):
            pull_other(node, g, cts, nodes, owned)
        elif c is None:
            cts[j] = c = zeros(shape, g.dtype)
            c[index] = g
            nodes[j] = p
            owned[j] = True
        else:
            c[index] += g

    def forward(a: Any, index: Any) -> Any:
        kind = index.__class__
        if kind is int or kind is slice or (kind is tuple and all([part.__class__ in basic for part in index])):
            v = a.value
            if v.__class__ is ndarray:
                ans = v[index]
                view = ans.__class__ is ndarray
                if view or ans.__class__ is float64:
                    trace = a._trace
                    n = trace.serial
                    trace.serial = n + 1
                    frame = getframe(1)
                    t = new()
                    t.value = ans
                    t._trace = trace
                    t.note = (n, back_slice if view else back, a.note, index, v.shape, frame.f_code, frame.f_lasti)
                    if view:
                        source = place_of(a)
                        t.place = Place(source.family, (source.path, itemgetter(index)))
                        source.family.join(t)
                    return t
        form = forms[prim.fun, a.__class__, kind]
        return bind(prim, (a, index), {}) if form is None else form(a, index)

    back.__qualname__ = back_slice.__qualname__ = prim.name
    return forward


def compile_entries(  # noqa: PLR0915 - four functions that share what they are made of
    getitem: Callable[..., Any], setitem: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make the functions that read and write one entry of an array that is written into, as loops over elements do.

    All else is left to ``getitem`` and ``setitem``, which define what these must do.
    """
    new = ReverseTrace.tensor
    getframe, ndarray, float64 = sys._getframe, np.ndarray, np.float64

    def is_entry(index: Any, ndim: int) -> bool:
        if index.__class__ is int:
            return ndim == 1
        return index.__class__ is tuple and len(index) == ndim and all([i.__class__ is int for i in index])

    def pull_read(node: Any, g: Any, cts: Any, nodes: Any, owned: Any) -> None:
        j = node[2][0]
        c = cts[j]
        if node[3] is None and owned[j] and c.__class__ is ndarray and g.__class__ is float64:
            c[node[4]] += g
        else:
            pull_view(node, g, cts, nodes, owned)

    def pull_entry(node: Any, g: Any, cts: Any, nodes: Any, owned: Any) -> None:
        n, _, old, parent, path, index = node[:6]
        if path is not None or g.__class__ is not ndarray or not owned[n]:
            pull_write(node, g, cts, nodes, owned)
            return
        if parent is not None:
            h = g[index]
            j = parent[0]
            c = cts[j]
            if c is None:
                cts[j] = h
                nodes[j] = parent
            else:
                cts[j] = c + h
        g[index] = 0.0
        j = old[0]
        c = cts[j]
        if c is None:
            cts[j] = g
            nodes[j] = old
            owned[j] = True
        else:
            add_to(cts, owned, j, c, g)

    def read(self: Any, index: Any) -> Any:
        place = self.place
        s = place.family.storage()
        trace = s.trace
        if trace.__class__ is ReverseTrace:
            v = place.value()
            if v.__class__ is ndarray and is_entry(index, v.ndim) and v.dtype.type is float64 and can_add_into(v):
                n = trace.serial
                trace.serial = n + 1
                frame = getframe(1)
                t = new()
                t.value = v[index]
                t._trace = trace
                t.note = (n, pull_read, s.note, place.path, index, s.layout, frame.f_code, frame.f_lasti)
                return t
        return getitem(self, index)

    def write(self: Any, index: Any, value: Any) -> None:
        place = self.place
        s = place.family.storage()
        trace = s.trace
        if trace.__class__ is ReverseTrace and replayed.get() is None:
            v = place.value()
            if v.__class__ is ndarray and is_entry(index, v.ndim) and v.dtype.type is float64:
                parent: Any = None
                x = value
                if isinstance(value, new) and value._trace is trace:
                    parent, x = value.note, value.value
                if x.__class__ is float64 or x.__class__ is float:
                    n = trace.serial
                    trace.serial = n + 1
                    v[index] = x
                    frame = getframe(1)
                    where = (frame.f_code, frame.f_lasti)
                    s.note = (n, pull_entry, s.note, parent, place.path, index, False, FITS, s.layout, *where)
                    s.version += 1
                    return
        setitem(self, index, value)

    pull_read.__qualname__, pull_entry.__qualname__ = "indexing", "assignment"
    return read, write


FITS = ((), np.dtype(np.float64))  # of a value that is written into an entry


def call_of(prim: Primitive) -> Callable[..., Any]:
    """Return the generated function for calling a ufunc on traced values."""
    if len(prim.rules) == 1:
        return compile_forward(prim, "fun(v)", "unary", 2)
    return compile_forward(prim, "fun(x1, x2)", "call", 3)


def has_call(prim: Primitive) -> bool:
    """Tell whether there can be a generated function for calling a ufunc."""
    return prim.kind is ELEMENTWISE and len(prim.rules) in {1, 2} and None not in prim.rules.values()
