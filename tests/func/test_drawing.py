"""Pictures, read back from their SVG: what is drawn is the graph that was computed, with its numbers, and can be read."""

from __future__ import annotations

import inspect
import pickle
import random
import re
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from meintorch import Tensor, errors
from meintorch.func import _picture, checkpoint, custom_vjp, draw, grad, hessian, value_and_grad, vmap
from meintorch.func._layout import Layout
from tests.conftest import objects_left_by
from tests.differences import weighted
from tests.programs import program as random_program

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 7.23  # the width of one in DejaVu Sans Mono at 12 pixels, the widest of the fonts that the style names


@dataclass
class Node:
    """A node as the picture shows it."""

    kind: set[str]
    rows: dict[str, list[str]]
    tip: list[str]
    left: float
    top: float
    right: float
    bottom: float

    @property
    def label(self) -> str:
        return self.rows["label"][0]

    def number(self, what: str) -> Any:
        """Return the number that the tooltip tells, ``value`` or ``gradient``."""
        (line,) = [line for line in self.tip if line.startswith(what + " ")]
        return np.array(eval(line.removeprefix(what), {"nan": np.nan, "inf": np.inf}))


@dataclass
class Picture:
    """A drawing read back."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    paths: list[str]
    tips: list[str]
    title: str
    desc: str
    size: tuple[float, float]
    attributes: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, label: str) -> Node:
        (found,) = [node for node in self.nodes if node.label == label]
        return found

    @property
    def labels(self) -> list[str]:
        return [node.label for node in self.nodes]

    @property
    def named_edges(self) -> list[tuple[str, str]]:
        return sorted([(self.labels[a], self.labels[b]) for a, b in self.edges])

    @property
    def outputs(self) -> list[Node]:
        return [node for node in self.nodes if "output" in node.kind]


def read(drawing: str) -> Picture:
    root = ET.fromstring(drawing)
    assert root.tag == SVG + "svg"
    assert [child.tag for child in root][:3] == [SVG + "title", SVG + "desc", SVG + "style"]
    nodes, edges, paths, tips = [], [], [], []
    for g in root.iter(SVG + "g"):
        kinds = set(g.attrib["class"].split())
        if "edge" in kinds:
            edges.append((int(g.attrib["data-from"]), int(g.attrib["data-to"])))
            paths += [p.attrib["d"] for p in g.iter(SVG + "path") if p.attrib["class"] == "line"]
            tips.append(g.findtext(SVG + "title") or "")
            continue
        assert int(g.attrib["data-node"]) == len(nodes)
        rows: dict[str, list[str]] = {}
        for text in g.iter(SVG + "text"):
            rows.setdefault(text.attrib["class"], []).append(text.text or "")
        (rect,) = g.iter(SVG + "rect")
        x, y, w, h = [float(rect.attrib[k]) for k in ("x", "y", "width", "height")]
        tip = (g.findtext(SVG + "title") or "").split("\n")
        nodes.append(Node(kinds - {"node"}, rows, tip, x, y, x + w, y + h))
    assert len(paths) == len(edges)
    for a, b in edges:
        assert 0 <= a < b < len(nodes), "an edge goes down from a drawn node to a drawn node"
    head = {name: root.findtext(SVG + name) or "" for name in ("title", "desc")}
    size = float(root.attrib["width"]), float(root.attrib["height"])
    return Picture(nodes, edges, paths, tips, **head, size=size, attributes=dict(root.attrib))


# ---------------------------------------------------------------- the graph


def test_a_square_and_a_sum():
    picture = read(draw(lambda x: x * x + x)(3.0))
    assert picture.labels == ["x", "*", "+"]
    assert sorted(picture.edges) == [(0, 1), (0, 1), (0, 2), (1, 2)]
    assert [node.kind for node in picture.nodes] == [{"input"}, {"operation"}, {"operation", "output"}]
    assert [node.rows["value"] for node in picture.nodes] == [["3"], ["9"], ["12"]]
    assert [node.rows["gradient"] for node in picture.nodes] == [["grad 7"], ["grad 1"], ["grad 1"]]
    assert sorted(picture.tips) == [
        "gradient along these 2 edges together: 6",
        "gradient along these 2 edges together: 6",
        "gradient along this edge: 1",
        "gradient along this edge: 1",
    ]


def test_intermediate_values_and_gradients(rng):
    """By hand: f = tanh(u) y with u = w . x, so df/du = (1 - tanh(u)**2) y."""
    w, x, y = rng.normal(size=3), rng.normal(size=3), rng.normal()
    picture = read(draw(lambda w, x, y: np.tanh(w @ x) * y, argnums=(0, 1, 2))(w, x, y))
    u = w @ x
    slope = y / np.cosh(u) ** 2
    expected = {
        "w": (w, slope * x),
        "x": (x, slope * w),
        "y": (y, np.tanh(u)),
        "@": (u, slope),
        "tanh": (np.tanh(u), y),
    }
    for label, (value, gradient) in {**expected, "*": (np.tanh(u) * y, 1.0)}.items():
        np.testing.assert_allclose(picture[label].number("value"), value, rtol=1e-11)
        np.testing.assert_allclose(picture[label].number("gradient"), gradient, rtol=1e-11)
    assert picture.named_edges == [("@", "tanh"), ("tanh", "*"), ("w", "@"), ("x", "@"), ("y", "*")]
    assert picture["w"].rows["value"] == [f"[{', '.join([format(e, '.4g') for e in w])}]"]


def network(parameters: Any, x: Any) -> Any:
    """A program with trees, reductions, branches not taken and many outputs of one operation."""
    for layer in parameters["layers"]:
        x = np.tanh(layer["W"] @ x + layer["b"])
    low, high = np.split(x, 2)
    chosen = np.where(low > 0, np.sqrt(np.abs(low)), parameters["slope"] * low)
    return np.sum(chosen * high) / 2 + np.max(x)


def network_parameters(rng: np.random.Generator) -> Any:
    layers = [{"W": rng.normal(size=(4, 2)), "b": rng.normal(size=4)}, {"W": rng.normal(size=(4, 4)), "b": np.zeros(4)}]
    return {"layers": layers, "slope": 0.1, "unused": np.ones(2)}


def test_gradients_are_those_of_grad(rng):
    parameters, x = network_parameters(rng), rng.normal(size=2)
    value, gradient = value_and_grad(network)(parameters, x)
    picture = read(draw(network)(parameters, x))
    for k in (0, 1):
        for name in ("W", "b"):
            node = picture[f"parameters['layers'][{k}]['{name}']"]
            if node.tip[-1] == "gradient float64[4, 4]":
                assert node.rows["gradient"] == ["grad float64[4, 4]"]
                continue
            np.testing.assert_allclose(node.number("gradient"), gradient["layers"][k][name], rtol=1e-10)
    np.testing.assert_allclose(picture["parameters['slope']"].number("gradient"), gradient["slope"], rtol=1e-10)
    assert picture["parameters['unused']"].rows["gradient"] == ["grad [0, 0]"]
    (output,) = picture.outputs
    np.testing.assert_allclose(output.number("value"), value, rtol=1e-11)
    assert [edge for edge in picture.named_edges if edge[0] == "split(_, 2)"] == [
        ("split(_, 2)", "_[0]"),
        ("split(_, 2)", "_[1]"),
    ]


def test_a_gradient_is_the_sum_of_what_comes_along_its_edges(rng):
    def f(x, y):
        a = np.sin(x) * y + x
        b = np.exp(a) / (1 + y * y)
        return b - a * x

    picture = read(draw(f, argnums=(0, 1))(0.3, -1.2))
    gathered = dict.fromkeys(range(len(picture.nodes)), 0.0)
    for (a, _), tip in dict(zip(picture.edges, picture.tips, strict=True)).items():  # y * y: both edges tell the same
        gathered[a] += float(tip.partition(": ")[2])
    for k, node in enumerate(picture.nodes):
        if "output" not in node.kind:
            np.testing.assert_allclose(gathered[k], node.number("gradient"), rtol=1e-10)


def test_the_order_of_operands():
    """The edges of `a - b` enter from left to right, though b was computed first."""

    def entries(f):
        picture = read(draw(f, argnums=(0, 1))(5.0, 2.0))
        ends = [
            (float(re.split("[ ,]", path)[-2]), edge) for edge, path in zip(picture.edges, picture.paths, strict=True)
        ]
        last = len(picture.nodes) - 1
        return [picture.labels[a] for _, (a, b) in sorted(ends) if b == last]

    assert entries(lambda x, y: x - y) == ["x", "y"]
    assert entries(lambda x, y: y - x) == ["y", "x"]
    assert entries(lambda x, y: (np.sin(x), np.cos(y))[1] / (np.sin(x) + 1)) == ["cos", "_ + 1"]
    assert entries(lambda x, y: np.where(True, np.sin(x), y)) == ["sin", "y"]


@pytest.mark.parametrize(
    ("f", "labels"),
    [
        (lambda x: 3 - 2.5 * x, ["2.5 * _", "3 - _"]),
        (lambda x: np.multiply(2.0, -x), ["-_", "2 * _"]),
        (lambda x: np.float64(2) / x**2, ["_ ** 2", "2 / _"]),
        (lambda x: x[1], ["_[1]"]),
        (lambda x: x[None, ..., ::-1], ["_[None, ..., ::-1]"]),
        (lambda x: x[x > 1], ["_[bool[2]]"]),
        (lambda x: np.sum(x, axis=0), ["sum(_, axis=0)"]),
        (lambda x: x.sum(), ["sum"]),
        (lambda x: np.clip(x, 0, 1.5), ["clip(_, 0, 1.5)"]),
        (lambda x: np.stack([x, x]), ["stack"]),
        (lambda x: np.stack([x[0], 1.0, x[1]]), ["_[0]", "_[1]", "stack([_, 1, _])"]),
        (lambda x: np.zeros((3, 2)) @ x, ["float64[3, 2] @ _"]),
        (lambda x: [1, 2] @ x, ["[1, 2] @ _"]),
        (lambda x: x.astype(np.float32), ["astype(_, float32)"]),
        (lambda x: np.max(x) + np.mean(x), ["max", "mean", "+"]),
    ],
)
def test_labels(f, labels):
    assert read(draw(f)(np.array([1.0, 2.0]))).labels[1:] == labels


def test_names_of_inputs():
    def f(a, b, *rest, flag, scale=1.0):
        return (a[0] + b["<&>"] * rest[0] + rest[1]) * scale if flag else a

    picture = read(
        draw(f, argnums=(0, 1, 2, -1), argnames="scale")((1.0, 2.0), {"<&>": 3.0}, 4.0, 5.0, flag=True, scale=2)
    )
    inputs = [node.label for node in picture.nodes if node.kind == {"input"}]
    assert inputs == ["a[0]", "a[1]", "b['<&>']", "rest[0]", "rest[1]", "scale"]
    assert read(draw(max)(1.0, 0.5)).labels == ["argument 0"]  # a function that does not tell its parameters


def test_names_of_outputs():
    picture = read(draw(lambda x: {"loss": np.sum(x), "parts": (x * 2, "text", 3.0)})(np.ones(2)))
    assert [(node.label, node.rows["name"]) for node in picture.outputs] == [
        ("sum", ["output['loss']"]),
        ("_ * 2", ["output['parts'][0]"]),
    ]
    assert picture["x"].number("gradient").tolist() == [3.0, 3.0]  # of the sum of all outputs
    picture = read(draw(lambda x: (x, x))(1.0))
    assert picture.nodes[0].kind == {"input", "output"}
    assert picture.nodes[0].rows["name"] == ["output[0]", "output[1]"]


def test_the_user_s_own_expression_and_line():
    def f(x):
        y = np.sin(x) * 2
        return np.sum(  # a call over several lines
            y * x,
        )

    picture = read(draw(f)(np.ones(2)))
    first = f.__code__.co_firstlineno
    where = f"test_drawing.py line {first + 1}, in {f.__qualname__}"
    assert picture["sin"].tip[:3] == ["sin", "np.sin(x)", where]
    assert picture["_ * 2"].tip[:3] == ["_ * 2", "np.sin(x) * 2", where]
    assert picture["sum"].tip[1] == "np.sum(  # a call over several lines ..."


def test_branches_not_taken():
    """As in grad: the derivative of the square root at 0 is infinite, and is not taken."""
    picture = read(draw(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))(np.array([0.0, 4.0])))
    assert picture["x"].number("gradient").tolist() == [0.0, 0.25]
    picture = read(draw(lambda x: np.sqrt(x) ** 2)(0.0))
    assert np.isnan(picture["x"].number("gradient"))


def test_rules_of_one_s_own():
    double = custom_vjp(lambda x, y: (x * y, x + y))
    double.defvjp(lambda x, y: ((x * y, x + y), (x, y)), lambda saved, ct: (ct[0] * saved[1] + ct[1], 10.0 * ct[0]))
    picture = read(draw(lambda x, y: double(x, y)[0] * 2, argnums=(0, 1))(2.0, 3.0))
    assert picture.labels == ["x", "y", "<lambda>", "_[0]", "_ * 2"]
    assert picture["x"].number("gradient") == 6.0
    assert picture["y"].number("gradient") == 20.0
    assert "gradient" not in picture["<lambda>"].rows
    assert float(read(draw(checkpoint(lambda x: np.sin(x) * x))(1.0))["x"].number("gradient")) == pytest.approx(
        np.sin(1.0) + np.cos(1.0)
    )


@pytest.mark.usefixtures("engine")
def test_the_graph_of_a_gradient():
    def f(x):
        return np.tanh(x * x) * x

    picture = read(draw(grad(f))(0.5))
    (output,) = picture.outputs
    np.testing.assert_allclose(output.number("value"), grad(f)(0.5), rtol=1e-11)
    np.testing.assert_allclose(picture["x"].number("gradient"), grad(grad(f))(0.5), rtol=1e-11)
    assert "tanh" in picture.labels
    assert "1 - _" in picture.labels  # the rule of tanh
    x = np.array([1.0, 2.0])
    h = read(draw(hessian(lambda x: np.sum(np.sin(x) * x[::-1])))(x))
    np.testing.assert_allclose(
        h.outputs[0].number("value"), hessian(lambda x: np.sum(np.sin(x) * x[::-1]))(x), rtol=1e-11
    )
    batch = read(draw(vmap(f))(x))
    np.testing.assert_allclose(batch["x"].number("gradient"), vmap(grad(f))(x), rtol=1e-11)


@pytest.mark.usefixtures("engine")
def test_inside_another_transform():
    drawings = []

    def f(x):
        drawings.append(draw(lambda y: y * x)(x + 1))
        return x * x

    assert grad(f)(3.0) == 6.0
    picture = read(drawings[0])
    assert picture.labels == ["y", "_ * 3"]
    assert picture["y"].number("gradient") == 3.0


def test_kinds_of_numbers():
    z = read(draw(lambda z: z * (2 + 1j))(1.5 - 0.5j))
    assert z["z"].rows["value"] == ["1.5-0.5j"]
    assert z["z"].number("gradient") == 2 + 1j
    big = read(draw(np.sum)(np.ones((3, 0, 7), np.float32)))
    assert big.nodes[0].rows["value"] == ["float32[3, 0, 7]"]
    small = read(draw(np.sum)(np.array([[1, 2], [3, 4]])))
    assert small.nodes[0].rows["value"] == ["[[1, 2], [3, 4]]"]
    odd = read(draw(lambda x: x * 2)(np.array([np.nan, -np.inf, 1e300, 1.23456])))
    assert odd.nodes[0].rows["value"] == ["[nan, -inf, 1e+300, 1.235]"]
    assert odd.nodes[0].tip[1] == "value [nan, -inf, 1e+300, 1.23456]"
    long = read(draw(lambda x: x * 2)(np.full(4, -1.23456e-20)))
    assert long.nodes[0].rows["value"] == ["float64[4]"]


# ---------------------------------------------------------------- the object style


def test_a_tensor():
    x, w = Tensor(2.0), Tensor([-3.0, 1.0])
    y = np.sum(np.tanh(w * x) * x * x)
    before = read(draw(y))
    assert before.labels.count("Tensor") == 2
    assert all(["gradient" not in node.rows for node in before.nodes])
    y.backward()
    picture = read(draw(y, names={"x": x, "parameters": {"w": w}, "elsewhere": Tensor(1.0)}))
    assert sorted(picture.labels) == sorted(["x", "parameters['w']", "*", "tanh", "*", "*", "sum"])
    np.testing.assert_allclose(picture["x"].number("gradient"), x.grad, rtol=1e-11)
    np.testing.assert_allclose(picture["parameters['w']"].number("gradient"), w.grad, rtol=1e-11)
    np.testing.assert_allclose(picture["sum"].number("value"), y.data, rtol=1e-11)
    assert picture["tanh"].tip[1] == "np.tanh(w * x)"
    assert len(picture.edges) == 8
    assert read(draw(x * x)).edges == [(0, 1), (0, 1)]
    twice = x * x
    assert read(draw(twice + 1, names={"twice": twice}))["*"].rows["name"] == ["twice"]


def test_an_operation_of_a_learner_s_own():
    t = Tensor([1.0, 2.0])
    out = Tensor(np.maximum(t.data, 0), (t,), "relu")

    def backward():
        t.grad += out.grad * (t.data > 0)

    out._backward = backward
    total = np.sum(out)
    total.backward()
    picture = read(draw(total))
    assert picture.named_edges == [("Tensor", "relu"), ("relu", "sum")]
    assert picture["Tensor"].number("gradient").tolist() == [1.0, 1.0]


def test_many_outputs_of_a_tensor():
    t = Tensor([1.0, 2.0, 3.0, 4.0])
    low, high = np.split(t, 2)
    picture = read(draw(np.sum(low * high)))
    assert len(picture.nodes) == 6
    assert picture.nodes[0].label == "Tensor"
    assert len(picture.edges) == 6


# ---------------------------------------------------------------- what it looks like


def boxes_apart(nodes: list[Any]) -> bool:
    return all(
        a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top
        for a, b in combinations(nodes, 2)
    )


def test_boxes_hold_their_text_and_do_not_overlap(rng):
    for picture in [
        read(draw(network)(network_parameters(rng), rng.normal(size=2))),
        read(draw(grad(grad(lambda x: x**3 * np.sin(x))))(0.5)),
        read(draw(lambda x: np.sum(x["鍵" * 12] * 2))({"鍵" * 12: np.ones(2)})),
    ]:
        assert boxes_apart(picture.nodes)
        for node in picture.nodes:
            texts = [text for rows in node.rows.values() for text in rows]
            columns = max([sum([2 if ord(c) > 0x3000 else 1 for c in text]) for text in texts])
            assert node.right - node.left >= columns * CHARACTER
            assert node.bottom - node.top >= 16 * len(texts)
            assert 0 <= node.left < node.right <= picture.size[0]
            assert 0 <= node.top < node.bottom <= picture.size[1]
        for (a, b), path in zip(picture.edges, picture.paths, strict=True):
            start, end = picture.nodes[a], picture.nodes[b]
            (x0, y0), (x1, y1) = ends_of(path)
            assert start.left < x0 < start.right
            assert abs(y0 - start.bottom) < 0.11
            assert end.left < x1 < end.right
            assert abs(y1 - end.top) < 0.11


def ends_of(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return where a path begins and ends."""
    start: tuple[float, float] | None = None
    x = y = np.nan
    for step, text in re.findall(r"([MCV])([^MCV]+)", path):
        numbers = [float(n) for n in re.split("[ ,]", text)]
        x, y = (x, numbers[0]) if step == "V" else (numbers[-2], numbers[-1])
        start = start or (x, y)
    assert start is not None
    return start, (x, y)


