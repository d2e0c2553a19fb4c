"""Random NumPy programs that make views and write into arrays, to hold in-place assignment against NumPy itself.

A program is the source of a function ``f(x)``. It is drawn statement by statement: each one is tried in plain NumPy, and
kept if NumPy runs it and all values, and their slopes in a random direction, stay small. So every program runs, and its
derivatives are well conditioned. In "nested" programs, some statements stand in an inner function that is differentiated
while it writes into arrays of the outer one.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

KINDS = ("real", "complex", "nested", "views")  # programs of the last kind write nothing
LAYOUTS: tuple[Callable[[Array], Array], ...] = (
    np.ascontiguousarray,
    np.asfortranarray,
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    lambda x: x[::-1].copy()[::-1],
)
SHAPES = ((4,), (5,), (1,), (2, 3), (3, 3), (3, 1), (4, 2), (2, 2, 2), (2, 3, 2))
LARGEST, STEEPEST, STEP, GAP = 3.0, 30.0, 1e-4, 0.02
DROPPED = (ValueError, IndexError, TypeError, ZeroDivisionError, Warning)  # what a statement that does not fit raises


@dataclass
class Program:
    """The source of a function ``f(x)``, an input for it, and the names of the kinds of statements that it has."""

    kind: str
    seed: int
    source: str
    x: Array
    statements: list[str]

    def function(self, **names: Any) -> Callable[[Any], Any]:
        """Return the function; ``names`` are what its source knows besides NumPy."""
        namespace = {"np": np, **names}
        exec(self.source, namespace)
        return namespace["f"]

    def __str__(self) -> str:
        strides = tuple(s // self.x.itemsize for s in self.x.strides)
        return f"# {self.kind} {self.seed}: x has shape {self.x.shape} and strides {strides}\n{self.source}"


def laid_like(values: Array, model: Array) -> Array:
    """Copy values into new memory that is laid out as the model's is: the same axes contiguous, apart or reversed."""
    strides = [s // model.itemsize * values.itemsize for s in model.strides]
    ends = [s * (n - 1) for s, n in zip(strides, model.shape, strict=True)]
    first = -sum(e for e in ends if e < 0)
    size = first + sum(e for e in ends if e > 0) + values.itemsize
    out: Array = np.ndarray(model.shape, values.dtype, np.zeros(size, np.uint8), first, strides)
    out[...] = values
    return out


def program(seed: int, *, kind: str = "real") -> Program:
    """Draw a program; the same seed and kind always give the same one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a statement at which NumPy warns is dropped
        return Writer(seed, kind).program()


class Writer:
    """Draws statements, tries them, and keeps what NumPy runs."""

    def __init__(self, seed: int, kind: str) -> None:
        self.seed, self.kind, self.rng = seed, kind, random.Random(f"{kind} {seed}")
        self.lines: list[str] = []  # the source
        self.codes: list[Any] = []  # what runs in its place: the same, but for inner functions
        self.names: list[str] = []
        self.counter = itertools.count()
        self.hidden: set[str] = set()  # variables of inner functions
        self.shape = self.rng.choice(SHAPES)
        self.x = LAYOUTS[self.rng.randrange(len(LAYOUTS))](self.numbers())
        self.probes = [self.x, laid_like(self.x + STEP * self.numbers(), self.x)]
        self.env = self.run([])[0]

    def numbers(self) -> Array:
        values = np.array([self.rng.uniform(-1.2, 1.2) for _ in range(int(np.prod(self.shape)))])
        if self.kind == "complex":
            values = values + 1j * np.array([self.rng.uniform(-1.0, 1.0) for _ in values])
        return values.reshape(self.shape)

    def program(self) -> Program:
        self.draw(self.rng.randint(3, 10))
        if self.kind == "nested":
            while not self.draw_inner():
                pass
            self.draw(self.rng.randint(1, 3))
        out = self.rng.choice([self.total(), self.total(), self.any(), f"{self.any()} + 0.3 * ({self.total()})"])
        source = "def f(x):\n" + indent("\n".join([*self.lines, f"return {out}"]), "    ")
        return Program(self.kind, self.seed, source, self.x, self.names)

    # ------------------------------------------------------------ trying

    def run(self, codes: list[Any]) -> list[dict[str, Any]]:
        """Run code on the input and on one close by, and return the variables of both runs."""
        results = []
        for x in self.probes:
            env = {"np": np, "duplicate": lambda a: laid_like(a, a) if isinstance(a, np.ndarray) else a}
            env["x"] = laid_like(x, x)
            for code in codes:
                exec(code, env)
            results.append({n: v for n, v in env.items() if isinstance(v, (np.ndarray, np.inexact)) and v.size})
        return results

    def keep(self, line: str, code: str | None = None) -> bool:
        """Append a statement if it can be run and all values stay small."""
        codes = [*self.codes, compile(line if code is None else code, "<statement>", "exec")]
        try:
            env, close = self.run(codes)
        except DROPPED:
            return False
        for name, value in env.items():
            other = close.get(name)
            if np.shape(value) != np.shape(other) or not np.all(np.abs(value) <= LARGEST):
                return False
            if not np.all(np.abs(value - other) <= STEEPEST * STEP):
                return False
        self.lines.append(line)
        self.codes, self.env = codes, {n: v for n, v in env.items() if n not in self.hidden}
        return True

    def draw(self, count: int) -> None:
        """Draw statements until so many are kept."""
        kinds = [k for k in STATEMENTS if self.kind != "views" or k in QUIET]
        kinds = [k for k in kinds if self.kind == "complex" or "imag" not in k]
        for _ in range(100 * count):
            kind = self.rng.choices(kinds, [STATEMENTS[k][0] for k in kinds])[0]
            try:
                line = Parts(self).fill(self.rng.choice(STATEMENTS[kind][1]))
            except DROPPED:
                continue
            if kind not in QUIET and self.rng.random() < 0.05:
                line = f"for _ in range(2):\n{indent(line, '    ')}"
            if self.keep(line):
                self.names.append(kind)
                count -= 1
            if not count:
                return

    def draw_inner(self) -> bool:
        """Draw an inner function of ``y``, and its derivative; while it is drawn, its body stands in the outer one."""
        state = self.lines, self.codes, self.names, self.env
        constant = f"np.array({np.round(self.numbers(), 2).tolist()})"
        argument = self.rng.choice([self.any(), self.target(), "np.float64(0.6)", constant])
        y = self.evaluate(argument)
        if isinstance(y, np.ndarray) and not y.flags.writeable:
            return False
        tangent = self.value(y.shape, exact=True)
        self.lines, self.names = [], [*self.names]
        self.keep(f"y = duplicate({argument})")
        self.draw(self.rng.randint(2, 4))
        result, g, p = self.total(must="y"), self.new(), self.new()
        call, code = self.rng.choice(
            [
                (f"{g} = 0.1 * grad(inner)({argument})", f"{g} = 0.1 * y"),
                (f"{p}, {g} = value_and_grad(inner)({argument})\n{g} = 0.1 * {g}", f"{p} = {result}\n{g} = 0.1 * y"),
                (f"{p}, {g} = jvp(inner, ({argument},), ({tangent},))\n{g} = 0.1 * {g}", f"{p} = {g} = {result}"),
            ]
        )
        self.hidden |= set(self.env) - set(state[-1])
        body, self.lines = "\n".join([*self.lines[1:], f"return {result}"]), [*state[0]]
        kept = self.keep(f"def inner(y):\n{indent(body, '    ')}\n{call}", code)
        if not kept:
            self.lines, self.codes, self.names, self.env = state
        return kept

    # ------------------------------------------------------------ parts of statements

    def new(self) -> str:
        """Return the name of a new variable."""
        return f"v{next(self.counter)}"

    def pick(self, names: list[str]) -> str:
        """Return one of several names; recent ones, and an inner function's argument, more often."""
        return self.rng.choices(names, [3 * len(names) if n == "y" else k + 2 for k, n in enumerate(names)])[0]

    def any(self) -> str:
        return self.pick(list(self.env))

    def array(self) -> str:
        return self.pick([n for n, v in self.env.items() if np.ndim(v)])

    def target(self) -> str:
        """Return the name of an array that may be written to."""
        return self.pick([n for n, v in self.env.items() if isinstance(v, np.ndarray) and v.flags.writeable])

    def evaluate(self, text: str) -> Any:
        return eval(text, {"np": np, **self.env})

    def positions(self, shape: int | tuple[int, ...], n: int) -> Any:
        """Return (nested lists of) positions of an axis of length n; some repeat, some count from the end."""
        return np.reshape([self.rng.randrange(-n, n) for _ in range(int(np.prod(shape)))], shape).tolist()

    def index(self, shape: tuple[int, ...], *, arrays: bool) -> str:
        """Return the text of an index: slices, integers, new axes, an ellipsis, and where allowed lists and masks."""
        rng, parts, count = self.rng, [], self.rng.randint(1, 3)
        if not shape:
            return rng.choice(["...", "()"])
        if arrays and rng.random() < 0.2:
            return self.constant(shape)
        for n in shape:
            kind = rng.random()
            if arrays and kind < 0.3:
                parts.append(str(self.positions(count, n)))
            elif kind < 0.5:
                parts.append(str(rng.randrange(-n, n)))
            else:
                parts.append(rng.choice([":", "::-1", "1:", ":-1", "::2", "-2:", "1::2", ":2", "-2::-1", "2:2"]))
            if rng.random() < 0.07:
                parts.insert(rng.randrange(len(parts) + 1), "None")
        if rng.random() < 0.2:
            parts[rng.choice([0, -1])] = "..."
        elif len(parts) > 1 and rng.random() < 0.2:
            parts.pop()
        return ", ".join(parts)

    def constant(self, shape: tuple[int, ...]) -> str:
        """Return the text of a constant mask."""
        return str((np.array(self.positions(shape, 2)) >= 0).tolist())

    def condition(self, name: str) -> str:
        """Return the text of a condition on the values of an array, none of which is close to its threshold."""
        threshold = round(self.rng.uniform(-0.5, 0.5), 2)
        if np.any(np.abs(np.real(self.env[name]) - threshold) < GAP):
            raise ValueError(name)
        return f"{name}{'.real' * (self.kind == 'complex')} > {threshold}"

    def value(self, shape: tuple[int, ...], *, exact: bool = False, fresh: bool = False) -> str:
        """Return the text of an expression that fits a shape (exactly), and shares no memory (fresh)."""
        rng, smallest = self.rng, min(v.size for v in self.env.values())
        options = [f"np.take({self.any()}, {self.positions(shape, smallest)})"]
        if not exact or not shape:
            options += [str(rng.choice([0.4, -0.7, 1.0])), f"0.2 * np.sum({self.any()})"]
        scalars = [n for n, v in self.env.items() if np.shape(v) == () and not (exact and shape)]
        fitting = [n for n, v in self.env.items() if v.shape == shape or (not exact and fits(v.shape, shape))]
        for names in (scalars, fitting, fitting):
            if names:
                a, b = self.pick(names), self.pick(names)
                options += [f"0.9 * {a}" if fresh else a, f"np.sin({a})", f"{a} * {b}", f"0.5 * {a} - {b}"]
        if not (fresh or exact) and fitting and rng.random() < 0.05:
            return f"{rng.choice(fitting)}[None]"  # NumPy drops leading axes of length one
        return rng.choice(options)

    def total(self, must: str = "") -> str:
        """Return the text of a scalar that depends on several variables."""
        names = [n for n in self.env if n != must]
        names = [must] * bool(must) + self.rng.sample(names, min(len(names), self.rng.randint(2, 6)))
        forms = ("np.sum({})", "np.sum({0} * {0})", "np.sin(np.sum({}))", "np.sum(np.sin({}))", "np.mean({})")
        return " + ".join(f"{self.rng.uniform(0.3, 1.0):.2f} * {self.rng.choice(forms).format(n)}" for n in names)


def fits(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Say whether an array of the small shape can be assigned to one of the other."""
    return len(small) <= len(shape) and all(m in {1, n} for m, n in zip(small[::-1], shape[::-1], strict=False))


# ---------------------------------------------------------------- statements


class Parts(dict[str, Any]):
    """What the fields of a template stand for: each is drawn when it is first met, and then stays the same."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def __missing__(self, field: str) -> Any:
        self[field] = value = PARTS[field](self.w, self)
        return value

    def fill(self, template: str) -> str:
        if "{t}" in template:
            self["t"] = self.w.target()
        return template.format_map(self)

    def main(self) -> Any:
        """Return the array that the statement is about: the target if there is one."""
        return self.w.env[self["t"] if "t" in self else self["a"]]


def values(w: Writer, p: Parts, shape: tuple[int, ...]) -> str:
    """Return the text of values for an assignment; divisors are not small."""
    value = w.value(shape)
    return f"(1.5 + ({value}) ** 2)" if p.get("op") == "/=" else value


def reshaped(w: Writer, p: Parts) -> Any:
    n = p.main().size
    return w.rng.choice([s for s in [(n,), (1, n), (n, 1), (n // 2, 2), (2, n // 2)] if np.prod(s) == n])


def sortable(w: Writer, p: Parts) -> int:
    """Return an axis along which all entries differ: the order of equal ones is the algorithm's to choose."""
    if np.any(np.diff(np.sort(np.real(p.main()), p["axis"]), axis=p["axis"]) < GAP):
        raise ValueError(p)
    return int(p["axis"])


def shape_along(w: Writer, p: Parts) -> tuple[int, ...]:
    shape, axis = p.main().shape, p["axis"] % p.main().ndim
    return (*shape[:axis], min(2, shape[axis]), *shape[axis + 1 :])


def index_at(w: Writer, p: Parts) -> str:
    axis = p["axis"] % p.main().ndim
    positions = str(w.positions(w.rng.randint(1, 5), p.main().shape[axis]))
    return f"({'slice(None), ' * axis}{positions})" if axis else positions


PARTS: dict[str, Callable[[Writer, Parts], Any]] = {
    "new": lambda w, p: w.new(),
    "a": lambda w, p: w.array(),
    "b": lambda w, p: w.any(),
    "t": lambda w, p: w.target(),
    "op": lambda w, p: w.rng.choice(["=", "=", "=", "+=", "-=", "*=", "/="]),
    "aug": lambda w, p: w.rng.choice(["+=", "-=", "*="]),
    "part": lambda w, p: w.rng.choice(["real", "imag"]),
    "axis": lambda w, p: w.rng.randrange(-p.main().ndim, p.main().ndim),
    "order": lambda w, p: tuple(w.rng.sample(range(p.main().ndim), p.main().ndim)),
    "shape": reshaped,
    "wide": lambda w, p: (2, *p.main().shape),
    "basic": lambda w, p: w.index(p.main().shape, arrays=False),
    "advanced": lambda w, p: w.index(p.main().shape, arrays=True),
    "scalar": lambda w, p: ", ".join(str(w.rng.randrange(-n, n)) for n in p.main().shape),
    "view": lambda w, p: w.rng.choice(VIEWS).format_map(p),
    "place": lambda w, p: f"{p['t']}[{w.index(p.main().shape, arrays=w.rng.random() < 0.5)}]",
    "through": lambda w, p: f"{p['view']}[...]",
    "there": lambda w, p: values(w, p, np.shape(w.evaluate(p.get("place") or p["through"]))),
    "value": lambda w, p: values(w, p, p.main().shape),
    "exact": lambda w, p: w.value(p.main().shape, exact=True),
    "one": lambda w, p: w.value((), exact=True),
    "few": lambda w, p: w.value((2,), exact=True),
    "diagonal": lambda w, p: w.value((min(p.main().shape),), exact=True, fresh=True),
    "flat": lambda w, p: w.positions(w.rng.randint(1, 4), p.main().size),
    "each": lambda w, p: w.value((len(p["flat"]),), exact=True, fresh=True),
    "mask": lambda w, p: w.rng.choice([w.constant(p.main().shape), w.condition(p["t"])]),
    "condition": lambda w, p: w.condition(w.rng.choice([p["t"], w.array()])),
    "along": lambda w, p: w.positions(shape_along(w, p), p.main().shape[p["axis"]]),
    "those": lambda w, p: w.value(shape_along(w, p)),
    "at": index_at,
    "added": lambda w, p: w.value(np.shape(w.evaluate(f"{p['t']}[{p['at']}]"))),
    "sortable": sortable,
    "count": lambda w, p: min([*p.main().shape, *w.env[p["a"]].shape]),
}
VIEWS = [
    *5 * ["{a}[{basic}]"], "{a}[..., None]", "{a}.T", "np.transpose({a}, {order})", "{a}.reshape({shape})",
    "np.reshape({a}, {shape})", "{a}.ravel()", "np.ravel({a})", "{a}.diagonal(0, 0, 1)", "np.diagonal({a}, -1, 0, 1)",
    "np.einsum('ii->i', {a})", "np.einsum('iij->ij', {a})", "np.flip({a}, {axis})", "{a}.swapaxes(0, {axis})",
    "np.moveaxis({a}, {axis}, 0)", "np.squeeze({a})", "np.expand_dims({a}, {axis})", "np.broadcast_to({a}, {wide})",
    "np.split({a}, 2, axis={axis})[1]", "np.array_split({a}, 2)[0]", "np.rot90({a}, axes=(0, 1))",
    "np.lib.stride_tricks.sliding_window_view({a}, 2, axis={axis})",
]  # fmt: skip
STATEMENTS: dict[str, tuple[float, list[str]]] = {  # how often, and the templates
    "view": (6, [f"{{new}} = {v}" for v in VIEWS]),
    "real or imag": (1, ["{new} = {a}.{part}"]),
    "scalar": (1, ["{new} = {a}[{scalar}]", "{new} = {a}[{scalar}, ...]"]),
    "copy": (1.5, [
        "{new} = {a}.copy()", "{new} = np.copy({a})", "{new} = {a} * 1.0", "{new} = +{a}", "{new} = {a}.flatten()",
        *3 * ["{new} = {a}[{advanced}]"], "{new} = np.roll({a}, 1)", "{new} = np.where({a} > 0.123, {a}, 0.5 * {b})",
        "{new} = np.concatenate([{a}.ravel(), {b}.ravel()])"]),
    "smooth": (1.5, [
        "{new} = np.sin({a})", "{new} = 0.5 * np.exp(0.4 * {a})", "{new} = {a} * {a}", "{new} = 1 / (5 + {a} * {a})",
        "{new} = {a} * {b}", "{new} = {a} - 0.5 * {b}", "{new} = np.cos({b}) * {a}", "{new} = {a} @ {a}.T"]),
    "reduction": (0.7, [
        "{new} = 0.5 * np.sum({a})", "{new} = np.mean({a}, axis={axis})", "{new} = 0.3 * np.cumsum({a}, axis={axis})",
        "{new} = 0.5 * {a}.sum(axis={axis}, keepdims=True)", "{new} = 0.2 * np.dot({a}.ravel(), {a}.ravel())"]),
    "buffer": (1, [
        "{new} = np.zeros_like({a})", "{new} = np.ones_like({a})", "{new} = np.full_like({a}, {one})",
        "{new} = np.empty_like({a})\n{new}[...] = {value}", "{new} = np.empty_like({a})\nnp.sin({value}, out={new})",
        "{new} = np.empty_like({a})\n{new}.fill({one})"]),
    "assign": (5, ["{place} {op} {there}"]),
    "assign through": (1.5, ["{through} {op} {there}"]),
    "assign masked": (0.7, ["{t}[{condition}] = {one}", "{t}[{condition}] {aug} {one}"]),
    "assign alias": (1.5, ["{new} = {t}\n{new} {aug} {value}", "{new} = {b}\n{new} {aug} {one}", "{new} = {t}\n{new} /= 2.5"]),
    "assign overlapping": (1, [
        "{t}[1:] = {t}[:-1]", "{t}[:-1] {aug} {t}[1:]", "{t}[...] = {t}[::-1]", "{t}[:] {op} {t}.T", "{t}[::-1] {aug} {t}",
        "np.copyto({t}[1:], {t}[:-1])", "np.multiply({t}[1:], {t}[:-1], out={t}[1:])", "{t}[..., 1:] {aug} {t}[..., :1]",
        "{t}[:] {aug} {t}[0]", "{t}[[0, -1]] {op} {t}[[-1, 0]]"]),
    "real or imag written": (0.5, ["{t}.{part} = 0.3", "{t}.{part} = ({value}).real", "{t}.{part} = ({value}).imag"]),
    "ufunc.at": (0.7, ["np.add.at({t}, {at}, {added})", "np.subtract.at({t}, {at}, {added})"]),
    "writing call": (3, [
        "{t}.fill({one})", "np.put({t}, {flat}, {each})", "{t}.put({flat}, {one})", "np.copyto({t}, {value})",
        "np.copyto({t}, {value}, where={mask})", "np.putmask({t}, {mask}, {exact})", "np.putmask({t}, {mask}, {few})",
        "np.place({t}, {mask}, {few})", "np.fill_diagonal({t}, {one})", "np.fill_diagonal({t}, {diagonal})",
        "np.put_along_axis({t}, np.array({along}), {those}, {axis})", "{t}.flat[1] = {one}", "{t}.flat[{flat}] = {each}"]),
    "sort": (0.4, ["{t}.sort({sortable})", "{t}.sort(axis={sortable})"]),
    "out=": (1, [
        "np.sin({value}, out={t})", "np.multiply({value}, {exact}, out={t})", "np.add({value}, {exact}, {t})",
        "np.subtract({t}, {value}, out={t})", "{new} = np.add({t}, {value}, out={t})"]),
    "loop": (0.7, [
        "for i in range(1, {count}):\n    {t}[i] = 0.5 * np.sin({t}[i - 1]) + 0.5 * {a}[i]",
        "for i in range({count}):\n    {t}[i] += {a}[-i - 1] * {a}[i]", "for row in {t}:\n    row *= 0.5 + {one}",
        "for i in range({count}):\n    {t}[i, ...] -= 0.5 * {a}[i]",
        "for i in range(2):\n    {t}[1:-1] += 0.1 * ({t}[2:] * {t}[:-2] - {t}[1:-1])"]),
}  # fmt: skip
QUIET = ("view", "real or imag", "scalar", "copy", "smooth", "reduction")
