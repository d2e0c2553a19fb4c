"""The graph that reverse mode notes, and the walk that goes through it backwards.

A node is a tuple ``(serial, pull, ..., code, offset)``. Its serial number is higher than that of every node that it
depends on, because it was made later: going through the serials in descending order is a topological walk, without
recursion, visited sets or marks. ``pull(node, g, cts, nodes, owned)`` adds to the parents' cotangents what the node's own
cotangent ``g`` contributes; code and offset tell the user's line. Nodes are never written to and do not know the traced
values: a value that no rule keeps is freed as soon as the user's program drops it, a graph can be walked many times and
from several threads, and there are no cycles.

The state of a walk lives in three lists, indexed by serial: the cotangents gathered so far, the nodes they belong to, and
whether a cotangent is owned, that is, an array that nobody else holds and that may be added to in place.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from meintorch.core.primitive import CONSTANT, STRUCTURAL, Primitive, Step
from meintorch.core.shapes import dtype_of, fit, shape_of
from meintorch.core.trace import Call, Trace, Traced, caller, is_many, rebuild, top_trace
from meintorch.errors import source_line

Node: TypeAlias = tuple[Any, ...]
Slots: TypeAlias = "list[Any] | bytearray | MutableMapping[int, Any]"

ndarray, float64 = np.ndarray, np.float64


class ReverseTrace(Trace):
    """A trace that notes a graph node for each operation. ``serial`` is the next node's number."""

    __slots__ = ()

    tensor: type[Traced]  # the class of the values it makes; set by meintorch.tensor

    def leaf(self, value: Any) -> Traced:
        """Wrap an input."""
        n = self.serial
        self.serial = n + 1
        return self.wrap(value, (n, None, None, 0), ())

    def wrap(self, value: Any, node: Node, parents: Sequence[Traced]) -> Traced:
        """Make the traced value of a node. ``parents`` are the traced values that it was computed from."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = node
        return t

    def node_of(self, t: Traced) -> Node:
        """Return the graph node of a traced value."""
        node: Node = t.note
        return node

    def count(self) -> int:
        """Return the next serial number."""
        n = self.serial
        self.serial = n + 1  # no call between the read and the write: threads cannot come between
        return n

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive, note its node, and wrap its output."""
        if prim.kind is STRUCTURAL or prim.kind is CONSTANT:
            self.check_alive()
            return prim.fun(*self.lower(args), **{k: self.lower(v) for k, v in kwargs.items()})
        call = Call(self, prim, args, kwargs)
        ans = call.run()
        recipe = prim.recipe(tuple(call.traced))
        parents = tuple([self.nodes_of(found) for found in call.traced.values()])
        where = caller()
        residuals = call.kept(recipe.keep(ans, *call.args, **call.kwargs), *where)
        if is_many(ans):
            outputs = tuple([(shape_of(x), dtype_of(x)) for x in ans])
            node: Node = (self.count(), pull_many, parents, residuals, recipe, outputs, *where)
            return rebuild(ans, [self._pick(node, i, x, call.inputs) for i, x in enumerate(ans)])
        return self.wrap(ans, (self.count(), pull, parents, residuals, recipe, *where), call.inputs)

    def nodes_of(self, found: Any) -> Any:
        """Return the node of a traced argument; of a sequence of arrays a list of (element, node)."""
        return [(i, self.node_of(t)) for i, t in found] if found.__class__ is list else self.node_of(found)

    def _pick(self, node: Node, i: int, value: Any, inputs: list[Traced]) -> Any:
        """Wrap one of several outputs; outputs without a derivative (integers, None) stay plain."""
        if dtype_of(value).kind not in "fc":
            return value
        return self.wrap(value, (self.count(), pull_pick, node, i, *node[-2:]), inputs)


# ---------------------------------------------------------------- the backward pass


def walk(roots: Sequence[Node], seeds: Sequence[Any], leaves: int) -> tuple[list[Any], bytearray]:
    """Walk back from ``roots``, whose cotangents are ``seeds``, to the leaves, which have the lowest serials.

    Returns
    -------
    cotangents : list of length ``leaves``; None for a leaf without influence
    owned : one byte a leaf, 1 where nobody else holds the cotangent
    """
    size = max(leaves, *[root[0] + 1 for root in roots]) if roots else leaves
    cts: list[Any] = [None] * size
    nodes: list[Any] = [None] * size
    owned = bytearray(size)
    for root, seed in zip(roots, seeds, strict=True):
        accumulate(cts, nodes, owned, root, seed, False)
    node: Node | None = None
    with np.errstate(all="ignore"):  # 1/0 in a rule is an inf to be looked at, not a warning in the user's program
        try:
            for i in range(size - 1, leaves - 1, -1):
                g = cts[i]
                if g is not None:
                    node = nodes[i]
                    cts[i] = nodes[i] = None  # what is passed is freed at once
                    node[1](node, g, cts, nodes, owned)
        except Exception as error:
            if node is not None:
                explain(error, node)
            raise
    del cts[leaves:], owned[leaves:]
    return cts, owned


