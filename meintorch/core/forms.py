"""Generated functions for the forms of calls, in reverse and in forward mode.

A *form* is how a function is called: with so many arguments, of such classes, by such keywords. For each form that occurs
a second time there is a function that does what the trace's ``process`` (and `graph.pull`) does, written out for that
form: no search through the arguments, no tables of what is traced. What classes do not decide is handed to `bind`, which
defines what these functions must do. `meintorch.core.specialise` has those of elementwise operations in reverse mode,
which are faster still, and turns all this off.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

import numpy as np

from meintorch.core import large
from meintorch.core.captured import SMALL
from meintorch.core.forward import ForwardTrace, fitted, tangent_or_zeros, times
from meintorch.core.graph import SILENCE, ReverseTrace, accumulate, add_into, add_to, quiet, sole
from meintorch.core.large import binary, by_blocks, matmul, minus, plus, ufuncs, unary
from meintorch.core.primitive import (
    COMPOSITE,
    CONSTANT,
    ELEMENTWISE,
    LINEAR,
    MULTILINEAR,
    STRUCTURAL,
    Primitive,
    Recipe,
    Step,
    base_name,
    default_of,
    expression,
    find,
    needs_of,
)
from meintorch.core.shapes import dtype_of, dtypes_of, fit, shape_of, shapes_of
from meintorch.core.storage import follow, follow_view
from meintorch.core.trace import Trace, bind, caller, is_many, kept, top_trace

ndarray = np.ndarray
WARM = 32  # calls before a function is generated
AS_LONG = 16384  # entries, with which a call takes about twice as long
SEQUENCES = {tuple, list}
INFIX = {operator.add, operator.sub, operator.mul, operator.truediv}
FREE = {int, float, complex, bool, str, NoneType, slice, EllipsisType, type}


# What `graph.accumulate` does in generated code: ``h``, the contribution to one parent's cotangent, is added to what has come
# together there so far.
ARRAY = """
    {h}
    j = {p}[0]
    c = cts[j]
    if c is None:
        cts[j] = h
        nodes[j] = {p}
        owned[j] = {fresh}
    else:
        add_to(cts, owned, j, c, h)