def random_graph(seed: int) -> tuple[list[tuple[float, float]], list[list[int]]]:
    draw_from = random.Random(seed)
    count = draw_from.randrange(1, 60)
    parents = [
        [
            draw_from.randrange(max(0, k - draw_from.choice([2, 5, 60])), k)
            for _ in range(draw_from.choice([0, 1, 1, 2, 2, 3]))
        ]
        if k
        else []
        for k in range(count)
    ]
    return [(draw_from.uniform(20, 250), draw_from.uniform(20, 90)) for _ in range(count)], parents


@pytest.mark.parametrize("seed", range(40))
def test_layouts_of_random_graphs(seed):
    sizes, parents = random_graph(seed)
    layout = Layout(sizes, parents)
    nodes = [Node(set(), {}, [], p.x - p.width / 2, p.top, p.x + p.width / 2, p.bottom) for p in layout.places]
    assert boxes_apart(nodes)
    assert [(round(n.right - n.left, 6), round(n.bottom - n.top, 6)) for n in nodes] == [
        (round(w, 6), round(h, 6)) for w, h in sizes
    ]
    for n in nodes:
        assert 0 <= n.left <= n.right <= layout.width
        assert 0 <= n.top <= n.bottom <= layout.height
    assert sorted(layout.edges) == [(k, i) for k, above in enumerate(parents) for i in range(len(above))]
    for (child, i), points in layout.edges.items():
        start, end = nodes[parents[child][i]], nodes[child]
        assert points[0] == (layout.places[parents[child][i]].x, start.bottom)
        assert end.left < points[-1][0] < end.right
        assert points[-1][1] == end.top
        others = [n for n in nodes if n is not start and n is not end]
        for j, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
            assert y0 <= y1
            if j % 2 == 0:
                assert x0 == x1
            for n in others:  # a curve stays within the rectangle of its ends
                inside = y0 < n.bottom - 1e-9 and y1 > n.top + 1e-9
                assert not (inside and min(x0, x1) < n.right and max(x0, x1) > n.left), "an edge runs through a box"
    assert Layout(sizes, parents).edges == layout.edges