def explain(error: Exception, node: Node) -> None:
    """Say in which derivative, and from which line of the user's program, a backward pass failed."""
    error.add_note(f"in the derivative of {node_name(node)}, {source_line(node[-2], node[-1])}")


def node_name(node: Node) -> str:
    """Return the name of the primitive that made a node."""
    if node[1] is pull or node[1] is pull_many:
        name: str = node[4].name
    else:
        name = getattr(node[1], "__qualname__", "an operation")
    return name


def pull(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Pull a cotangent back through any primitive, by its rules."""
    parents, residuals, recipe = node[2:5]
    for step, parent in zip(recipe.steps, parents, strict=True):
        if (
            step.into is not None
            and (g.__class__ is ndarray or g.__class__ is float64)
            and top_trace([residuals[k] for k in step.into_picks]) is None
        ):
            add_into(step, residuals, parent, g, cts, nodes, owned)
            continue
        args = [residuals[k] for k in step.picks]
        if step.sequence:  # one cotangent for each of the arrays, of which those wanted are traced
            shapes, dtypes = [residuals[k] for k in step.fit]
            if step.wanted:
                args.append([i for i, _ in parent])
            parts = step.rule(g, *args)
            for i, p in parent:
                accumulate(cts, nodes, owned, p, fit(parts[i], shapes[i], dtypes[i]), False)
            continue
        h = step.rule(*args) * g if step.partial else step.rule(g, *args)
        if step.fit:
            h = fit(h, *[residuals[k] for k in step.fit])
        fresh = (
            h.__class__ is ndarray and h.base is None and sole(h)
        )  # before h is passed on, which is a reference more
        accumulate(cts, nodes, owned, parent, h, fresh)


def add_into(step: Step, residuals: Any, parent: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Add what was read from a few entries into the parent's cotangent, an array of the walk's own."""
    j = parent[0]
    c = cts[j]
    if not owned[j] or c.__class__ is not ndarray:
        if c is not None and not isinstance(c, (ndarray, np.generic)):  # a traced cotangent cannot be written to
            cts[j] = c + step.rule(g, *[residuals[k] for k in step.picks])
            return
        shape = residuals[step.shape]
        fresh = np.zeros(shape, g.dtype)
        if c is not None:
            fresh += c
        c = cts[j] = fresh
        nodes[j] = parent
        owned[j] = True
    assert step.into is not None
    step.into(c, g, *[residuals[k] for k in step.into_picks])


def pull_many(node: Node, g: list[Any], cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Pull the cotangents of several outputs back; those without influence are zeros."""
    outputs = node[5]
    full = [np.zeros(*output) if x is None else x for x, output in zip(g, outputs, strict=True)]
    pull((*node[:5], *node[-2:]), full, cts, nodes, owned)


def pull_pick(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Gather the cotangents of one of several outputs at the node that made them all."""
    parent = node[2]
    j = parent[0]
    if cts[j] is None:
        cts[j] = [None] * len(parent[5])  # type: ignore[list-item]
        nodes[j] = parent
    cts[j][node[3]] = g


def accumulate(cts: Slots, nodes: Slots, owned: Slots, parent: Node, h: Any, fresh: bool) -> None:
    """Add ``h`` to the cotangent of ``parent``. ``fresh``: nobody else holds ``h``."""
    j = parent[0]
    c = cts[j]
    if c is None:
        cts[j] = h
        nodes[j] = parent
        owned[j] = fresh
    else:
        add_to(cts, owned, j, c, h)


def add_to(cts: Slots, owned: Slots, j: int, c: Any, h: Any) -> None:
    """Add ``h`` to the cotangent ``c`` of serial ``j``, in place where ``c`` is an array of our own."""
    if owned[j] and c.__class__ is ndarray and h.__class__ is ndarray:
        c += h
    else:
        cts[j] = c + h
        owned[j] = True


def sole(x: Any) -> bool:
    """Tell whether the caller's variable is the only reference to an object."""
    return sys.getrefcount(x) <= SOLE


def _references() -> int:
    x = np.empty(1)  # held by one variable; how many references that is depends on the interpreter
    counts: list[int] = []
    count = counts.append

    def look(x: Any) -> None:
        count(sys.getrefcount(x))

    look(x)
    return counts[0]


SOLE = _references()