"""


def is_free(kind: type) -> bool:
    """Tell whether what is of a class can be neither traced nor changed."""
    return kind in FREE or issubclass(kind, (np.generic, np.dtype))


def is_plain(xs: Any) -> bool:
    """Tell whether a list or tuple holds nothing but numbers, plain arrays and the like."""
    return all(
        [
            x.__class__ in FREE
            or x.__class__ is ndarray
            or (is_plain(x) if x.__class__ in SEQUENCES else is_free(x.__class__))
            for x in xs
        ]
    )


def is_known(kind: type) -> bool:
    """Tell whether a class may be part of a form; those of users would be kept alive."""
    return is_traced(kind) or kind is ndarray or kind in SEQUENCES or is_free(kind)


def is_traced(kind: type) -> bool:
    """Tell whether a class is that of values traced in reverse or in forward mode."""
    return kind is ReverseTrace.tensor or kind is ForwardTrace.tensor


def all_small(names: Sequence[str], *, arrays: bool = False) -> str:
    """Write the test that values, which are known to be ``arrays`` or may be something else, are no large arrays."""
    test = "{x}.size < LARGE" if arrays else "({x}.__class__ is not ndarray or {x}.size < LARGE)"
    return " and ".join([test.format(x=x) for x in names])


def pooled(call: str, names: Sequence[str], ufunc: Any, operands: Sequence[str] = (), *, arrays: bool = False) -> str:
    """Write a call whose result is put into memory that was used before, if one of certain operands is large."""
    if ufunc is None or not names:
        return call
    operands = operands or names
    large = f"{'binary' if len(operands) > 1 else 'unary'}(ufunc, {', '.join(operands)})"
    return f"{call} if {all_small(names, arrays=arrays)} else {large}"


class Argument(NamedTuple):
    """An argument of a form: its name in the generated code, its class, and the parameter that it is given for."""

    name: str
    kind: type
    parameter: str
    element: int  # which one, of a parameter that takes all further arguments; else -1
    keyword: bool
    several: bool  # a sequence of arrays

    @property
    def is_traced(self) -> bool:
        """Whether it is a traced value itself."""
        return is_traced(self.kind)

    @property
    def value(self) -> str:
        """The name of what is inside."""
        return f"v_{self.name}" if self.is_traced or self.several else self.name


def warming(plain: Callable[..., Any], make: Callable[[], Any], install: Callable[[Any], object]) -> Callable[..., Any]:
    """Return a function that does what ``plain`` does; when it is called often, what ``make`` returns takes its place.

    To generate a function takes as long as some dozens of plain calls, or as one of a very large array.
    """
    left = WARM

    def first(*args: Any) -> Any:
        nonlocal left
        ans = plain(*args)
        left -= 1 + max([x.size for x in (ans, *args) if is_traced(x.__class__)], default=0) // AS_LONG
        if left <= 0:
            install(make())
        return ans

    return first


class Forms(dict[Any, Any]):
    """Generated functions by form: the function, the classes of its arguments, and the names and classes of keywords.

    They take the values of the arguments, those of keywords last. None for a form that is left to the plain functions.
    """

    def __missing__(self, form: Any) -> Any:
        """Return a plain function for a form that is met the first time."""
        fun, *rest = form
        names = [x for x in rest if x.__class__ is str]
        kinds = [x for x in rest if x.__class__ is not str]
        if not all([is_known(kind) for kind in kinds]):
            if all([is_known(kind) or kind.__module__.startswith("meintorch.") for kind in kinds]):
                self[form] = None
            return None
        prim = find(fun)
        if prim is None:
            return None  # which will be an error; a function of the user's would be kept alive
        arguments = arguments_of(prim, kinds, names)
        made: Any = None
        if arguments is not None:
            made = self.plain(form, prim, arguments, len(kinds) - len(names), names)
        self[form] = made
        return made

    def plain(
        self, form: Any, prim: Primitive, arguments: list[Argument], positional: int, names: list[str]
    ) -> Callable[..., Any]:
        """Return the plain function of a form, which in time gives place to a generated one."""
        many = False

        def run(*values: Any) -> Any:
            nonlocal many
            ans = bind(prim, values[:positional], dict(zip(names, values[positional:], strict=True)))
            many = is_many(ans)
            return ans

        def make() -> Callable[..., Any] | None:
            traced = {a.kind for a in arguments}
            return (
                None if many else (ForwardForm if ForwardTrace.tensor in traced else Form)(prim, arguments).compiled()
            )

        return run if prim.kind is COMPOSITE else warming(run, make, partial(self.__setitem__, form))


forms = Forms()


def form_of(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the generated function for the form of a call, None if there is none."""
    if kwargs:
        return forms[(fun, *map(type, args), *kwargs, *map(type, kwargs.values()))]
    return forms[(fun, *map(type, args))]


