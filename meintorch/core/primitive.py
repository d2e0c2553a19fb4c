"""Primitives: one row for each NumPy callable, from which every mode follows.

A row says what the derivative of a NumPy function is, in plain NumPy, by naming what it needs: a rule's parameters are
``g`` (the cotangent of the output), ``ans`` (the output), and the function's own parameters. ``a_shape``, ``a_ndim``
and ``a_dtype`` ask for just that property of a parameter ``a``, so that its value need not be kept until the backward
pass. Of a parameter that takes a sequence of arrays the same suffixes give a tuple, one entry an array.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from meintorch._typing import Rule
from meintorch.core.shapes import dtype_of, dtypes_of, shape_of, shapes_of
from meintorch.errors import RowError

ELEMENTWISE, LINEAR, MULTILINEAR, GENERAL = "elementwise", "linear", "multilinear", "general"
STRUCTURAL, CONSTANT, COMPOSITE = "structural", "constant", "composite"

SUFFIXES = ("_shape", "_dtype", "_ndim")


class Primitive:
    """A NumPy callable together with its derivative.

    Attributes
    ----------
    fun : the callable; traces call it on values
    name : how messages spell it, such as ``np.tanh``
    symbol : its short form, such as ``tanh`` or ``*``
    kind : one of elementwise, linear, multilinear, general, structural, constant, composite
    rules : from the name of each parameter that may be differentiated to its rule (elementwise: the partial
        derivative; None: the derivative with respect to it is not known)
    sequences : those parameters that take a sequence of arrays
    parameters : names of the callable's parameters, in order
    refused : options that the rules do not cover; giving one is an error
    into : for parameters of which an operation reads few entries, rules ``(buffer, g, ...)`` that add a
        contribution in place, so that a loop over the entries is linear; what a rule of ``rules`` returns otherwise
    jvps : forward rules for some of the parameters, ``(t, ...)`` with the tangent first; without one the reverse rule is
        transposed
    offsets : parameters that add something to what is otherwise linear, such as ``initial`` of a sum
    batch : how to run it on a batch of examples, see `meintorch.core.batching`
    accepted : so many positional arguments are no refused options
    single : the names of the first parameters, as far as they take one array each and have a rule
    forward : for rules that keep something of their own: called instead of ``fun`` where a derivative is wanted, it
        returns the output and what the rules find as their parameter ``saved``
    dead : what becomes of dead entries, "any" or "all", see `meintorch.core.dead`
    definition : for a composite, the function that says it in terms of others
    """

    __slots__ = (
        *("accepted", "single"),
        *(
            "_recipes",
            "_signature",
            "batch",
            "dead",
            "definition",
            "forward",
            "fun",
            "into",
            "jvps",
            "kind",
            "name",
            "offsets",
            "parameters",
        ),
        *("refused", "rules", "sequences", "symbol", "variadic"),
    )

    def __init__(
        self,
        fun: Callable[..., Any],
        kind: str,
        rules: dict[str, Rule | None],
        *,
        name: str | None = None,
        symbol: str | None = None,
        signature: str | None = None,
        sequences: Iterable[str] = (),
        refused: Iterable[str] = (),
        definition: Callable[..., Any] | None = None,
        into: dict[str, Rule] | None = None,
        jvps: dict[str, Rule] | None = None,
        offsets: Iterable[str] = (),
        batch: Rule | None = None,
        forward: Rule | None = None,
        dead: str | None = None,
    ) -> None:
        self.fun = fun
        self.definition = definition
        self.into = into or {}
        self.jvps = jvps or {}
        self.offsets = tuple(offsets)
        self.batch = batch
        self.forward = forward
        self.dead = dead
        self.kind = kind
        self.rules = rules
        self.name = name or name_of(fun)
        self.symbol = symbol or self.name.rpartition(".")[2]
        self.sequences = tuple(sequences)
        self.refused = frozenset(["out", *refused])
        self._signature: inspect.Signature | str | None = signature
        self.parameters: tuple[str, ...] = ()
        self.variadic: int | None = None
        if rules:
            names = quick_names(fun, signature)
            if names is None:
                self._learn_parameters()
            else:
                self.parameters = names
        self.accepted = 0
        if self.variadic is None:
            for parameter in self.parameters:
                if parameter in self.refused:
                    break
                self.accepted += 1
        single = 0
        for parameter in self.parameters:
            if rules.get(parameter) is None or parameter in self.sequences or single == self.variadic:
                break
            single += 1
        self.single = self.parameters[:single]
        self._recipes: dict[tuple[Any, ...], Recipe] = {}

    def __repr__(self) -> str:
        return f"<{self.kind} primitive {self.name}>"

    def check(self) -> Primitive:
        """Return the row, or say which rule is for, or asks for, something that does not exist.

        Rows of users' own are checked when they are made; those of the library by its tests, which spares every import that.
        """
        listed = ", ".join(self.parameters)
        for parameter in self.rules:
            if parameter not in self.parameters:
                raise RowError(f"{self.name} has no parameter {parameter!r}; it has {listed}")
        known = ("ans", *self.parameters)
        for rules, given in ((self.rules, 0), (self.into, 2), (self.jvps, 1)):  # so many arguments come before
            for rule in rules.values():
                for need in needs_of(rule)[given:] if rule is not None else ():
                    if need not in {"g", "wanted"} and base_name(need, self.parameters) not in known:
                        raise RowError(f"the rule of {self.name} asks for {need!r}; there are {listed}")
        return self

    def parameter_at(self, position: int) -> tuple[str, int]:
        """Return the name of the parameter at a position, and which element of it if it is variadic (else -1)."""
        if self.variadic is not None and position >= self.variadic:
            return self.parameters[self.variadic], position - self.variadic
        if position < len(self.parameters):
            return self.parameters[position], -1
        return f"number {position + 1}", -1

    @property
    def signature(self) -> inspect.Signature:
        """The callable's signature."""
        found = self._signature
        return found if isinstance(found, inspect.Signature) else self._learn_parameters()

    def _learn_parameters(self) -> inspect.Signature:
        text = self._signature
        signature = self._signature = text if isinstance(text, inspect.Signature) else signature_of(self.fun, text)
        listed = list(signature.parameters.values())
        self.parameters = tuple([p.name for p in listed])
        self.variadic = next((k for k, p in enumerate(listed) if p.kind is p.VAR_POSITIONAL), None)
        return signature

    def recipe(self, traced: tuple[str, ...], forward: bool = False) -> Recipe:
        """Return what the parameters named ``traced`` need: for the backward pass, or for their forward rules."""
        key = (forward, *traced)
        try:
            return self._recipes[key]
        except KeyError:
            found = self._recipes[key] = Recipe(self, traced, self.jvps if forward else self.rules)
            return found