def crossings_of(parents: list[list[int]]) -> int:
    """Count the pairs of curves that cross between two layers; edges that share a part of their way count once."""
    layout = Layout([(60.0, 40.0)] * len(parents), parents)
    curves = {(y, x0, x1) for points in layout.edges.values() for (x0, y), (x1, _) in list(pairwise(points))[1::2]}
    return sum([a[0] == b[0] and (a[1] - b[1]) * (a[2] - b[2]) < 0 for a, b in combinations(curves, 2)])


@pytest.mark.parametrize(
    "parents",
    [
        [[], [], [], [], [3, 1], [0, 2], [5, 4]],  # a tree, computed in disorder
        [[], [0, 0], [1], [1, 2], [1, 3], [3, 0]],
        [[], [0], [1, 1], [], [0, 2], [2, 3]],
        [[], [], [1], [1], [2, 3], [1, 1], [1, 2], [1], [5], [1, 4]],
    ],
)
def test_no_crossings_where_there_need_be_none(parents):
    assert crossings_of(parents) == 0


def test_a_crossing_that_is_needed():
    assert crossings_of([[], [], [0, 1], [0, 1], [2, 3]]) == 1


def test_a_picture_is_the_same_every_time(rng):
    parameters, x = network_parameters(rng), rng.normal(size=2)
    assert draw(network)(parameters, x) == draw(network)(parameters, x)


