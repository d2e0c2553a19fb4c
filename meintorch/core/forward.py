"""Forward mode: each traced value carries its tangent, which the rows' own rules push through an operation.

Nothing is registered for it that reverse mode does not have. An elementwise operation multiplies the tangents with its
partial derivatives; a linear one is applied to the tangents; a multilinear one to one tangent after the other; and for
all else the reverse rule, which is linear in the cotangent, is transposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.captured import Captured
from meintorch.core.graph import ReverseTrace, walk
from meintorch.core.memory import Path, clone, memory_of
from meintorch.core.primitive import CONSTANT, ELEMENTWISE, LINEAR, MULTILINEAR, STRUCTURAL, Primitive
from meintorch.core.shapes import dtype_of, expand, fit, shape_of
from meintorch.core.storage import Storage, filled, follow, put
from meintorch.core.trace import Call, Trace, Traced, is_many, rebuild


class ForwardTrace(Trace):
    """A trace that carries tangents: ``note`` is the tangent, of the value's shape and dtype."""

    __slots__ = ()
    mode = "forward mode"

    def wrap(self, value: Any, tangent: Any) -> Traced:
        """Make a value with a tangent."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = tangent
        return t

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive and push the tangents of its arguments through it."""
        self.check_alive()
        if prim.kind is STRUCTURAL or prim.kind is CONSTANT:
            return prim.fun(*self.lower(args), **{k: self.lower(v) for k, v in kwargs.items()})
        call = Call(self, prim, args, kwargs)
        ans = call.run()
        with np.errstate(all="ignore"):  # as in the backward pass: an infinite derivative is no warning of the program
            tangent = push(call, ans)
        if not is_many(ans):
            ans = self.wrap(ans, self.fitted(tangent, ans, call))
        else:
            parts = []
            for x, t in zip(ans, tangent, strict=True):
                plain = dtype_of(x).kind not in "fc" or id(x) in call.plain
                parts.append(x if plain else self.wrap(x, self.fitted(t, x, call)))
            ans = rebuild(ans, parts)
        follow(prim, ans, args, kwargs, self)
        return ans

    def fitted(self, tangent: Any, ans: Any, call: Call) -> Any:
        """Give a tangent the shape and dtype of its value; one that may be written to is not shared."""
        tangent = fitted(tangent, ans)
        if call.volatile and any([memory_of(tangent) is memory_of(t.note) for t in call.inputs]):
            tangent = clone(tangent)
        return tangent

    # ------------------------------------------------------------ arrays that are written into

    def own(self, s: Storage) -> None:
        """Make value and tangent copies that nobody else holds, laid out alike."""
        super().own(s)
        s.note = filled(s.layout, s.note)

    def lift(self, s: Storage, value: Any) -> None:
        """Take over a buffer of a lower trace, with zeros as its tangent."""
        s.value, s.note = value, s.layout.blank()

    def write(self, s: Storage, path: Path, index: Any, value: Any, add: bool) -> None:
        """Write a value and its tangent."""
        mine = isinstance(value, Traced) and value._trace is self
        t = value.note if mine else 0
        s.value = put(s.value, path, index, value.value if mine else value, add)
        s.note = put(s.note, path, index, t, add)

    def settled(self, t: Traced) -> Traced:
        """Return a value as it is now."""
        still: Traced = super().settled(t)
        if t.written:
            still.note = clone(still.note)
        return still


def fitted(tangent: Any, ans: Any) -> Any:
    """Give a tangent the shape and dtype of the value it belongs to."""
    shape, dtype = shape_of(ans), dtype_of(ans)
    if tangent.__class__ is complex:
        tangent = np.complex128(tangent)
    if tangent.dtype != dtype:
        if tangent.dtype.kind == "c" and dtype.kind != "c":
            tangent = np.real(tangent)
        if tangent.dtype != dtype:
            tangent = tangent.astype(dtype)
    return tangent if tangent.shape == shape else expand(tangent, shape)