def apply(prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do what `bind` does, by a generated function where there is one."""
    form = form_of(prim.fun, args, kwargs)
    return bind(prim, args, kwargs) if form is None else form(*args, *kwargs.values())


def arguments_of(prim: Primitive, kinds: list[type], names: list[str]) -> list[Argument] | None:
    """Return the arguments of a form, or None for one that is left to the plain functions."""
    if prim.kind is COMPOSITE:
        return []
    if prim.kind is STRUCTURAL or prim.kind is CONSTANT or prim.forward is not None:
        return None
    known = prim.signature.parameters
    positional = len(kinds) - len(names)
    options = {name for name, p in known.items() if p.kind is p.VAR_KEYWORD}
    if not prim.refused.isdisjoint(names) or not known.keys() >= set(names):
        return None
    if options and any([options & set(needs_of(rule)) for rule in prim.rules.values() if rule is not None]):
        return None
    if prim.variadic is None and positional > prim.accepted:
        return None
    arguments = []
    for k, kind in enumerate(kinds):
        keyword = k >= positional
        parameter, element = (names[k - positional], -1) if keyword else prim.parameter_at(k)
        several = parameter in prim.sequences and element < 0
        a = Argument(f"a{k}", kind, parameter, element, keyword, several)
        if several and kind not in SEQUENCES:
            return None
        if a.is_traced and prim.rules.get(parameter) is None:
            return None
        if kind in SEQUENCES and not several and (parameter in prim.rules or element >= 0):
            return None
        arguments.append(a)
    traced = {a.kind for a in arguments if a.is_traced}
    sequences = len([a for a in arguments if a.several])
    if sequences > 1 or len(traced) > 1 or not (sequences or traced):
        return None
    if sequences and ForwardTrace.tensor in traced:
        return None
    return arguments


class Form:
    """Writes the functions of one form, in reverse mode."""

    trace: type[Trace] = ReverseTrace

    def __init__(self, prim: Primitive, arguments: list[Argument]) -> None:
        self.prim = prim
        self.arguments = arguments
        self.traced = [a for a in arguments if a.is_traced]
        self.several = next((a for a in arguments if a.several), None)
        self.parameters = tuple(dict.fromkeys([a.parameter for a in arguments if a.is_traced or a.several]))
        self.recipe = self.recipe_of()
        self.namespace: dict[str, Any] = {
            "__name__": __name__,  # by which errors tell the user's frames from ours
            "LARGE": large.LARGE,
            "T": self.trace.tensor,
            "SMALL": SMALL,
            "fun": prim.fun,
            "ndarray": ndarray,
            "prim": prim,
            "ufunc": ufuncs[prim.fun],
            **{f.__name__: f for f in (binary, matmul, unary)},
            **{
                f.__name__: f
                for f in (accumulate, add_into, add_to, apply, bind, caller, dtype_of, dtypes_of, fit, follow)
            },
            **{f.__name__: f for f in (follow_view, is_free, is_many, is_plain, kept, shape_of, shapes_of, sole)},
            "top_trace": top_trace,
            **{f"d{k}": step.rule for k, step in enumerate(self.recipe.steps)},
            **{f"step{k}": step for k, step in enumerate(self.recipe.steps)},
        }

    def compiled(self) -> Callable[..., Any] | None:
        """Return the forward function, None if the form is left to the plain ones."""
        if self.several is not None and self.several.parameter in self.recipe.needed:
            return None  # a rule keeps the arrays of the sequence
        view = [] if self.prim.kind is ELEMENTWISE else self.view()
        source = "\n".join([*self.backward(), *self.values(), *self.noted(), *view, "    return t"])
        exec(compile(source, f"<meintorch: {self.prim.name}>", "exec"), self.namespace)
        for made in self.namespace.values():
            if getattr(made, "__globals__", None) is self.namespace:
                made.__qualname__ = self.prim.name
        forward: Callable[..., Any] = self.namespace["forward"]
        return forward

    def recipe_of(self) -> Recipe:
        """Return the rules for the traced parameters."""
        return self.prim.recipe(self.parameters)

    def run(self, given: Callable[[Argument], str]) -> str:
        """Write a call of the row's function with what is ``given`` for each argument."""
        positional = [given(a) for a in self.arguments if not a.keyword]
        keywords = [f"{a.parameter}={given(a)}" for a in self.arguments if a.keyword]
        call = f"fun({', '.join([*positional, *keywords])})"
        if self.prim.fun in INFIX and len(positional) == 2:
            call = f"{positional[0]} {self.prim.symbol} {positional[1]}"
        if keywords:
            return call
        if self.prim.fun in {np.matmul, operator.matmul}:
            return f"matmul({', '.join(positional)})"
        arrays = [given(a) for a in self.arguments if a.is_traced or a.kind is ndarray]
        return f"({pooled(call, arrays, ufuncs[self.prim.fun], positional, arrays=True)})"

    def pair(self, given: Callable[[Argument], str]) -> str:
        """Write the positional arguments as a tuple and the others as a dict."""
        positional = "".join([given(a) + ", " for a in self.arguments if not a.keyword])
        return f"({positional}), {{{', '.join([f'{a.parameter!r}: {given(a)}' for a in self.arguments if a.keyword])}}}"

    def values(self) -> list[str]:
        """Write the beginning of the forward function, which runs the operation on what is inside."""
        lines = [f"def forward({', '.join([a.name for a in self.arguments])}):"]
        otherwise = f"return bind(prim, {self.pair(lambda a: a.name)})"
        first = self.traced[0] if self.traced else None
        lines.append(f"    trace = {'None' if first is None else first.name + '._trace'}")
        for a in self.traced[1:]:
            lines += [f"    if {a.name}._trace is not trace:", f"        {otherwise}"]
        for a in self.arguments:
            if a.several:
                lines += [
                    f"    {a.value} = []",
                    "    parents = []",
                    "    plain = True",
                    f"    for i, x in enumerate({a.name}):",
                    "        if x.__class__ is T:",
                    "            if trace is None:",
                    "                trace = x._trace",
                    "            elif x._trace is not trace:",
                    f"                {otherwise}",
                    "            v = x.value",
                    f"            {a.value}.append(v)",
                    "            parents.append((i, x.note))",
                    "            if v.__class__ is not ndarray and hasattr(v, '_trace'):",
                    "                plain = False",
                    "        elif x.__class__ is ndarray or is_free(x.__class__):",
                    f"            {a.value}.append(x)",
                    "        else:",
                    f"            {otherwise}",
                    "    if not parents:",
                    f"        {otherwise}",
                ]
                if a.kind is tuple:
                    lines.append(f"    {a.value} = tuple({a.value})")
            elif a.kind in SEQUENCES:
                lines += [f"    if not is_plain({a.name}):", f"        {otherwise}"]
        lines += [f"    {a.value} = {a.name}.value" for a in self.traced]
        plain = " and ".join(
            [*(["plain"] if self.several else []), *[f"{a.value}.__class__ is ndarray" for a in self.traced]]
        )
        return [
            *lines,
            f"    if {plain}:",
            f"        ans = {self.run(lambda a: a.value)}",
            "    else:",
            f"        ans = apply(prim, {self.pair(lambda a: a.value)})",
            "    if ans.__class__ is not ndarray and (ans.__class__ is complex or is_many(ans)):",
            f"        {otherwise}",
        ]

    def residuals(self) -> list[str]:
        """Write the residuals."""
        return [f"    r{k} = {self.residual(need)}" for k, need in enumerate(self.recipe.needed)]

    def noted(self) -> list[str]:
        """Write what makes the node, and the traced value that has it."""
        parents = "".join([self.parents(parameter) + ", " for parameter in self.parameters])
        return [
            "    code, offset = caller()",
            *self.residuals(),
            "    n = trace.serial",
            "    trace.serial = n + 1",
            "    t = T()",
            "    t.value = ans",
            "    t._trace = trace",
            f"    t.note = (n, back, {parents}{self.kept_names()}code, offset)",
        ]

    def view(self) -> list[str]:
        """Write what makes a view of an argument join that one's family."""
        call = self.pair(lambda a: a.name)
        plain = all([a.is_traced or is_free(a.kind) or a.kind is tuple for a in self.arguments])
        same = "".join([f" or ans is {a.value}" for a in self.traced])
        join = f"follow(prim, t, {call}, trace)"
        if len(self.traced) == 1 and plain:
            (a,) = self.traced
            place = repr(a.parameter) if a.keyword else self.arguments.index(a)
            positional = ", ".join([b.name if b is not a else "None" for b in self.arguments if not b.keyword])
            keywords = ", ".join(
                [f"{b.parameter!r}: {b.name if b is not a else None}" for b in self.arguments if b.keyword]
            )
            join = f"follow_view(t, {a.name}, prim, [{positional}], {{{keywords}}}, {place})"
        return [
            "    if ans.__class__ is ndarray:",
            f"        if ans.base is not None{same}:",
            f"            {join}",
            "    elif hasattr(ans, '_trace'):",
            f"        follow(prim, t, {call}, trace)",
        ]

    def parents(self, parameter: str) -> str:
        """Write the node or nodes of a parameter that is traced."""
        if self.several is not None and parameter == self.several.parameter:
            return "tuple(parents)"
        of_it = [a for a in self.traced if a.parameter == parameter]
        if of_it[0].element < 0:
            return f"{of_it[0].name}.note"
        return f"({''.join([f'({a.element}, {a.name}.note), ' for a in of_it])})"

    def kept_names(self) -> str:
        """Write the names of the residuals."""
        return "".join([f"r{k}, " for k in range(len(self.recipe.needed))])

    def residual(self, need: str) -> str:
        """Write a value that the rules need."""
        name = base_name(need, self.prim.parameters)
        given = [a for a in self.arguments if a.parameter == name]
        several = False
        if name == "ans":
            value = "ans"
        elif not given:
            value = f"default_{name}"
            self.namespace[value] = default_of(self.prim.signature.parameters[name])
        else:
            values = [self.kept_value(a) if need == name else a.value for a in given]
            alone = given[0].element < 0
            value = values[0] if alone else f"({''.join([v + ', ' for v in values])})"
            several = given[0].several or not alone
        return expression(need, name, value, several=several)

    def kept_value(self, a: Argument) -> str:
        """Write the value of an argument as it is now, whatever the user writes into an array later."""
        if a.kind is ndarray:
            return f"{a.name}.copy() if {a.name}.size <= SMALL else trace.captured.keep({a.name}, code, offset)"
        if a.kind in SEQUENCES:
            return f"kept({a.name}, trace.captured, code, offset)"
        return a.value

    def backward(self) -> list[str]:
        """Write the function that pulls a cotangent back."""
        parents = "".join([f"p{k}, " for k in range(len(self.parameters))])
        lines = [
            "def back(node, g, cts, nodes, owned):",
            f"    _, _, {parents}{self.kept_names()}_, _ = node",
        ]
        for k, step in enumerate(self.recipe.steps):
            lines += self.pulled(k, step)
        return lines

    def pulled(self, k: int, step: Step) -> list[str]:
        """Write what adds the contribution of one parameter, as `graph.pull` does."""
        picks = [f"r{i}" for i in step.picks]
        if step.sequence:
            shapes, dtypes = [f"r{i}" for i in step.fit]
            picks += [f"[i for i, _ in p{k}]"] if step.wanted else []
            return [
                f"    parts = d{k}({', '.join(['g', *picks])})",
                f"    for i, p in p{k}:",
                f"        accumulate(cts, nodes, owned, p, fit(parts[i], {shapes}[i], {dtypes}[i]), False)",
            ]
        h = f"d{k}({', '.join(picks)}) * g" if step.partial else f"d{k}({', '.join(['g', *picks])})"
        made = [f"h = {h}"]
        if step.fit:
            shape, dtype = [f"r{i}" for i in step.fit]
            made += [f"if h.shape != {shape} or h.dtype is not {dtype}:", f"    h = fit(h, {shape}, {dtype})"]
        made.append("fresh = h.__class__ is ndarray and h.base is None and sole(h)")
        lines = ARRAY.format(h="\n    ".join(made), p=f"p{k}", fresh="fresh").strip("\n").split("\n")
        if step.into is None:
            return lines
        read = "".join([f"r{i}, " for i in step.into_picks])
        return [
            f"    if top_trace(({read})) is None:",
            f"        add_into(step{k}, ({self.kept_names()}), p{k}, g, cts, nodes, owned)",
            "    else:",
            *["    " + line for line in lines],
        ]


def is_identity(rule: Callable[..., Any]) -> bool:
    """Tell whether a rule is ``lambda x: x``."""
    return rule.__code__.co_code == IDENTITY and rule.__code__.co_argcount == 1


IDENTITY = (lambda x: x).__code__.co_code


def by_partial(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule for a tangent of that for a partial derivative."""

    def rule_of_tangent(tangent: Any, *residuals: Any) -> Any:
        return times(rule(*residuals), tangent)

    return rule_of_tangent


class ForwardForm(Form):
    """Writes the function of one form in forward mode, which pushes tangents as `forward.push` does."""

    trace = ForwardTrace

    def recipe_of(self) -> Recipe:
        """Return the rules for the traced parameters: their own forward rules, or the partial derivatives."""
        return self.prim.recipe(self.parameters, self.prim.kind is not ELEMENTWISE and self.has_jvps())

    def has_jvps(self) -> bool:
        """Tell whether there are forward rules for all traced parameters."""
        return all([name in self.prim.jvps for name in self.parameters])

    def compiled(self) -> Callable[..., Any] | None:
        """Return the function, None if the form is left to the plain ones."""
        if self.prim.kind not in {LINEAR, MULTILINEAR}:
            by_rule = self.prim.kind is ELEMENTWISE or self.has_jvps()
            if not by_rule or any([step.sequence for step in self.recipe.steps]):
                return None
        self.namespace |= {f.__name__: f for f in (by_blocks, fitted, minus, plus, tangent_or_zeros, times)}
        self.namespace |= {"SILENCE": SILENCE, "errstate": np.errstate, "quiet": quiet}
        return super().compiled()

    def backward(self) -> list[str]:
        """Write nothing: there is no backward pass."""
        return []

    def kept_value(self, a: Argument) -> str:
        """Write the value of an argument: nothing is kept."""
        return a.value

    def on_tangents(self, given: Callable[[Argument], str]) -> str:
        """Write a call of the row's function on tangents."""
        plain = " and ".join([f"{a.name}.note.__class__ is ndarray" for a in self.traced])
        return f"({self.run(given)} if {plain} else apply(prim, {self.pair(given)}))"

    def tangent(self) -> list[str]:
        """Write the tangent of the output."""
        prim = self.prim

        def zeros(a: Argument) -> str:
            if a.is_traced:
                return f"{a.name}.note"
            if a.parameter in prim.offsets:
                return f"(None if {a.name} is None else 0)"
            return f"tangent_or_zeros({a.name}, trace)" if a.parameter in prim.rules else a.name

        if prim.kind is LINEAR:
            return [f"d = {self.on_tangents(zeros)}"]
        if prim.kind is MULTILINEAR:
            terms = [
                self.on_tangents(lambda a, b=b: f"{a.name}.note" if a is b else a.value)  # type: ignore[misc]
                for b in self.traced
            ]
            return [f"d = {' + '.join(terms)}"]
        used = {k for step in self.recipe.steps for k in step.picks}
        lines = [line[4:] for k, line in enumerate(self.residuals()) if k in used]
        d = ""
        for k, (step, a) in enumerate(zip(self.recipe.steps, self.traced, strict=True)):
            picks = ", ".join([f"r{i}" for i in step.picks])
            tangent, sign = f"{a.name}.note", "+"
            if not step.partial:
                term = f"d{k}({tangent}, {picks})"
            elif picks:
                self.namespace[f"t{k}"] = by_partial(step.rule)
                listed = "".join([f"r{i}, " for i in step.picks])
                blocks = f"by_blocks(t{k}, ({listed}), {tangent}, False, True)"
                partial = picks if is_identity(step.rule) else f"d{k}({picks})"
                term = f"times({partial}, {tangent}) if {all_small([tangent])} else {blocks}"
            else:
                constant = step.rule()
                sign = "-" if constant == -1 else "+"
                term = tangent if abs(constant) == 1 else f"d{k}() * {tangent}"
            if d:
                lines.append(f"h = {term}")
                lines.append(f"d = d {sign} h if {all_small(['h'])} else {'plus' if sign == '+' else 'minus'}(d, h)")
            else:
                lines.append(f"d = {term}" if sign == "+" else f"d = -{term}")
                d = "d"
        return lines

    def noted(self) -> list[str]:
        """Write what makes the tangent, and the traced value that has it."""
        return [
            "    trace.serial += 0  # which raises if the trace has ended",
            '    with SILENCE if quiet.get() else errstate(all="ignore"):',
            *["        " + line for line in self.tangent()],
            "    t = T()",
            "    t.value = ans",
            "    t._trace = trace",
            "    plain = d.__class__ is ndarray and ans.__class__ is ndarray",
            "    t.note = d if plain and d.shape == ans.shape and d.dtype is ans.dtype else fitted(d, ans)",
        ]