def test_what_is_read_aloud():
    picture = read(draw(lambda x: x * x + x)(3.0))
    assert picture.attributes["role"] == "img"
    assert picture.title == f"The graph of {inspect.currentframe().f_code.co_qualname}.<locals>.<lambda>"
    assert picture.desc == (
        "1: x, value 3, gradient 7. 2: * of 1 and 1, value 9, gradient 1. 3: +, output of 2 and 1, value 12, gradient 1."
    )


def test_styles_stay_inside_the_picture():
    """Written into a page, a style sheet holds for all of the page."""
    style = ET.fromstring(draw(np.sum)(np.ones(2))).findtext(SVG + "style") or ""
    selectors = re.findall(r"([^{}]+)\{", style.replace("@media (prefers-color-scheme: dark) {", ""))
    assert len(selectors) > 10
    assert all([s.strip().startswith(".meintorch-drawing") for s in selectors])
    of_the_page = [s for s in style.splitlines() if re.search(r"[{;] *(color|background):", s)]
    assert of_the_page
    assert all([".meintorch-drawing:root" in s for s in of_the_page]), "inside a page its text colour holds"
    assert "id=" not in draw(np.sum)(np.ones(2))


def test_structure_alone():
    picture = read(draw(lambda x: x * x + x, values=False)(3.0))
    assert [set(node.rows) for node in picture.nodes] == [{"label"}, {"label"}, {"label", "name"}]
    assert not any(picture.tips)
    assert "value" not in picture.desc
    t = Tensor(1.0)
    t.backward()
    assert set(read(draw(t, values=False)).nodes[0].rows) == {"label"}


