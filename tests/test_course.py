"""The course cannot drift: what the reader types is held against differences, and does what the library does.

The learner's code is taken from the pages, so that what is tested is what is shown. The same checks run over the
learner's classes and over `meintorch.Tensor`, over the learner's transforms and over those of `meintorch.func`. Broken
copies of the learner's code must fail them, and broken solutions must fail the exercises.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meintorch import func
from meintorch.tensor import Tensor

from .course import TUTORIAL, kept
from .test_docs import Block, blocks_of, execute

CHAPTERS = [
    "difference",
    "notes",
    "backwards",
    "arrays",
    "matrix-product",
    "object-style",
    "grad",
    "rules",
    "forward",
    "vmap",
    "training",
]
ARRAY_STYLE = kept("difference", "backwards", "arrays", "matrix-product")
FUNCTIONAL = kept("difference", "rules", "forward", "vmap")
FAILURES = (AssertionError, AttributeError, LookupError, TypeError, ValueError, pytest.fail.Exception)


def run(code: str) -> SimpleNamespace:
    """Run a program of the learner and return its names."""
    names: dict[str, Any] = {"__name__": "__course__"}
    exec(compile(code, "<the course>", "exec"), names)
    return SimpleNamespace(**names)


def mutated(code: str, old: str, new: str) -> str:
    assert old in code, f"the course no longer says {old!r}"
    return code.replace(old, new)


# ---------------------------------------------------------------- pages and exercises


def solution_of(chapter: str) -> tuple[list[Block], Block]:
    """Return the blocks before the solution of a chapter's exercise, and the solution."""
    text = (TUTORIAL / f"{chapter}.md").read_text(encoding="utf-8")
    solution_line = text[: text.index('\n??? success "Solution"\n')].count("\n") + 1
    blocks = blocks_of(TUTORIAL / f"{chapter}.md")
    (solution,) = [block for block in blocks if block.line > solution_line]
    return [block for block in blocks if block.line < solution_line and block.language == "python"], solution


def up_to_the_exercise(chapter: str) -> tuple[dict[str, Any], str]:
    """Run a chapter up to its exercise, and return its names and what it printed."""
    names: dict[str, Any] = {"__name__": "__page__"}
    before, _ = solution_of(chapter)
    printed = [execute(TUTORIAL / f"{chapter}.md", block, names) for block in before]
    return names, "".join(printed)