class Step(NamedTuple):
    """The reverse rule for one traced parameter, and where among the residuals its arguments lie."""

    rule: Rule
    picks: tuple[int, ...]
    into: Rule | None  # adds the contribution into an array, where the walk has one of its own
    into_picks: tuple[int, ...]
    shape: int  # where the parameter's shape lies, for ``into``
    fit: tuple[int, ...]  # where the parameter's own shape and dtype lie, if its cotangent may have others
    partial: bool  # a partial derivative, still to be multiplied with the cotangent
    sequence: bool  # a sequence of arrays, for which the rule returns a sequence of cotangents
    wanted: bool  # the rule also asks which elements of the sequence are traced


class Recipe:
    """The rules of a primitive for one set of traced parameters.

    ``keep(ans, *args, **kwargs)`` returns the residuals, the values that the rules need, of which those that are ``loose``
    may be arrays, others are shapes and dtypes; ``steps`` has one entry a traced parameter.
    """

    __slots__ = ("keep", "loose", "name", "needed", "steps", "symbol")

    def __init__(self, prim: Primitive, traced: tuple[str, ...], rules: Mapping[str, Rule | None]) -> None:
        self.name = prim.name  # not the primitive itself, which holds its recipes: that would be a cycle
        self.symbol = prim.symbol
        self.steps: list[Step] = []
        self.needed: list[str] = []  # the names of the residuals
        needed = self.needed

        def places(names: Iterable[str]) -> tuple[int, ...]:
            needed.extend([n for n in names if n not in needed])
            return tuple([needed.index(n) for n in names])

        for parameter in traced:
            rule = rules[parameter]
            assert rule is not None
            needs = needs_of(rule)
            into = prim.into.get(parameter)
            sequence = parameter in prim.sequences
            fitted = sequence or len(prim.rules) > 1
            self.steps.append(
                Step(
                    rule=rule,
                    picks=places([n for n in needs if n not in ("g", "t", "wanted")]),
                    into=into,
                    into_picks=places(needs_of(into)[2:]) if into is not None else (),
                    shape=places([parameter + "_shape"])[0] if into is not None else -1,
                    fit=places([parameter + "_shape", parameter + "_dtype"]) if fitted else (),
                    partial=prim.kind is ELEMENTWISE and needs[:1] != ("g",),
                    sequence=sequence,
                    wanted="wanted" in needs,
                )
            )
        self.keep = residual_function(prim, needed)
        self.loose = [base_name(need, prim.parameters) == need for need in needed]