# ---------------------------------------------------------------- drawings and functions that make them


def test_a_drawing_shows_and_saves_itself(tmp_path):
    picture = draw(lambda x: x["é"] * 2)({"é": 3.0})
    assert repr(picture) == "<Drawing: 2 nodes, 1 edges>"
    assert picture._repr_svg_() == str(picture)
    assert type(str(picture)) is str
    picture.save(tmp_path / "picture.svg")
    root = ET.parse(tmp_path / "picture.svg").getroot()
    assert ET.tostring(root) == ET.tostring(ET.fromstring(picture))
    copy = pickle.loads(pickle.dumps(picture))
    assert copy == picture
    assert repr(copy) == repr(picture)


def test_it_is_a_transform_like_the_others():
    drawn = draw(network, argnums=1, values=False)
    assert repr(drawn) == "draw(network, argnums=1, values=False)"
    assert repr(draw(grad(network))) == "draw(grad(network))"
    assert drawn.__name__ == "network"
    assert drawn.__doc__ == network.__doc__
    assert inspect.signature(drawn) == inspect.signature(network)
    again = pickle.loads(pickle.dumps(drawn))
    parameters, x = network_parameters(np.random.default_rng(0)), np.ones(2)
    assert again(parameters, x) == drawn(parameters, x)


