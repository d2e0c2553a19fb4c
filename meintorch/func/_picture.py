"""How a picture is made: what `meintorch.func.draw` imports when it draws.

It takes three steps: run a function under a trace that also notes what each operation was called with and what came out
(or take the graph of a Tensor of the object style as it is), lay the graph out, and write it down.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import inspect
import itertools
import linecache
import os
import unicodedata
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.captured import Captured, origin_of
from meintorch.core.dead import DeadTrace, has_nan
from meintorch.core.graph import (
    Node,
    ReverseTrace,
    explain,
    node_name,
    pull,
    pull_many,
    pull_nothing,
    pull_pick,
    pull_view,
    pull_write,
)
from meintorch.core.memory import bottom, steps_of
from meintorch.core.objects import OBJECTS, Cotangents, gather
from meintorch.core.primitive import Primitive, registry
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import Storage
from meintorch.core.trace import Traced
from meintorch.errors import DrawingError, InputError, OutputError
from meintorch.func._layout import Layout, Place, Point
from meintorch.func._transform import Selection, name_of, run
from meintorch.func.drawing import Drawing
from meintorch.tensor import Tensor

MAX_ENTRIES = 12  # of an array that is shown as it is
MAX_TEXT = 30  # characters in a line of a box
MAX_CONSTANT = 12  # characters of a constant among them
COLUMN, LINE = 7.4, 16.0  # the width of a character and the height of a line

# Colours follow the page into which the picture is written (its text colour); a file of its own follows the reader's system.
STYLE = """
.meintorch-drawing { max-width: 100%; height: auto; font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.meintorch-drawing:root { color: #1f2328; background: #fff; }
@media (prefers-color-scheme: dark) { .meintorch-drawing:root { color: #e6e6e6; background: #1e2129; } }
.meintorch-drawing text { text-anchor: middle; fill: currentColor; }
.meintorch-drawing .label { font-weight: bold; }
.meintorch-drawing .name { font-style: italic; }
.meintorch-drawing .gradient { fill: #c2410c; fill: color-mix(in srgb, #ea580c 60%, currentColor); }
.meintorch-drawing rect { fill: currentColor; fill-opacity: 0.05; stroke: #888; }
.meintorch-drawing .input rect { fill: #3b82f6; fill-opacity: 0.15; stroke: #3b82f6; }
.meintorch-drawing .output rect { stroke: #ea580c; stroke-width: 2; }
.meintorch-drawing .line { fill: none; stroke: #888; }
.meintorch-drawing .arrow { fill: #888; }
.meintorch-drawing .reach { fill: none; stroke: none; stroke-width: 9; pointer-events: stroke; }
.meintorch-drawing .edge:hover .line { stroke: #ea580c; stroke-width: 2; }
"""


# ---------------------------------------------------------------- graphs, ready to be drawn


class Shown(NamedTuple):
    """A value as a picture shows it: in a box, and with more digits where there is room."""

    short: str
    long: str


class Visit(NamedTuple):
    """What a walk back saw of a node: its cotangent, and its contributions to its operands' by serial."""

    node: Node
    ct: Any
    shares: dict[int, Any]


class Vertex:
    """A node as it is drawn.

    Attributes
    ----------
    label : the name of an input, the symbol of an operation
    names : what else it is called: which output it is, or its name in the object style
    value, gradient : as they are shown
    operands : its edges in order: the serial they come from, and how much of its gradient comes along them, if known
    source : the user's expression and its line
    """

    __slots__ = ("gradient", "is_input", "is_output", "label", "names", "operands", "source", "value")

    def __init__(self, label: str, operands: Sequence[tuple[int, Shown | None]], source: Sequence[str] = ()) -> None:
        self.label = label
        self.operands = operands
        self.source = source
        self.is_input = not operands
        self.is_output = False
        self.names: list[str] = []
        self.value: Shown | None = None
        self.gradient: Shown | None = None

    def hide_values(self) -> None:
        """Leave the structure alone."""
        self.value = self.gradient = None
        self.operands = [(p, None) for p, _ in self.operands]


class Spelt(str):
    """A text that stands for an array in a label."""

    __slots__ = ()


class DrawnTensor(Tensor):
    """A Tensor of a trace that notes what it sees; its operators are the plain ones."""

    __slots__ = ()
    __init__ = object.__init__


class DrawingTrace(ReverseTrace):
    """A reverse trace that also notes, by serial, what an operation looks like and the value that came out."""

    __slots__ = ("labels", "values")

    tensor = DrawnTensor

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__(Captured(origin_of(f)))
        self.labels: dict[int, str] = {}
        self.values: dict[int, Shown] = {}

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive as any reverse trace does, and note how to draw it."""
        label = self._label(prim, args, kwargs)
        ans = super().process(prim, args, kwargs)
        for i, x in enumerate(ans if isinstance(ans, (tuple, list)) else [ans]):
            if isinstance(x, Traced) and x._trace is self:
                node = x.note
                if node[1] is pull_view:
                    self._note_view(node, x.value)
                    continue
                if node[1] is pull_pick:
                    self.labels[node[0]] = f"_[{i}]"
                    node = node[2]
                self.labels[node[0]] = label
                self.values[x.note[0]] = shown(x.value)
        return ans

    def write(self, s: Storage, path: Any, index: Any, value: Any, add: bool) -> None:  # noqa: FBT001 - as in the engine
        """Write as any reverse trace does, and note how to draw it."""
        before = s.note
        label = f"{self._entries(before, path)}[{self._index(index)}] {'+=' if add else '='} {self._spelling(value)}"
        super().write(s, path, index, value, add)
        if s.note[1] is pull_write and s.note is not before:
            self.labels[s.note[0]] = label
            self.values[s.note[0]] = shown(s.value)

    def lift(self, s: Storage, value: Any) -> None:
        """Take over a buffer as any reverse trace does, and note how to spell it: it is a constant."""
        super().lift(s, value)
        self.labels[s.note[0]] = shown(value, MAX_CONSTANT).short

    def note_of_view(self, s: Storage, path: Any, value: Any) -> Node:
        """Return a node for a view as any reverse trace does, and note how to draw it."""
        node = super().note_of_view(s, path, value)
        if node[1] is pull_view:
            self._note_view(node, value)
        return node

    def _note_view(self, node: Node, value: Any) -> None:
        """Note how to draw what is read from an array that was written into; the edge comes from the whole array."""
        whole, path, index = node[2:5]
        brackets = "" if index is Ellipsis and path is not None else f"[{self._index(index)}]"
        self.labels[node[0]] = self._entries(whole, path) + brackets
        self.values[node[0]] = shown(value)

    def _entries(self, whole: Node, path: Any) -> str:
        """Spell a view of an array, such as ``_[1:]``."""
        text = self.labels[whole[0]] if whole[1] is pull_nothing else "_"
        for step in steps_of(path):
            part = "" if step.part is None else f"[{step.part}]"
            text = self._label(*step.call_on(Spelt(text)), nested=True) + part
        return text

    def _index(self, index: Any) -> str:
        """Spell an index without its parentheses."""
        return self._spelling(index).removeprefix("(").removesuffix(")") or "…"

    def _label(self, prim: Primitive, args: Sequence[Any], kwargs: dict[str, Any], *, nested: bool = False) -> str:
        """Spell a call, with ``_`` for what is an edge."""
        texts = [self._spelling(x) for x in args]
        texts += [f"{k}={text}" for k, x in kwargs.items() for text in [self._spelling(x)] if text]
        texts = [text for text in texts if text]
        symbol = operators().get(prim.name, prim.symbol)
        infix = prim.name in operators()
        if symbol == "[]" and len(texts) == 2:
            return f"{texts[0]}[{self._index(args[1])}]"
        if all([text == "_" for text in texts]) and not nested:
            return f"{symbol}_" if infix and len(texts) == 1 else symbol
        if infix and len(texts) == 2:
            return f"{texts[0]} {symbol} {texts[1]}"
        return f"{symbol}({', '.join(texts)})"

    def _spelling(self, x: Any) -> str:
        """Spell an argument; nothing for what is not worth telling."""
        if isinstance(x, Spelt) or (isinstance(x, Traced) and x._trace is self):
            return str(x) if isinstance(x, Spelt) else "_"
        if isinstance(x, (list, tuple)):
            parts = [self._spelling(e) for e in x]
            if parts and all([part == "_" for part in parts]):
                return "_"
            inside = ", ".join(parts)
            spelt = f"[{inside}]" if isinstance(x, list) else f"({inside},)" if len(parts) == 1 else f"({inside})"
            return spelt if all(parts) else ""
        if isinstance(x, slice):
            ends = ["" if e is None else self._spelling(e) for e in (x.start, x.stop, x.step)]
            return ":".join(ends if ends[2] else ends[:2])
        if x is Ellipsis:
            return "..."
        if x is None or isinstance(x, (str, bool, int)):
            return repr(x)
        if isinstance(x, (float, complex, np.generic, np.ndarray, Traced)):
            return shown(x, MAX_CONSTANT).short
        if isinstance(x, (type, np.dtype)):
            return getattr(x, "__name__", str(x))
        return ""


@functools.cache
def operators() -> dict[str, str]:
    """Return how operators are written, by the name of their function: np.multiply is drawn as `*` however it was called."""
    spelled_otherwise = [p for p in registry.values() if p.symbol != p.name.rpartition(".")[2]]
    return {p.name: p.symbol for p in spelled_otherwise if p.name.startswith("np.")}


def graph_of_call(f: Callable[..., Any], selection: Selection) -> dict[int, Vertex]:
    """Run a function and walk back through its graph; return what there is to draw, by serial."""
    trace = DrawingTrace(f)
    leaves = [trace.leaf(x) for x in selection.values]
    inputs = [leaf.note[0] for leaf in leaves]  # asked now: a leaf that is written into moves on to other nodes
    out, _ = run(f, selection, leaves, trace, has_aux=False)
    outputs, out_tree = tree.flatten(out)
    roots = [
        (x, f"output{path}")
        for x, path in zip(outputs, out_tree.paths(), strict=True)
        if isinstance(x, Traced) and x._trace is trace
    ]
    if not roots:
        raise OutputError(
            f"{name_of(f)} returned nothing that depends on the arguments to draw, so there is no graph. Choose other "
            f"arguments with argnums."
        )
    trace.captured.check()
    visits = flow([root for root, _ in roots])
    graph: dict[int, Vertex] = {}
    for serial, x, name in zip(inputs, selection.values, names_of(f, selection), strict=True):
        vertex = graph[serial] = Vertex(name, ())
        vertex.value = shown(x)
        vertex.gradient = shown(np.zeros(shape_of(x), dtype_of(x)))  # of one without influence
    for serial in sorted(visits):
        node, ct, shares = visits[serial]
        if node[1] is pull_nothing:  # a constant, which stands in labels
            continue
        if serial >= len(leaves):
            parts = {p: shown(share) for p, share in shares.items() if share.__class__ is not list}
            operands = [(p, parts.get(p)) for p in operands_of(node) or sorted(shares)]
            vertex = graph[serial] = Vertex(trace.labels.get(serial, node_name(node)), operands, source_of(node))
            vertex.value = trace.values.get(serial)
        if ct.__class__ is not list:  # what has many outputs has no gradient of its own
            graph[serial].gradient = shown(ct)
    for root, name in roots:
        graph[root.note[0]].is_output = True
        graph[root.note[0]].names.append(name)
    return graph


def names_of(f: Callable[..., Any], selection: Selection) -> list[str]:
    """Return the names of the leaves of a call: the parameter's name, and the path within the argument."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some functions written in C do not tell
        parameters = []
    names: list[str] = []
    for place, treedef in zip(selection.places, selection.trees, strict=True):
        name = place if isinstance(place, str) else f"argument {place}"
        for k, parameter in enumerate(parameters):
            if k == place:
                name = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL and not isinstance(place, str) and k <= place:
                name = f"{parameter.name}[{place - k}]"
                break
        names += [name + path for path in treedef.paths()]
    return names


def flow(roots: Sequence[Traced]) -> dict[int, Visit]:
    """Walk back from the sum of all outputs, and note what flows; where NaN comes out, without branches not taken."""
    seeds = [np.ones(shape_of(root.value), dtype_of(root.value))[()] for root in roots]
    with np.errstate(all="ignore"):
        visits = walk_noting(roots, seeds)
        if any([has_nan(ct) for visit in visits.values() for ct in as_list(visit.ct)]):
            trace = DeadTrace()
            with contextlib.suppress(Exception):  # what cannot be run on masks leaves the first result, which is honest
                again = walk_noting(roots, [trace.living(seed) for seed in seeds])
                visits = {
                    serial: Visit(node, trace.lower(ct), {p: trace.lower(share) for p, share in shares.items()})
                    for serial, (node, ct, shares) in again.items()
                }
    return visits


def walk_noting(roots: Sequence[Traced], seeds: Sequence[Any]) -> dict[int, Visit]:
    """Do what `meintorch.core.graph.walk` does, and note every node's cotangent and its contributions to its operands."""
    pending: dict[int, tuple[Node, Any]] = {}
    queue: list[int] = []  # serials, negated: the latest first
    visits: dict[int, Visit] = {}

    def add(node: Node, ct: Any) -> None:
        if node[0] not in pending:
            heapq.heappush(queue, -node[0])
            pending[node[0]] = node, ct
        else:
            pending[node[0]] = node, both(pending[node[0]][1], ct)

    for root, seed in zip(roots, seeds, strict=True):
        add(root.note, seed)
    while queue:
        serial = -heapq.heappop(queue)
        node, ct = pending.pop(serial)
        shares, nodes = Cotangents(), Cotangents()
        if node[1] is not None:
            try:
                node[1](node, ct, shares, nodes, Cotangents())
            except Exception as error:
                explain(error, node)
                raise
        for p, share in shares.items():
            add(nodes[p], share)
        visits[serial] = Visit(node, ct, dict(shares))
    return visits


def both(a: Any, b: Any) -> Any:
    """Add two contributions; those to a node with many outputs are lists, None where nothing came."""
    if a.__class__ is not list:
        return a + b
    return [y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True)]


def as_list(ct: Any) -> list[Any]:
    """Return the cotangents of a node with one output or many."""
    return ct if ct.__class__ is list else [ct]


def operands_of(node: Node) -> list[int]:
    """Return the serials of what a node was computed from, in order; nothing for a node of an unknown form."""
    if node[1] is pull_pick or node[1] is pull_view:
        return [node[2][0]]
    if node[1] is pull_write:
        return [p[0] for p in node[2:4] if p is not None and p[1] is not pull_nothing]
    if node[1] is not pull and node[1] is not pull_many:
        return []
    return [p[0] for part in node[2] for p in ([p for _, p in part] if part.__class__ is list else [part])]


def graph_of_tensor(root: Tensor, names: dict[str, PyTree]) -> dict[int, Vertex]:
    """Return what there is to draw of a Tensor's graph, by serial."""
    gathered = gather(root)
    graph: dict[int, Vertex] = {}
    for serial in sorted(gathered):
        t, node = gathered[serial]
        operands = operands_of(node)
        if t is not None and not (operands and all([p in gathered for p in operands])):
            operands = [child.note.node[0] for child in dict.fromkeys(t.note.children)]
        label = node_name(node) if t is None else t.note.op or type(t).__name__
        vertex = graph[serial] = Vertex(label, [(p, None) for p in operands], source_of(node))
        if t is not None:
            vertex.value = shown(t.value)
            vertex.gradient = None if t.note.grad is None else shown(t.note.grad)
    graph[root.note.node[0]].is_output = True
    for name, part in names.items():
        leaves, treedef = tree.flatten(part)
        for t, path in zip(leaves, treedef.paths(), strict=True):
            if not isinstance(t, Tensor) or t._trace is not OBJECTS:
                raise InputError(f"names has to name tensors; {name + path} is a {type(t).__name__}")
            named = graph.get(t.note.node[0])  # None: it takes no part in this graph
            if named is not None and named.is_input:
                named.label = name + path
            elif named is not None:
                named.names.append(name + path)
    return graph


def source_of(node: Node) -> list[str]:
    """Return the user's expression that made a node, if its source can be read, and where it stands."""
    code, offset = node[-2:]
    if code is None:
        return []
    line, last, start, end = next(itertools.islice(code.co_positions(), offset // 2, None), (None,) * 4)
    if line is None:
        return []
    text = linecache.getline(code.co_filename, line).encode()  # positions count bytes
    expression = text[start : end if last == line else None].decode(errors="replace").strip()
    where = f"{code.co_filename.rpartition(os.sep)[2]} line {line}, in {code.co_qualname}"
    return [expression + ("" if last == line else " ..."), where] if expression else [where]


# ---------------------------------------------------------------- values in few words


def shown(x: Any, longest: int = MAX_TEXT) -> Shown:
    """Spell a value: numbers and small arrays as they are, larger ones by dtype and shape."""
    array = np.asarray(bottom(x))
    whole = f"{array.dtype}[{', '.join([str(n) for n in array.shape])}]"
    if array.size == 0 or array.size > MAX_ENTRIES:
        return Shown(whole, whole)
    short = spelled(array.tolist(), ".4g")
    return Shown(short if len(short) <= longest else whole, spelled(array.tolist(), ".12g"))


def spelled(x: Any, spec: str) -> str:
    """Spell nested lists of numbers."""
    if isinstance(x, list):
        return f"[{', '.join([spelled(e, spec) for e in x])}]"
    return str(x) if isinstance(x, (bool, int, str)) else format(x, spec)


# ---------------------------------------------------------------- the picture


def picture(graph: dict[int, Vertex], title: str, *, values: bool, max_nodes: int) -> Drawing:
    """Lay a graph out and write it down."""
    if len(graph) > max_nodes:
        raise DrawingError(
            f"{title[0].lower() + title[1:]} has {len(graph)} nodes, and a picture of more than {max_nodes} is hard to read. "
            f"Draw a smaller case (fewer steps of a loop, fewer layers: the graph repeats itself), draw a part of the "
            f"function, or pass max_nodes={len(graph)}."
        )
    position = {serial: k for k, serial in enumerate(sorted(graph))}
    vertices = [graph[serial] for serial in position]
    if not values:
        for v in vertices:
            v.hide_values()
    parents = [[position[p] for p, _ in v.operands] for v in vertices]
    rows = [rows_of(v) for v in vertices]
    layout = Layout([size_of(lines) for lines in rows], parents)
    words = [sentence(k, v, parents[k]) for k, v in enumerate(vertices)]
    w, h = round(layout.width), round(layout.height)
    head = f'role="img" aria-label="{escape(title)}" width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="meintorch-drawing" {head}>',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(' '.join(words))}</desc>",
        f"<style>{STYLE}</style>",
    ]
    for k, v in enumerate(vertices):
        for i, (parent, (_, share)) in enumerate(zip(parents[k], v.operands, strict=True)):
            parts.append(write_edge(layout.edges[k, i], parent, k, share, parents[k].count(parent)))
    parts += [write_box(k, v, layout.places[k], rows[k]) for k, v in enumerate(vertices)]
    return Drawing("\n".join([*parts, "</svg>"]))


def rows_of(vertex: Vertex) -> list[tuple[str, str]]:
    """Return the lines of a box, each with its class."""
    rows = [("label", cut(vertex.label)), *[("name", cut(name)) for name in vertex.names]]
    if vertex.value is not None:
        rows.append(("value", vertex.value.short))
    if vertex.gradient is not None:
        rows.append(("gradient", f"grad {vertex.gradient.short}"))
    return rows


def cut(text: str) -> str:
    """Return a text that fits into a box."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def size_of(rows: list[tuple[str, str]]) -> tuple[float, float]:
    """Return the size of a box for some lines of text, by the number of columns they take in a font of fixed width."""
    columns = max([sum([2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text]) for _, text in rows])
    return max(44.0, columns * COLUMN + 20.0), len(rows) * LINE + 12.0


def sentence(k: int, vertex: Vertex, parents: list[int]) -> str:
    """Say in words what a box and its edges show, for those who do not see them."""
    words = f"{k + 1}: {', '.join([vertex.label, *vertex.names])}"
    if parents:
        words += f" of {' and '.join([str(p + 1) for p in parents])}"
    if vertex.value is not None:
        words += f", value {vertex.value.short}"
    if vertex.gradient is not None:
        words += f", gradient {vertex.gradient.short}"
    return words + "."


def write_box(k: int, vertex: Vertex, place: Place, rows: list[tuple[str, str]]) -> str:
    """Write the box of a node."""
    tip = [", ".join([vertex.label, *vertex.names]), *vertex.source]
    if vertex.value is not None:
        tip.append(f"value {vertex.value.long}")
    if vertex.gradient is not None:
        tip.append(f"gradient {vertex.gradient.long}")
    kind = ("input" if vertex.is_input else "operation") + (" output" if vertex.is_output else "")
    left, radius = place.x - place.width / 2, 14 if vertex.is_input else 3
    lines = [
        f'<text class="{name}" x="{place.x:.1f}" y="{place.top + 6 + LINE * (i + 0.75):.1f}">{escape(text)}</text>'
        for i, (name, text) in enumerate(rows)
    ]
    return (
        f'<g class="node {kind}" data-node="{k}"><title>{escape(chr(10).join(tip))}</title>'
        f'<rect x="{left:.1f}" y="{place.top:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" rx="{radius}"/>'
        f"{''.join(lines)}</g>"
    )


def write_edge(points: list[Point], start: int, end: int, share: Shown | None, together: int) -> str:
    """Write an edge: straight through layers, curved between them, with an arrow at its end."""
    (x, y), *rest = points
    path = f"M{x:.1f},{y:.1f}"
    for i, (x1, y1) in enumerate(rest):
        half = (y1 - y) / 2
        if i % 2:
            path += f"C{x:.1f},{y + half:.1f} {x1:.1f},{y1 - half:.1f} {x1:.1f},{y1:.1f}"
        elif y1 > y:
            path += f"V{y1:.1f}"
        x, y = x1, y1
    along = "this edge" if together == 1 else f"these {together} edges together"
    tip = "" if share is None else f"<title>{escape(f'gradient along {along}: {share.long}')}</title>"
    return (
        f'<g class="edge" data-from="{start}" data-to="{end}">{tip}<path class="reach" d="{path}"/>'
        f'<path class="line" d="{path}"/><path class="arrow" d="M{x - 3.5:.1f},{y - 7:.1f}h7L{x:.1f},{y:.1f}z"/></g>'
    )