def test_the_chapters_are_those_of_the_folder_and_of_the_navigation() -> None:
    assert {page.stem for page in TUTORIAL.glob("*.md")} == {"index", *CHAPTERS}
    navigation = (TUTORIAL.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"tutorial/([\w-]+)\.md", navigation) == ["index", *CHAPTERS]
    contents = (TUTORIAL / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\(([\w-]+)\.md\)", contents) == CHAPTERS


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_chapter_ends_with_an_exercise_and_a_check(chapter: str) -> None:
    text = (TUTORIAL / f"{chapter}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[-1] == "Exercise"
    before, _ = solution_of(chapter)
    assert before[-1].body.startswith("def check(")
    hidden = [block.body for block in before if 'source="above"' not in block.info]
    assert len(hidden) == (chapter not in ("difference", "notes", "training"))
    assert all([body.startswith("import runpy\n") and "exec(code)\nprint(" in body for body in hidden])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_solution_is_right(chapter: str) -> None:
    names, printed_before = up_to_the_exercise(chapter)
    _, solution = solution_of(chapter)
    printed = execute(TUTORIAL / f"{chapter}.md", solution, names)
    assert printed.splitlines()[0] == "right"
    if chapter == "training":  # with both optimisers; guessing would be right for one digit in ten
        shares = re.findall(r"^epoch 20 .* ([\d.]+)%$", printed_before + printed, re.MULTILINE)
        assert len(shares) == 2
        assert min(map(float, shares)) > 96


WRONG = [
    ("difference", "h=1e-4", "h=1e-6"),
    ("difference", "2 * f(x)", "f(x)"),
    ("notes", "x.grad +=", "x.grad ="),
    ("notes", "(n - 1)", "n"),
    ("notes", "* out.grad", ""),
    ("notes", '(x,), "power"', '(x, Value(n)), "power"'),
    ("backwards", "value.grad = 0.0", "pass"),
    ("backwards", "value.grad = 0.0", "value.grad = 0.0 if value._children else value.grad"),
    ("backwards", "value.grad = 0.0", "value.grad = value.grad if value._children else 0.0"),
    ("arrays", "unbroadcast(out.grad / y.data, x.data.shape)", "out.grad / y.data"),
    ("arrays", "unbroadcast(-out.grad * x.data / y.data**2, y.data.shape)", "-out.grad * x.data / y.data**2"),
    ("arrays", "-out.grad", "out.grad"),
    ("arrays", "y.grad +=", "y.grad ="),
    ("arrays", "x.data / y.data, (", "y.data / x.data, ("),
    ("matrix-product", "unbroadcast(out.grad, b.data.shape)", "out.grad"),
    ("matrix-product", "unbroadcast(out.grad, b.data.shape)", "out.grad[0]"),
    ("matrix-product", "x.data.T", "-x.data.T"),
    ("matrix-product", "(x, w, b), ", "(x, w), "),
    ("matrix-product", "w.grad +=", "w.grad ="),
    ("object-style", "x.grad +=", "x.grad ="),
    ("object-style", "out.data**2", "out.data"),
    ("object-style", "type(x)(np.tanh(x.data)", "type(x)(np.sin(x.data)"),
    ("grad", "result.data", "result"),
    ("grad", "value.grad for", "value.data for"),
    ("grad", "result.backward()", "result.backward(), result.backward()"),
    ("rules", "-x / (y * y)", "x / (y * y)"),
    ("rules", "1.0 / x]", "1.0]"),
    ("rules", "1.0 / x]", "float(1.0 / getattr(x, 'value', x))]"),
    ("rules", "RULES[np.log]", "RULES[np.log1p]"),
    ("forward", "value / slope", "slope / value"),
    ("forward", "range(steps)", "range(steps + 1)"),
    ("forward", "value, slope = jvp(f, x, 1.0)", "value, slope = f(x), jvp(f, x, 1.0)[1]"),
    ("vmap", "columns.T", "columns"),
    ("vmap", "np.eye(len(x))", "2 * np.eye(len(x))"),
    (
        "vmap",
        "vmap(lambda direction: jvp(f, x, direction)[1])(np.eye(len(x)))",
        "np.stack([jvp(f, x, direction)[1] for direction in np.eye(len(x))])",
    ),
    ("training", "t = t + 1", "t = t + 2"),
    ("training", "t = t + 1", "t = max(t, 1)"),
    ("training", "0.9 * m[name] + 0.1", "0.1 * m[name] + 0.9"),
    ("training", "slopes[name] ** 2", "np.abs(slopes[name])"),
    ("training", "weights[name] - rate", "weights[name] + rate"),
    ("training", "(1 - 0.9**t)", "1"),
    ("training", "(1 - 0.999**t)", "1"),
    ("training", "return new_weights, (m, s, t)", "return new_weights, memory"),
]


@pytest.mark.parametrize(("chapter", "old", "new"), WRONG)
def test_the_check_refuses_a_wrong_solution(chapter: str, old: str, new: str) -> None:
    before, solution = solution_of(chapter)
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in [*before, replace(solution, body=mutated(solution.body, old, new))]:
        quick = replace(block, body=block.body.replace("epochs=20", "epochs=1"))
        printed = execute(TUTORIAL / f"{chapter}.md", quick, names)
    assert printed.startswith("not yet")


def test_every_exercise_has_wrong_solutions() -> None:
    assert {chapter for chapter, _, _ in WRONG} == set(CHAPTERS)


def test_the_differences_of_the_course_are_right() -> None:
    differences = run(kept("difference")).differences
    x = np.array([[0.5, 1.0], [-2.0, 3.0]])
    np.testing.assert_allclose(differences(lambda x: np.sum(np.sin(x) * x), x), np.cos(x) * x + np.sin(x), atol=1e-8)
    np.testing.assert_allclose(differences(np.exp, 0.0), 1.0, atol=1e-9)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_code_fits_on_the_page(chapter: str) -> None:
    """At the width of a desktop, so that all that the reader types can be seen."""
    blocks = blocks_of(TUTORIAL / f"{chapter}.md")
    assert [line for block in blocks for line in block.body.splitlines() if len(line) > 81] == []


def test_the_core_class_has_about_forty_lines() -> None:
    (value,) = re.findall(r"^class Value:\n(?:(?: .*)?\n)*", kept("arrays"), re.MULTILINE)
    lines = [line for line in (value + kept("matrix-product")).splitlines() if line]
    assert 36 <= len(lines) <= 44


# ---------------------------------------------------------------- objects


@functools.cache
def chapter_three() -> Any:
    """Return the class of numbers of chapter 2, with the walk of chapter 3 as its method."""
    names, _ = up_to_the_exercise("backwards")
    names["Value"].backward = names["backward"]
    return names["Value"]


def slope_of(f: Callable[..., Any], kind: Any, arrays: list[Any], k: int) -> Any:
    """Return the central differences of the sum of f with respect to array k."""
    array = np.array(arrays[k], dtype=float)
    slopes = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * 1e-6
            ends.append(np.sum(f(*[kind(a) for a in [*arrays[:k], moved, *arrays[k + 1 :]]]).data))
        slopes[place] = (ends[0] - ends[1]) / 2e-6
    return slopes


def agrees(f: Callable[..., Any], kind: Any, *arrays: Any) -> list[Any]:
    """Hold the gradient of each input against differences, and return the gradients."""
    inputs = [kind(array) for array in arrays]
    f(*inputs).backward()
    for k, x in enumerate(inputs):
        assert np.shape(x.grad) == np.shape(arrays[k])
        np.testing.assert_allclose(x.grad, slope_of(f, kind, list(arrays), k), rtol=1e-6, atol=1e-6)
    return [x.grad for x in inputs]


def check_x_times_x_plus_x(kind: Any) -> None:
    x = kind(3.0)
    y = x * x + x
    y.backward()
    assert y.data == 12.0
    assert x.grad == 7.0
    assert y.grad == 1.0


def check_values_used_twice(kind: Any) -> None:
    for make, slope in [
        (lambda b: b + b, 4.0),
        (lambda b: b + (b + b), 6.0),
        (lambda b: (b + b) + b, 6.0),
        (lambda b: b * b, 8.0),
        (lambda b: (b * b) * b + b, 26.0),
    ]:
        a = kind(1.0)
        make(a + a).backward()
        assert a.grad == slope


def check_the_grads_in_the_middle(kind: Any) -> None:
    a, b = kind(2.0), kind(3.0)
    s = a + b
    y = s * b
    y.backward()
    assert (a.grad, b.grad, s.grad, y.grad) == (3.0, 8.0, 3.0, 1.0)


def check_the_notes(kind: Any) -> None:
    a, b = kind(2.0), kind(3.0)
    assert tuple(a._children) == ()
    assert a._op == ""
    assert a.grad == 0.0
    for out, op in [(a + b, "+"), (b * a, "*")]:
        assert out._op == op
        assert set(out._children) == {a, b}
        out.grad = np.array(1.0)
        out._backward()
    assert (a.grad, b.grad) == (4.0, 3.0)


def check_two_results_share_their_inputs(kind: Any) -> None:
    x = kind(3.0)
    (x * x).backward()
    (x * x * x).backward()
    assert x.grad == 6.0 + 27.0


def check_a_long_program(kind: Any) -> None:
    x = kind(1.0)
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward()
    assert x.grad == 20_001.0


def check_an_own_operation(kind: Any) -> None:
    def power(x: Any, n: int) -> Any:
        out = type(x)(x.data**n, (x,), "power")

        def _backward() -> None:
            x.grad += n * x.data ** (n - 1) * out.grad

        out._backward = _backward
        return out

    agrees(lambda x: power(x * x, 3) * x + power(x, 2), kind, 1.5)


def check_shapes_that_are_stretched(kind: Any) -> None:
    rng = np.random.default_rng(5)
    shapes = [(4, 3), (3,), (4, 1), (1, 3), (1, 1), (1,), (), (2, 4, 3), (2, 1, 1)]
    for left in shapes:
        for right in shapes:
            agrees(lambda x, y: (x + y) * x + x * y, kind, rng.normal(size=left), rng.normal(size=right))


def check_sums_and_plain_numbers(kind: Any) -> None:
    x = kind([[1.0, 2.0], [3.0, 4.0]])
    y = (x * 2.0 + np.array([1.0, -1.0])).sum() * x
    y.backward()
    np.testing.assert_array_equal(x.grad, np.full((2, 2), 20.0 + 2 * 10.0))
    agrees(lambda x: (x * x.sum()).sum(), kind, np.array([1.0, 2.0, 3.0]))


def check_the_matrix_product(kind: Any) -> None:
    rng = np.random.default_rng(6)
    for n, k, m in [(4, 3, 2), (1, 3, 1), (3, 3, 3)]:
        x, w = rng.normal(size=(n, k)), rng.normal(size=(k, m))
        agrees(lambda x, w: (x @ w) * (x @ w), kind, x, w)
    square = rng.normal(size=(3, 3))
    agrees(lambda x: x @ x @ x, kind, square)
    assert (kind(square) @ kind(square))._op == "@"


def random_program(seed: int) -> tuple[Callable[..., Any], list[Any]]:
    """Return a program of twelve operations that uses values again and again, and its inputs."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, size=shape) for shape in [(3, 3), (3, 3), (3,), (3, 1), (1, 3), ()]]
    shapes = [array.shape for array in arrays]
    steps = []
    for _ in range(12):
        i, j = rng.integers(len(shapes), size=2)
        fits = len(shapes[i]) == len(shapes[j]) == 2 and shapes[i][1] == shapes[j][0]
        op = rng.choice(["+", "*", "@"] if fits else ["+", "*"])
        steps.append((op, int(i), int(j)))
        shapes.append((shapes[i][0], shapes[j][1]) if op == "@" else np.broadcast_shapes(shapes[i], shapes[j]))

    def program(*inputs: Any) -> Any:
        values = list(inputs)
        for op, i, j in steps:
            x, y = values[i], values[j]
            values.append(x + y if op == "+" else x * y if op == "*" else x @ y)
        return functools.reduce(lambda total, value: total + value.sum(), values[1:], values[0].sum())

    return program, arrays


def check_random_programs(kind: Any) -> None:
    for seed in range(10):
        program, arrays = random_program(seed)
        grads = agrees(program, kind, *arrays)
        assert any([np.abs(grad - 1).max() > 0.1 for grad in grads])  # not sums alone


NUMBER_CHECKS = [
    check_x_times_x_plus_x,
    check_values_used_twice,
    check_the_grads_in_the_middle,
    check_the_notes,
    check_two_results_share_their_inputs,
    check_a_long_program,
    check_an_own_operation,
]
ARRAY_CHECKS = [
    check_shapes_that_are_stretched,
    check_sums_and_plain_numbers,
    check_the_matrix_product,
    check_random_programs,
]
CLASSES = {"chapter 3": chapter_three, "chapter 5": lambda: run(ARRAY_STYLE).Value, "Tensor": lambda: Tensor}


@pytest.mark.parametrize("check", NUMBER_CHECKS)
@pytest.mark.parametrize("kind", CLASSES)
def test_numbers(kind: str, check: Callable[[Any], None]) -> None:
    check(CLASSES[kind]())


@pytest.mark.parametrize("check", ARRAY_CHECKS)
@pytest.mark.parametrize("kind", ["chapter 5", "Tensor"])
def test_arrays(kind: str, check: Callable[[Any], None]) -> None:
    check(CLASSES[kind]())


@pytest.mark.parametrize("seed", range(10, 20))
def test_the_learners_gradients_are_those_of_the_library(seed: int) -> None:
    program, arrays = random_program(seed)
    grads = []
    for kind in (run(ARRAY_STYLE).Value, Tensor):
        inputs = [kind(array) for array in arrays]
        program(*inputs).backward()
        grads.append([x.grad for x in inputs])
    for learners, librarys in zip(*grads, strict=True):
        np.testing.assert_allclose(learners, librarys, rtol=1e-12, atol=1e-12)


def test_the_learners_network_learns_like_the_librarys() -> None:
    names, _ = up_to_the_exercise("object-style")
    printed = []
    for kind in (names["Value"], Tensor):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            answers = names["teach"](kind, rounds=200)
        np.testing.assert_allclose(answers, [0, 1, 1, 0], atol=0.05)
        printed.append(out.getvalue())
    assert printed[0] == printed[1]


def one_fails(checks: list[Callable[[Any], None]], subject: Any) -> bool:
    for check in checks:
        try:
            check(subject)
        except FAILURES:
            return True
    return False


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.grad += unbroadcast(out.grad", "self.grad = unbroadcast(out.grad"),
        ("other.grad += unbroadcast(self", "other.grad = unbroadcast(self"),
        ("self.grad += out.grad @", "self.grad = out.grad @"),
        ("unbroadcast(other.data * out.grad, self.data.shape)", "other.data * out.grad"),
        ("other.grad += self.data.T @ out.grad", "other.grad += (out.grad.T @ self.data).T * 1.001"),
        ("other.data.T", "other.data"),
        ("np.ones_like(self.data) * out.grad", "np.ones_like(self.data)"),
        ("for value in reversed(in_order(self))", "for value in in_order(self)"),
        ("if length == 1:", "if length == 2:"),
        ("while grad.ndim > len(shape)", "if grad.ndim > len(shape)"),
        ("waiting.append((value, True))", "order.append(value)"),
        ("elif value not in seen", "else"),
        ("(self, other), \"*\"", "(self,), \"*\""),
        ("self.grad = np.ones_like(self.data)", "self.grad = 2 * np.ones_like(self.data)"),
        ("self.data + other.data", "self.data - other.data"),
    ],
)  # fmt: skip
def test_the_checks_notice_a_broken_class(old: str, new: str) -> None:
    assert one_fails(NUMBER_CHECKS + ARRAY_CHECKS, run(mutated(ARRAY_STYLE, old, new)).Value)


# ---------------------------------------------------------------- transforms

LIBRARY = SimpleNamespace(
    grad=func.grad,
    jvp=lambda f, x, tangent: func.jvp(f, (x,), (tangent,)),
    vmap=func.vmap,
)
X = np.array([0.3, -1.2, 2.0])
V = np.array([1.0, 0.5, -2.0])
BATCH = np.array([[0.3, -1.2, 2.0], [1.0, 0.1, -0.4], [0.0, 2.0, 1.0], [-1.0, -0.2, 0.7]])


def energy(x: Any) -> Any:
    """A function of an array to a number, with all operations of the learner's table."""
    return (np.sin(x) * x - np.tanh(x + 0.5)).sum() * np.cos(x.sum()) + (np.exp(-x) * 0.1).sum()


def spread(x: Any) -> Any:
    """A function of an array to an array."""
    return np.sin(x) * (x * x).sum() - x.sum()


def moved(f: Callable[[Any], Any], x: Any, v: Any, h: float = 1e-6) -> Any:
    return (f(x + h * v) - f(x - h * v)) / (2 * h)


def close(a: Any, b: Any) -> None:
    assert np.shape(a) == np.shape(b)
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def check_grad(own: Any) -> None:
    close(own.grad(energy)(X), [moved(energy, X, e) for e in np.eye(3)])
    close(own.grad(lambda x: x * x + x)(3.0), 7.0)
    for ufunc in (np.negative, np.exp, np.sin, np.cos, np.tanh):
        close(own.grad(ufunc)(0.7), moved(ufunc, 0.7, 1.0))
    for f in (lambda x: x - 2.0 * x * x, lambda x: 2.0 - x, lambda x: -x + (1.0 + x)):
        close(own.grad(f)(0.7), moved(f, 0.7, 1.0))


def check_a_number_meets_an_array(own: Any) -> None:
    f = lambda a: (a * X - np.sin(X + a)).sum() + a * a  # noqa: E731
    close(own.grad(f)(0.7), moved(f, 0.7, 1.0))
    close(own.jvp(lambda a: X + a, 0.7, 2.0)[1], np.full(3, 2.0))
    close(own.jvp(lambda a: (X + a).sum(), 0.7, 2.0)[1], 6.0)


def check_no_influence(own: Any) -> None:
    close(own.grad(lambda x: (X * X).sum())(X), np.zeros(3))
    close(own.grad(lambda x: own.grad(lambda y: x * x)(1.0))(2.0), 0.0)
    value, tangent = own.jvp(lambda x: X, X, V)
    close(value, X)
    close(tangent, np.zeros(3))
    close(own.vmap(lambda x: X.sum())(BATCH), np.full(4, X.sum()))


def check_higher_orders(own: Any) -> None:
    f = np.sin
    for right in (np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7)):
        f = own.grad(f)
        close(f(0.7), right)
    close(own.grad(lambda x: (own.grad(energy)(x) * V).sum())(X), moved(own.grad(energy), X, V))


def check_the_levels_are_kept_apart(own: Any) -> None:
    assert own.grad(lambda x: x * own.grad(lambda y: x + y)(2.0))(3.0) == 1.0
    assert own.grad(lambda x: x * own.grad(lambda y: x * y)(2.0))(3.0) == 6.0
    assert own.jvp(lambda x: x * own.jvp(lambda y: x + y, 2.0, 1.0)[1], 3.0, 1.0)[1] == 1.0
    assert own.grad(lambda x: x * own.jvp(lambda y: x + y, 2.0, 1.0)[1])(3.0) == 1.0
    assert own.jvp(lambda x: x * own.grad(lambda y: x + y)(2.0), 3.0, 1.0)[1] == 1.0


def check_jvp(own: Any) -> None:
    value, tangent = own.jvp(spread, X, V)
    np.testing.assert_array_equal(value, spread(X))
    close(tangent, moved(spread, X, V))
    close(own.jvp(energy, X, V)[1], (own.grad(energy)(X) * V).sum())


def check_forward_and_reverse_together(own: Any) -> None:
    right = moved(own.grad(energy), X, V)
    close(own.jvp(own.grad(energy), X, V)[1], right)
    close(own.grad(lambda x: own.jvp(energy, x, V)[1])(X), right)
    close(own.jvp(lambda x: own.jvp(energy, x, V)[1], X, V)[1], (right * V).sum())


def check_vmap(own: Any) -> None:
    for f in (energy, spread, lambda x: x.sum() * x + X, lambda x: X * x.sum(), lambda x: x):
        close(own.vmap(f)(BATCH), np.stack([f(x) for x in BATCH]))
    close(own.vmap(lambda a: a * X)(BATCH[:, 0]), np.outer(BATCH[:, 0], X))


def check_vmap_of_derivatives(own: Any) -> None:
    close(own.vmap(own.grad(energy))(BATCH), np.stack([own.grad(energy)(x) for x in BATCH]))
    close(own.vmap(lambda x: own.jvp(spread, x, V)[1])(BATCH), np.stack([moved(spread, x, V) for x in BATCH]))
    twice = lambda x: own.jvp(own.grad(energy), x, V)[1]  # noqa: E731
    close(own.vmap(twice)(BATCH), np.stack([twice(x) for x in BATCH]))
    close(own.vmap(lambda v: own.jvp(spread, X, v)[1])(np.eye(3)), np.stack([moved(spread, X, e) for e in np.eye(3)]))


def check_a_vmap_over_a_captured_value(own: Any) -> None:
    f = lambda w: own.vmap(lambda a: np.sin(a * w))(X).sum()  # noqa: E731
    close(own.grad(f)(0.7), moved(f, 0.7, 1.0))
    close(own.jvp(f, 0.7, 1.0)[1], moved(f, 0.7, 1.0))


def check_what_is_refused(own: Any) -> None:
    with pytest.raises(TypeError, match="at once"):
        own.vmap(lambda x: x if x > 0 else -x)(X)
    with pytest.raises(TypeError):
        own.grad(np.sin)(X)
    with pytest.raises((KeyError, TypeError)):
        own.grad(lambda x: np.multiply.outer(x, object()).sum())(X)


TRANSFORM_CHECKS = [
    check_grad,
    check_a_number_meets_an_array,
    check_no_influence,
    check_higher_orders,
    check_the_levels_are_kept_apart,
    check_jvp,
    check_forward_and_reverse_together,
    check_vmap,
    check_vmap_of_derivatives,
    check_a_vmap_over_a_captured_value,
    check_what_is_refused,
]


@pytest.mark.parametrize("check", TRANSFORM_CHECKS)
@pytest.mark.parametrize("whose", ["the learner's", "meintorch.func"])
def test_transforms(whose: str, check: Callable[[Any], None]) -> None:
    check(LIBRARY if whose == "meintorch.func" else run(FUNCTIONAL))


@pytest.mark.parametrize("point", BATCH.tolist())
def test_the_learners_transforms_return_what_the_librarys_return(point: list[float]) -> None:
    own, x = run(FUNCTIONAL), np.array(point)
    hessian = [lib.vmap(lambda v: lib.jvp(lib.grad(energy), x, v)[1])(np.eye(3)) for lib in (own, LIBRARY)]  # noqa: B023
    np.testing.assert_allclose(own.grad(energy)(x), func.grad(energy)(x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(*hessian, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(hessian[0], func.hessian(energy)(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("operation", [lambda x: x.sum(axis=0), np.arctan, lambda x: x @ x])
def test_what_the_learners_transforms_do_not_know_is_an_error(operation: Callable[[Any], Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        run(FUNCTIONAL).grad(operation)(X)


def test_the_learners_grad_refuses_a_stretched_array() -> None:
    table = np.ones((2, 3))
    with pytest.raises(TypeError, match="chapter 4"):
        run(FUNCTIONAL).grad(lambda x: (x * table).sum())(X)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[lambda x: np.cos(x)]", "[lambda x: 1.001 * np.cos(x)]"),
        ("[lambda x: -np.sin(x)]", "[lambda x: np.sin(x)]"),
        ("[lambda x: np.exp(x)]", "[lambda x: 1.0]"),
        ("1.0 - np.tanh(x) * np.tanh(x)", "1.0 + np.tanh(x) * np.tanh(x)"),
        ("[lambda x: -1.0]", "[lambda x: 1.0]"),
        ("lambda x, y: -1.0]", "lambda x, y: 1.0]"),
        ("[lambda x, y: y, lambda x, y: x]", "[lambda x, y: x, lambda x, y: y]"),
        ("reversed(range(len(tape)))", "range(len(tape))"),
        ("shares.get(source, 0.0) + share", "share"),
        ("note = [(self.place, self.shape, np.ones(self.shape))]", "note = [(self.place, self.shape, 1.0)]"),
        ("return share.sum()", "return share"),
        ("and other.level == self.level", ""),
        ("key=lambda a: a.level", "key=lambda a: -a.level"),
        ("shares.get(start.place, np.zeros(start.shape))", "shares[0]"),
        ("if start.owns(end) else {}", ""),
        ("tangent = np.zeros(np.shape(result))", "tangent = 0.0"),
        ("self.tangent.sum()", "self.tangent"),
        ("slope(*inside) * a.tangent", "a.tangent"),
        ("Dual(self.value.sum()", "Dual(1.001 * self.value.sum()"),
        ("[aligned(a.value, axes) if", "[a.value if"),
        ("all_but_the_first = tuple(range(1,", "all_but_the_first = tuple(range(0,"),
        ("np.shape(value)[1:]", "np.shape(value)"),
        ("np.stack([end] * len(batch))", "end"),
        ("def __bool__", "def is_true"),
    ],
)
def test_the_checks_notice_a_broken_transform(old: str, new: str) -> None:
    assert one_fails(TRANSFORM_CHECKS, run(mutated(FUNCTIONAL, old, new)))