def test_a_graph_that_is_too_large():
    def loop(x, n):
        for _ in range(n):
            x = np.sin(x)
        return x

    assert len(read(draw(loop)(1.0, 59)).nodes) == 60
    with pytest.raises(errors.DrawingError, match=r"loop has 61 nodes.*smaller case.*max_nodes=61"):
        draw(loop)(1.0, 60)
    assert len(read(draw(loop, max_nodes=1501)(1.0, 1500)).nodes) == 1501  # no recursion


# ---------------------------------------------------------------- arrays that are written into


def test_an_array_that_is_filled():
    """By hand: y = [2 x0, sin(x1) 2 x0, 0], and the sum is 2 x0 (1 + sin(x1))."""

    def f(x):
        y = np.zeros_like(x)
        y[0] = x[0] * 2
        y[1] = np.sin(x[1]) * y[0]
        return np.sum(y)

    picture = read(draw(f)(np.array([1.0, 2.0, 3.0])))
    sine, cosine = np.sin(2.0), np.cos(2.0)
    assert picture.labels == ["x", "_[0]", "_ * 2", "[0, 0, 0][0] = _", "_[1]", "sin", "_[0]", "*", "_[1] = _", "sum"]
    expected = {
        "x": ([1, 2, 3], [2 + 2 * sine, 2 * cosine, 0]),
        "[0, 0, 0][0] = _": ([2, 0, 0], [1 + sine, 0, 1]),
        "_[1] = _": ([2, 2 * sine, 0], [1, 1, 1]),
        "*": (2 * sine, 1),
    }
    for label, (value, gradient) in expected.items():
        np.testing.assert_allclose(picture[label].number("value"), value, rtol=1e-11)
        np.testing.assert_allclose(picture[label].number("gradient"), gradient, rtol=1e-11)
    edges = [(2, 3), (3, 6), (3, 8), (7, 8)]
    assert [edge for edge in sorted(picture.edges) if 3 in edge or 8 in edge] == [*edges, (8, 9)]
    assert picture["_[1] = _"].tip[1] == "y[1]"
    assert re.fullmatch(r"test_drawing\.py line \d+, in test_an_array_that_is_filled.*", picture["_[1] = _"].tip[2])