def push(call: Call, ans: Any) -> Any:
    """Return the tangent of a call's output; a list of them for several outputs."""
    prim = call.prim
    if prim.kind is LINEAR:
        args, kwargs = call.with_every(lambda x: tangent_or_zeros(x, call.trace), offsets=0)
        return prim.fun(*args, **kwargs)
    if prim.kind is MULTILINEAR:
        terms = []
        for parameter, found in call.traced.items():
            for element, t in found if found.__class__ is list else [(-1, found)]:
                args, kwargs = call.with_argument(parameter, element, t.note)
                terms.append(prim.fun(*args, **kwargs))
        return added(terms)
    names = tuple(call.traced)
    forward = prim.kind is not ELEMENTWISE and all([name in prim.jvps for name in names])
    recipe = prim.recipe(names, forward)
    residuals = recipe.keep(ans, *call.args, **call.kwargs)
    if prim.kind is not ELEMENTWISE and not forward:
        return transposed(call, recipe.steps, residuals, ans)
    total: Any = None
    for step, (name, found) in zip(recipe.steps, call.traced.items(), strict=True):
        picked = [residuals[k] for k in step.picks]
        tangent: Any = tangents_or_zeros(call.argument(name), found, call.trace) if step.sequence else found.note
        if not step.partial:
            term = step.rule(tangent, *picked)
        elif picked:
            term = times(step.rule(*picked), tangent)
        else:  # a constant, of sums and differences, where a product would be a pass for nothing
            partial = step.rule()
            if partial == -1 and total is not None:
                total = total - tangent
                continue
            term = tangent if partial == 1 else -tangent if partial == -1 else partial * tangent
        total = term if total is None else added([total, term])
    return total


def times(partial: Any, tangent: Any) -> Any:
    """Multiply a tangent with a partial derivative. A boolean one selects: what it does not take contributes nothing."""
    kind = partial.__class__
    if kind is not float and (partial.dtype if kind is np.ndarray else dtype_of(partial)).kind == "b":
        return np.where(partial, tangent, 0)
    return tangent * partial  # a traced tangent on the left has its operator called, on the right NumPy looks for it


def added(terms: list[Any]) -> Any:
    """Add up what each traced argument contributes."""
    total = terms[0]
    for term in terms[1:]:
        total = [a + b for a, b in zip(total, term, strict=True)] if is_many(total) else total + term
    return total


def tangents_or_zeros(xs: Any, found: Any, trace: Trace) -> list[Any]:
    """Return for each array of a sequence its tangent, or zeros where it has none."""
    traced = dict(found)
    return [tangent_or_zeros(traced.get(i, x), trace) for i, x in enumerate(xs)]


def tangent_or_zeros(x: Any, trace: Trace) -> Any:
    """Return a value's tangent in this trace, or zeros; for a Python number a zero that does not widen other dtypes."""
    if isinstance(x, Traced) and x._trace is trace:
        return x.note
    return x if x is None else 0 if isinstance(x, (bool, int, float, complex)) else np.zeros_like(x)


def transposed(call: Call, steps: Any, residuals: Any, ans: Any) -> Any:
    """Push tangents forward by transposing the reverse rule, which is linear in the cotangent ``g``.

    The rule is run on a traced ``g``; walking back through that small graph from the tangents gives the transpose.
    """
    many = is_many(ans)
    outputs = list(ans) if many else [ans]
    trace = ReverseTrace(Captured(how=False))  # walked at once: nobody writes in between
    gs = [trace.leaf(np.zeros(shape_of(x), dtype_of(x))) for x in outputs]
    roots, seeds = [], []
    for step, found in zip(steps, call.traced.values(), strict=True):
        args: list[Any] = [residuals[k] for k in step.picks]
        fits = [residuals[k] for k in step.fit]
        if step.wanted:
            args.append([i for i, _ in found])
        h = step.rule(gs if many else gs[0], *args)
        for i, t in found if step.sequence else [(-1, found)]:
            part = h[i] if step.sequence else h
            if fits:
                part = fit(part, *([f[i] for f in fits] if step.sequence else fits))
            if isinstance(part, Traced) and part._trace is trace:
                roots.append(part.note)
                seeds.append(t.note)
    trace.end()
    cts, _ = walk(roots, seeds, len(gs))
    tangents = [np.zeros_like(x) if ct is None else ct for ct, x in zip(cts, outputs, strict=True)]
    return tangents if many else tangents[0]