def needs_of(rule: Rule) -> tuple[str, ...]:
    """Return the names of a rule's parameters: what it needs."""
    code = getattr(rule, "__code__", None)
    if code is None or hasattr(rule, "__wrapped__"):
        return tuple(inspect.signature(rule).parameters)
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[1:] if hasattr(rule, "__self__") else names


def quick_names(fun: Callable[..., Any], text: str | None) -> tuple[str, ...] | None:
    """Return the names of a callable's parameters without `inspect`, whose cost every import would pay; None if unsure."""
    if text is not None:
        found = tuple([part.partition("=")[0].strip() for part in text.split(",") if part.strip() not in {"/", "*"}])
        return found if all([name.isidentifier() for name in found]) else None  # such as *operands
    nin = getattr(fun, "nin", 0)
    if nin:
        return (*(("x",) if nin == 1 else [f"x{i + 1}" for i in range(nin)]), "out", "where", "dtype", "options")
    code = getattr(getattr(fun, "_implementation", fun), "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return None
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


def base_name(need: str, parameters: tuple[str, ...]) -> str:
    """Return the parameter that a name like ``a_shape`` speaks of."""
    for suffix in SUFFIXES:
        if need.endswith(suffix) and need not in parameters:
            return need[: -len(suffix)]
    return need


def expression(need: str, name: str, value: str, *, several: bool) -> str:
    """Write what a name like ``a_shape`` asks for, given how the value of ``a`` is spelled; ``several``: a sequence of arrays."""
    what = need[len(name) + 1 :]
    if what == "ndim":
        return f"len(shape_of({value}))"
    return f"{what}{'s' * several}_of({value})" if what else value


def default_of(parameter: inspect.Parameter) -> Any:
    """Return a parameter's default; None for NumPy's marker for "not given", which is true as a condition."""
    return None if repr(parameter.default) == "<no value>" else parameter.default


def residual_function(prim: Primitive, needed: list[str]) -> Callable[..., tuple[Any, ...]]:
    """Generate ``keep(ans, <the function's own parameters>)``, which returns the needed values as a tuple.

    Binding arguments to names is left to Python's own call, which is ten times as fast as ``inspect``'s.
    """
    expressions = []
    for need in needed:
        name = base_name(need, prim.parameters)
        expressions.append(expression(need, name, name, several=name in prim.sequences))
    text = ["ans"]
    namespace: dict[str, Any] = {f.__name__: f for f in (shape_of, shapes_of, dtype_of, dtypes_of)}
    previous = None
    for k, p in enumerate(prim.signature.parameters.values()):
        if previous is p.POSITIONAL_ONLY and p.kind is not previous:
            text.append("/")
        if p.kind is p.KEYWORD_ONLY and previous not in (p.VAR_POSITIONAL, p.KEYWORD_ONLY):
            text.append("*")
        previous = p.kind
        if p.default is p.empty:
            text.append(str(p.replace(annotation=p.empty)))
        else:
            namespace[f"default{k}"] = default_of(p)
            text.append(f"{p.name}=default{k}")
    if previous is inspect.Parameter.POSITIONAL_ONLY:
        text.append("/")
    source = f"def keep({', '.join(text)}):\n    return ({''.join(e + ', ' for e in expressions)})"
    exec(source, namespace)
    keep: Callable[..., tuple[Any, ...]] = namespace.pop("keep")  # left in there it would be a cycle
    keep.__qualname__ = f"keep[{prim.name}]"
    return keep


def signature_of(fun: Callable[..., Any], text: str | None) -> inspect.Signature:
    """Return a callable's signature, from ``text`` where NumPy does not tell."""
    if text is not None:
        namespace: dict[str, Any] = {}
        exec(f"def signature({text}): ...", namespace)
        return inspect.signature(namespace.pop("signature"))
    nin = getattr(fun, "nin", None)
    if nin is not None:  # a ufunc, whose own signature is the same for all
        names = "x" if nin == 1 else ", ".join([f"x{i + 1}" for i in range(nin)])
        return signature_of(fun, names + ", /, out=None, *, where=True, dtype=None, **options")
    try:
        return inspect.signature(fun)
    except ValueError:
        raise RowError(f"the row of {name_of(fun)} must spell out its signature") from None


def name_of(fun: Callable[..., Any]) -> str:
    """Return how a user spells a NumPy callable, such as ``np.linalg.norm`` or ``np.add.reduce``."""
    owner = getattr(fun, "__self__", None)
    name = getattr(fun, "__name__", None) or repr(fun)
    if owner is not None and hasattr(owner, "nin"):
        return f"np.{owner.__name__}.{name}"
    if hasattr(fun, "nin"):  # a ufunc does not say where it comes from
        for module, prefix in (("numpy", "np."), ("scipy.special", "scipy.special.")):
            if getattr(sys.modules.get(module), name, None) is fun:
                return prefix + name
        return name
    module = getattr(fun, "__module__", None) or ""
    if module == "numpy" or module.startswith(("numpy._", "numpy.lib._")):
        return f"np.{name}"
    if module.startswith("numpy."):
        return f"np.{module[6:]}.{name}"
    return f"{module}.{name}" if module and module != "builtins" else name


# ---------------------------------------------------------------- the registry and the row constructors

registry: dict[Callable[..., Any], Primitive] = {}


# Rows of functions of other libraries, which meintorch never imports: by module and name, made when a function is first met.
later: dict[str, dict[str, Callable[[Callable[..., Any]], Primitive]]] = {}


def find(fun: Callable[..., Any]) -> Primitive | None:
    """Return the row of a callable, None if it has none."""
    prim = registry.get(fun)
    if prim is not None:
        return prim
    name = getattr(fun, "__name__", "")
    for module, rows in later.items():
        if name in rows and getattr(sys.modules.get(module), name, None) is fun:
            return rows[name](fun)
    return None


def register(prim: Primitive) -> Primitive:
    """Add a row; a second row for the same function is an error."""
    if prim.fun in registry:
        raise RowError(f"{prim.name} has a row already")
    registry[prim.fun] = prim
    return prim


def elementwise(
    fun: Callable[..., Any],
    *partials: Rule | None,
    signature: str | None = None,
    dead: str | None = None,
    **named: Rule | None,
) -> Primitive:
    """Register an elementwise function by its partial derivatives: of a ufunc in order, else by parameter name.

    A partial's parameters say what it needs: ``ans`` is the output, ``x`` (or ``x1``, ``x2``) a ufunc's inputs. One that
    names ``g`` first is handed the cotangent, or the tangent, and returns its product with the derivative; that is for
    derivatives that select, since 0 * inf is not 0. None in a partial's place: that derivative is not known.
    """
    nin: int = getattr(fun, "nin", 0)
    names = ("x",) if nin == 1 else tuple([f"x{i + 1}" for i in range(nin)])
    if len(partials) != nin:
        raise RowError(f"{name_of(fun)} takes {nin} arguments, its row has {len(partials)} partial derivatives")
    rules = {**dict(zip(names, partials, strict=True)), **named}
    refused = ("where",) if nin else ()
    return register(Primitive(fun, ELEMENTWISE, rules, signature=signature, refused=refused, dead=dead))


def linear(
    fun: Callable[..., Any],
    *,
    signature: str | None = None,
    into: dict[str, Rule] | None = None,
    offsets: Iterable[str] = (),
    batch: Rule | None = None,
    dead: str | None = None,
    **transposes: Rule,
) -> Primitive:
    """Register a function that is linear in the named arrays taken together, by the transpose for each of them.

    A transpose takes ``g`` and what else it names. A parameter that takes a sequence of arrays is spelled ``name_``
    with a trailing underscore; its transpose returns a sequence. ``into`` and ``offsets`` are explained at
    `Primitive`.
    """
    return register(
        Primitive(
            fun,
            LINEAR,
            **split_sequences(transposes),
            signature=signature,
            into=into,
            offsets=offsets,
            batch=batch,
            dead=dead,
        )
    )


def multilinear(
    fun: Callable[..., Any],
    *,
    signature: str | None = None,
    refused: Iterable[str] = (),
    batch: Rule | None = None,
    dead: str | None = None,
    **transposes: Rule,
) -> Primitive:
    """Register a function that is linear in each of the named arrays by itself, such as a product."""
    rules = split_sequences(transposes)
    return register(Primitive(fun, MULTILINEAR, **rules, signature=signature, refused=refused, batch=batch, dead=dead))


def general(
    fun: Callable[..., Any],
    *,
    signature: str | None = None,
    refused: Iterable[str] = (),
    into: dict[str, Rule] | None = None,
    jvp: dict[str, Rule] | None = None,
    batch: Rule | None = None,
    dead: str | None = None,
    **vjps: Rule,
) -> Primitive:
    """Register a function by its vector-Jacobian products, one for each named array; ``into``, ``jvp``: see `Primitive`."""
    return register(
        Primitive(
            fun,
            GENERAL,
            **split_sequences(vjps),
            signature=signature,
            refused=refused,
            into=into,
            jvps=jvp,
            batch=batch,
            dead=dead,
        )
    )


def spelling(fun: Callable[..., Any], of: Callable[..., Any], symbol: str) -> None:
    """Register another spelling of a function that has a row, such as ``operator.mul`` for ``np.multiply``."""
    prim = registry[of]
    signature = ", ".join(prim.parameters[: len(prim.rules)]) or None
    register(
        Primitive(
            fun,
            prim.kind,
            prim.rules,
            name=prim.name,
            symbol=symbol,
            signature=signature,
            batch=prim.batch,
            dead=prim.dead,
        )
    )


def structural(*funs: Callable[..., Any]) -> None:
    """Register functions whose result depends on shapes and dtypes only."""
    for fun in funs:
        register(Primitive(fun, STRUCTURAL, {}))


def constant(*funs: Callable[..., Any], batch: Rule | None = None) -> None:
    """Register functions that are piecewise constant: their derivative is zero wherever there is one."""
    for fun in funs:
        register(Primitive(fun, CONSTANT, {}, batch=batch))


def composite(fun: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Register a function by a definition in terms of others; every mode follows from theirs.

    The definition has to return the same values as NumPy's function, bit for bit.
    """

    def decorate(definition: Rule) -> Rule:
        register(Primitive(fun, COMPOSITE, {}, definition=definition))
        return definition

    return decorate


def split_sequences(rules: dict[str, Rule]) -> dict[str, Any]:
    """Tell ``arrays_=rule`` (a sequence of arrays) from ``a=rule`` (one array)."""
    return {
        "rules": {name.rstrip("_"): rule for name, rule in rules.items()},
        "sequences": [name[:-1] for name in rules if name.endswith("_")],
    }