def test_writes_through_views_and_reads_after_them():
    def f(x):
        y = x * 1
        tail = y[1:]
        tail *= x[0]
        y[-1] = 5.0
        return np.sum(y * tail[0])

    picture = read(draw(f)(np.array([1.0, 2.0, 3.0])))
    assert "_[1:][...] = _" in picture.labels
    np.testing.assert_array_equal(picture["_[-1] = 5"].number("value"), [1, 2, 5])
    np.testing.assert_array_equal(picture["_[-1] = 5"].number("gradient"), [2, 10, 2])
    assert picture["_[1:][0]"].number("value") == 2
    assert picture["_[1:][0]"].number("gradient") == 8
    assert ("_[-1] = 5", "_[1:][0]") in picture.named_edges, "a read through a view comes from the whole array"
    np.testing.assert_array_equal(picture["x"].number("gradient"), grad(f)(np.array([1.0, 2.0, 3.0])))


def add_at(x):
    y = x * 1
    np.add.at(y, [0, 0], x[:2])
    return y


def split_in_place(x):
    a, b = np.split(x, 2)
    a[:] = b
    return a * b


def transposed(x):
    m = np.outer(x, x)
    m.T[0] += x
    return m.T


def masked(x):
    x[np.array([True, False, False, True])] = 7
    return x


def whole(x):
    x[...] = np.sin(x)
    return x


@pytest.mark.parametrize(
    ("f", "label"),
    [
        (add_at, "_[[0, 0]] += _"),
        (split_in_place, "split(_, 2)[0][:] = _"),
        (transposed, "transpose(_)[0][...] = _"),
        (masked, "_[bool[4]] = 7"),
        (whole, "sin"),
    ],
)
def test_labels_of_writes(f, label):
    x = np.array([1.0, 2.0, 3.0, 4.0])
    before = x.copy()
    picture = read(draw(f)(x))
    assert label in picture.labels
    assert not [name for name in picture.labels if "pull" in name]
    assert np.array_equal(x, before)
    np.testing.assert_array_equal(picture["x"].number("value"), before)
    np.testing.assert_allclose(picture["x"].number("gradient"), grad(lambda x: np.sum(f(x)))(x), rtol=1e-11)


def test_the_derivative_of_a_program_that_writes():
    def f(x):
        y = np.zeros_like(x)
        y[0] = x[0] ** 3
        y[1] = y[0] * x[1]
        return np.sum(y)

    x = np.array([2.0, 3.0])
    picture = read(draw(grad(f))(x))
    assert not [name for name in picture.labels if "pull" in name]
    np.testing.assert_allclose(picture["x"].number("gradient"), hessian(f)(x).sum(0))


@pytest.mark.parametrize("kind", ["real", "views", "complex"])
def test_random_programs_that_write(kind, monkeypatch):
    """The picture's walk is not that of grad, and it reads the values at other times; the numbers are the same."""
    monkeypatch.setattr(_picture, "MAX_ENTRIES", 10_000)
    monkeypatch.setattr(_picture, "picture", lambda graph, title, **options: graph)
    drawn = 0
    for seed in range(40):
        program = random_program(seed, kind=kind)
        f = program.function()
        loss = weighted(lambda x: np.real(f(x)))  # noqa: B023
        try:
            value, gradient = value_and_grad(loss)(program.x)
            graph = draw(loss)(program.x)
        except (errors.InPlaceError, errors.OutputError):  # nothing that depends on x
            continue
        numbers = {"nan": np.nan, "inf": np.inf}
        (out,) = [vertex for vertex in graph.values() if vertex.is_output]
        np.testing.assert_allclose(eval(out.value.long, numbers), value, rtol=1e-10)
        np.testing.assert_allclose(eval(graph[0].gradient.long, numbers), gradient, rtol=1e-10, atol=1e-10)
        for serial, vertex in graph.items():
            assert "pull" not in vertex.label
            assert all([operand in graph and operand < serial for operand, _ in vertex.operands])
        drawn += 1
    assert drawn > 35


def test_what_cannot_be_drawn():
    with pytest.raises(errors.OutputError, match="nothing that depends.*argnums"):
        draw(lambda x, y: y)(1.0, 2.0)
    with pytest.raises(errors.InputError, match="argument 0 cannot be differentiated"):
        draw(lambda x: x)("text")
    with pytest.raises(errors.InputError, match="draw takes a function"):
        draw(3.0)
    with pytest.raises(errors.InputError, match="names="):
        draw(np.sum, names={"x": 1.0})
    with pytest.raises(errors.InputError, match="argnums"):
        draw(Tensor(1.0), 0)
    with pytest.raises(errors.InputError, match=r"w\[1\] is a float"):
        draw(Tensor(1.0), names={"w": [Tensor(1.0), 2.0]})
    with pytest.raises(ZeroDivisionError):
        draw(lambda x: x / (1 // 0))(1.0)
    large = np.ones(70_000)

    def overwrite(x):
        y = x * large
        large[0] = 2.0
        return np.sum(y)

    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        draw(overwrite)(np.ones(70_000))
    bad = custom_vjp(lambda x: x)
    bad.defvjp(lambda x: (x, None), lambda saved, ct: 1 // 0)
    with pytest.raises(ZeroDivisionError) as caught:
        draw(bad)(1.0)
    assert "in the derivative of" in caught.value.__notes__[0]


def test_nothing_is_left_behind(rng):
    parameters, x = network_parameters(rng), rng.normal(size=2)
    assert objects_left_by(lambda: draw(network)(parameters, x)) == 0
    assert objects_left_by(lambda: draw(grad(np.tanh))(1.0)) == 0
    kept = []

    def leak(x):
        kept.append(x)
        return x * 2

    draw(leak)(1.0)
    with pytest.raises(errors.EscapedTensorError):
        kept[0] * 2


def test_inputs_are_untouched_and_values_the_same(rng):
    x = rng.normal(size=5)
    before = x.copy()
    seen = []
    draw(lambda x: seen.append(x.value.copy()) or np.sum(x))(x)
    assert np.array_equal(x, before)
    assert np.array_equal(seen[0], before)
