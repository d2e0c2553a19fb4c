"""Rules of one's own: custom_vjp, custom_jvp, primitive; and checkpoint, which trades time for memory.

A function with a rule of its own becomes a primitive of the engine: its arguments are taken apart into leaves, and every
trace that meets it asks its rule rather than looking inside.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree, Rule
from meintorch.core.captured import WHOLE, Captured, origin_of, samples, scrambled
from meintorch.core.forward import ForwardTrace
from meintorch.core.graph import ReverseTrace, walk
from meintorch.core.primitive import ELEMENTWISE, GENERAL, Primitive, split_sequences
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import CONSTANTS, ValueTrace, as_running, follow, settled, writing_only_above
from meintorch.core.trace import Traced, bind, caller, here, is_many, top_trace
from meintorch.errors import EscapedTensorError, InPlaceError, NoRuleError, RowError, TreeError
from meintorch.func._transform import P, R, Transformed, settled_tree
from meintorch.tensor import Tensor

SIGNATURE = "leaves, call, saved=None"

inside_a_rule: ContextVar[bool] = ContextVar("inside_a_rule", default=False)


@contextlib.contextmanager
def running_a_rule() -> Iterator[None]:
    """Run a reverse rule of the user's, in which forward mode may meet the function that has it."""
    token = inside_a_rule.set(True)
    try:
        with as_running():
            yield
    finally:
        inside_a_rule.reset(token)


class CustomCall:
    """One call of a function with a rule of its own: how its leaves fit together, and its static arguments."""

    def __init__(self, owner: Custom[Any, Any], args: tuple[Any, ...], nondiff: tuple[int, ...]) -> None:
        self.owner = owner
        self.static = tuple([args[k] for k in nondiff])
        self.nondiff = nondiff
        self.dynamic = [k for k in range(len(args)) if k not in nondiff]
        self.leaves, self.treedef = tree.flatten([args[k] for k in self.dynamic])
        self.out_tree: tree.TreeDef | None = None

    def arguments(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Return the differentiable arguments made of other leaves."""
        return tuple(self.treedef.unflatten(leaves))

    def all_arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """Return all arguments, in the function's own order."""
        args = dict(zip(self.dynamic, self.arguments(leaves), strict=True))
        args.update(zip(self.nondiff, self.static, strict=True))
        return [args[k] for k in range(len(args))]

    def outputs(self, out: PyTree) -> list[Any]:
        """Take the output apart."""
        leaves, self.out_tree = tree.flatten(settled_tree(out))
        return [x if hasattr(x, "dtype") else np.asarray(x)[()] for x in leaves]


def dispatch(leaves: Sequence[Any], call: CustomCall) -> Any:
    """Run a custom function. A primitive refers to this, not to its own function: that would be a cycle."""
    return call.owner._dispatch(leaves, call)


def refuse_closures(outputs: Any, f: Transformed[Any, Any]) -> None:
    """Raise if a function with a rule of its own used a value traced by what differentiates it, other than its arguments.

    What a trace makes holds values of lower levels only, unless one of its own got past it.
    """
    for x in outputs if is_many(outputs) else [outputs]:
        while isinstance(x, Traced):
            inside = [x.value, x.note] if isinstance(x._trace, ForwardTrace) else [x.value]
            found = top_trace(inside)
            if found is not None and found.level >= x._trace.level:
                raise EscapedTensorError(f"{here()}: {closure_of(f)}")
            x = x.value  # noqa: PLW2901 - one level after the other


def closure_of(f: Transformed[Any, Any]) -> str:
    """Say what is wrong with a rule that closes over a traced value."""
    return (
        f"{f.__name__}, which has a derivative rule of its own, uses a traced value that is none of its arguments and so is "
        f"nothing that its rule can speak of. Pass the value to {f.__name__} as an argument; if it should count as a "
        f"constant, use stop_gradient(...) of it."
    )


@contextlib.contextmanager
def told_of_closures(f: Transformed[Any, Any]) -> Iterator[None]:
    """Give the right advice where a rule that closes over a traced value runs after the transform around it."""
    try:
        yield
    except EscapedTensorError as error:
        raise EscapedTensorError(closure_of(f)) from error


class Custom(Transformed[P, R]):
    """A function with a derivative rule of its own."""

    def __init__(self, f: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> None:
        nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        super().__init__(f, nondiff_argnums=nondiff)
        self._prim: Primitive | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; where a derivative is wanted, with its own rule."""
        if self._prim is None:
            raise RowError(f"{self!r} has no rule yet: define it with .{self._definer}(...)")
        positional: tuple[Any, ...] = args
        if kwargs:
            bound = inspect.signature(self.f).bind(*args, **kwargs)
            bound.apply_defaults()
            positional = bound.args
        nondiff = tuple([k % len(positional) for k in self.options["nondiff_argnums"]])
        call = CustomCall(self, positional, nondiff)
        trace = top_trace(call.leaves)
        if trace is None:
            return self.f(*args, **kwargs)  # type: ignore[no-any-return]
        outputs = self._dispatch(call.leaves, call)
        refuse_closures(outputs, self)
        assert call.out_tree is not None
        out: R = call.out_tree.unflatten(outputs)
        return out

    _definer = ""

    def _dispatch(self, leaves: Sequence[Any], call: CustomCall) -> Any:
        """Run on leaves that may still be traced by lower levels."""
        if top_trace(list(leaves)) is None:
            return call.outputs(self.f(*call.all_arguments(leaves)))
        assert self._prim is not None
        return bind(self._prim, (list(leaves), call), {})

    def __reduce__(self) -> Any:
        return self.f.__qualname__  # found where it is defined, like a plain function


class CustomVjp(Custom[P, R]):
    """A function with a reverse rule of its own; made by `custom_vjp`."""

    _kind = "custom_vjp"
    _definer = "defvjp"

    def defvjp(self, forward: Callable[..., tuple[Any, Any]], backward: Callable[..., Any]) -> None:
        """Define the rule.

        Parameters
        ----------
        forward : function with the arguments of the function
            It returns ``(output, saved)``: the output and whatever the backward function needs.
        backward : function of ``(saved, ct)``, with the static arguments before them
            It returns a tuple with one cotangent for each differentiable argument; None stands for no derivative.
        """

        def run_forward(leaves: Any, call: CustomCall) -> tuple[list[Any], Any]:
            with running_a_rule():
                out, saved = forward(*call.all_arguments(leaves))
            return call.outputs(out), saved

        def rule(g: Any, saved: Any, call: CustomCall) -> list[Any]:
            assert call.out_tree is not None
            with running_a_rule(), told_of_closures(call.owner):
                cts = backward(*call.static, saved, call.out_tree.unflatten(g))
            return call.owner._cotangents(cts, call)  # type: ignore[attr-defined,no-any-return]

        self._prim = Primitive(
            dispatch,
            GENERAL,
            {"leaves": rule},
            name=self.__name__,
            signature=SIGNATURE,
            sequences=("leaves",),
            forward=run_forward,
        )

    def _dispatch(self, leaves: Sequence[Any], call: CustomCall) -> Any:
        if isinstance(top_trace(list(leaves)), ForwardTrace) and not inside_a_rule.get():
            raise NoRuleError(
                f"{here()}: forward mode (jvp, jacfwd, hessian) has met {self.__name__}, whose rule is for reverse mode only. "
                f"Define it with custom_jvp, which serves both, or use vjp, grad and jacrev."
            )
        return super()._dispatch(leaves, call)

    def _cotangents(self, cts: Any, call: CustomCall) -> list[Any]:
        """Check what a backward function returned, and take it apart into one cotangent a leaf."""
        if isinstance(cts, list) or not isinstance(cts, tuple):
            cts = (cts,) if len(call.dynamic) == 1 else tuple(cts) if isinstance(cts, list) else (cts,)
        if len(cts) != len(call.dynamic):
            raise TreeError(
                f"the backward function of {self.__name__} returned {len(cts)} cotangents for {len(call.dynamic)} "
                f"differentiable arguments; return one for each, None where there is no derivative"
            )
        leaves: list[Any] = []
        for k, (position, arg) in enumerate(zip(call.dynamic, call.arguments(call.leaves), strict=True)):
            likes, treedef = tree.flatten(arg)
            if cts[k] is None:
                leaves += [zeros_like(x) for x in likes]
                continue
            found = treedef.flatten_like(cts[k], what=f"the cotangent of argument {position} of {self.__name__}")
            for ct, like in zip(found, likes, strict=True):
                if shape_of(ct) != shape_of(like):
                    raise TreeError(
                        f"the backward function of {self.__name__} returned a cotangent of shape {shape_of(ct)} for argument "
                        f"{position}, which has shape {shape_of(like)}"
                    )
                leaves.append(settled(ct) if hasattr(ct, "dtype") else np.asarray(ct, dtype=float))
        return leaves


def zeros_like(x: Any) -> Any:
    """Return zeros for a leaf without derivative."""
    dtype = dtype_of(x)
    return np.zeros(shape_of(x), dtype if dtype.kind in "fc" else np.float64)


def custom_vjp(f: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> CustomVjp[P, R]:
    """Give a function a reverse rule of its own.

    Parameters
    ----------
    f : function of arrays, or trees of them
    nondiff_argnums : int or sequence of int, optional
        Arguments that are not differentiated and may be anything; the backward function gets them first.

    Returns
    -------
    function with the method defvjp(forward, backward)

    Raises
    ------
    RowError
        When it is called before a rule is defined.
    NoRuleError
        When forward mode meets it.
    TreeError
        When the backward function returns the wrong number, tree or shape of cotangents.

    Examples
    --------
    >>> @custom_vjp
    ... def clip_slope(x):
    ...     return x * x
    >>> clip_slope.defvjp(lambda x: (x * x, x), lambda x, ct: (np.clip(2 * x, -1, 1) * ct,))
    >>> grad(clip_slope)(3.0)
    array(1.)
    """
    return CustomVjp(f, nondiff_argnums)


class CustomJvp(Custom[P, R]):
    """A function with a forward rule of its own, which serves reverse mode too; made by `custom_jvp`."""

    _kind = "custom_jvp"
    _definer = "defjvp"

    def defjvp(self, rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Define the rule: a function of ``(primals, tangents)`` that returns ``(output, tangent of the output)``.

        Both are tuples with one entry for each differentiable argument; the static arguments come before them. The rule
        has to be linear in the tangents. It is returned, so that this serves as a decorator.
        """
        name = self.__name__

        def push(t: Any, leaves: Any, call: CustomCall) -> list[Any]:
            primals, tangents = call.arguments(leaves), call.arguments([float_like(x) for x in t])
            with as_running():
                out, tangent = rule(*call.static, primals, tangents)
            outputs, out_tree = tree.flatten(out)
            found = out_tree.flatten_like(tangent, what=f"the tangent that the rule of {name} returned")
            for dot, like in zip(found, outputs, strict=True):
                if shape_of(dot) != shape_of(like):
                    raise TreeError(
                        f"the rule of {name} returned a tangent of shape {shape_of(dot)} for an output of shape "
                        f"{shape_of(like)}"
                    )
            return [float_like(dot) for dot in found]

        def pull(g: Any, leaves: Any, call: CustomCall) -> list[Any]:
            trace = ReverseTrace()
            tangents = [trace.leaf(zeros_like(x)) for x in leaves]
            with told_of_closures(call.owner):
                dots = push(tangents, leaves, call)
            trace.end()
            pairs = [(d.note, ct) for d, ct in zip(dots, g, strict=True) if isinstance(d, Traced) and d._trace is trace]
            with np.errstate(all="ignore"):
                cts, _ = walk([note for note, _ in pairs], [ct for _, ct in pairs], len(tangents))
            return [zeros_like(x) if ct is None else ct for ct, x in zip(cts, leaves, strict=True)]

        self._prim = Primitive(
            dispatch,
            GENERAL,
            {"leaves": pull},
            name=self.__name__,
            signature=SIGNATURE,
            sequences=("leaves",),
            jvps={"leaves": push},
        )
        return rule


def float_like(x: Any) -> Any:
    """Return a tangent as an array or scalar of NumPy."""
    return settled(x) if hasattr(x, "dtype") else np.float64(x)


def custom_jvp(f: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> CustomJvp[P, R]:
    """Give a function a forward rule of its own; reverse mode transposes it.

    Parameters
    ----------
    f, nondiff_argnums : as for `custom_vjp`

    Returns
    -------
    function with the method defjvp(rule)

    Raises
    ------
    RowError
        When it is called before a rule is defined.
    TreeError
        When the rule returns a tangent that does not have the output's tree and shapes.

    Examples
    --------
    >>> @custom_jvp
    ... def log1pexp(x):
    ...     return np.log1p(np.exp(x))
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t / (1 + np.exp(-x))
    >>> grad(log1pexp)(0.0)
    array(0.5)
    """
    return CustomJvp(f, nondiff_argnums)


class UserPrimitive(Transformed[P, R]):
    """An operation on plain arrays with rules of its own; made by `primitive`."""

    _kind = "primitive"

    def __init__(self, f: Callable[P, R], prim: dict[str, Any]) -> None:
        super().__init__(f)
        self._prim = Primitive(self.__call__, **prim, name=self.__name__, signature=positional_signature(f)).check()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operation; on traced values by its rules."""
        if top_trace(args, kwargs) is None:
            return settled_tree(self.f(*args, **kwargs))  # type: ignore[no-any-return]
        out: R = bind(self._prim, args, kwargs)
        refuse_closures(out, self)
        return out

    def __reduce__(self) -> Any:
        return self.f.__qualname__


def positional_signature(f: Callable[..., Any]) -> str:
    """Return the parameters of a function as text, without annotations."""
    signature = inspect.signature(f)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    for p in bare:
        if p.default is not p.empty and not isinstance(p.default, (int, float, str, type(None), tuple)):
            raise RowError(f"the default of {p.name!r} in {f!r} must be a plain number, string, tuple or None")
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))[1:-1]


def primitive(
    *, elementwise: bool = False, jvp: dict[str, Rule] | None = None, batch: Rule | None = None, **rules: Rule
) -> Callable[[Callable[P, R]], UserPrimitive[P, R]]:
    """Make an operation on plain arrays (a call into C, a lookup, a solver) differentiable by rules of its own.

    The rules are written as the library's own rows are: for each parameter that may be differentiated a function that asks
    by name for what it needs. The operation itself is never called on traced values.

    Parameters
    ----------
    elementwise : bool, optional
        Whether the operation works entry by entry. Then a rule is the partial derivative, of ``ans`` (the output) and the
        operation's parameters, and serves forward mode and batches too. Otherwise a rule takes ``g``, the cotangent of the
        output, first and returns the parameter's cotangent.
    jvp : dict, optional
        Forward rules by parameter, functions of ``t`` (the tangent) and what they name. Without one the reverse rule is
        transposed.
    batch : function, optional
        A batching rule; without one a batch is run one example at a time.
    **rules : one for each parameter to differentiate

    Returns
    -------
    decorator

    Raises
    ------
    RowError
        If a rule asks for something by a name that is not a parameter of the operation.
    NoRuleError
        When a traced value arrives in a parameter without a rule.

    Examples
    --------
    >>> import math
    >>> @primitive(elementwise=True, x=lambda x: np.exp(-x * x) * 2 / np.sqrt(np.pi))
    ... def erf(x):
    ...     return np.vectorize(math.erf, otypes=[float])(x)
    >>> grad(lambda x: np.sum(erf(x)))(np.zeros(2))
    array([1.12837917, 1.12837917])
    """
    kind = {"kind": ELEMENTWISE if elementwise else GENERAL, "jvps": jvp, "batch": batch, **split_sequences(rules)}
    return lambda f: UserPrimitive(f, kind)


# ---------------------------------------------------------------- checkpoint


class Checkpoint(Transformed[P, R]):
    """A function whose intermediate values are computed again in the backward pass; made by `checkpoint`."""

    _kind = "checkpoint"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        leaves, treedef = tree.flatten((args, kwargs))
        trace = top_trace(leaves)
        if trace is not None and not isinstance(trace, ReverseTrace):
            return self.f(*args, **kwargs)  # type: ignore[no-any-return]  # only reverse mode keeps values
        segment = Segment(Captured(origin_of(self.f), True if trace is None else trace.captured.how))
        inputs = [k for k, x in enumerate(leaves) if isinstance(x, (Traced, np.ndarray)) and dtype_of(x).kind in "fc"]
        out = segment.run(self.f, treedef, leaves, inputs, [without_reverse(settled(leaves[k])) for k in inputs])
        outputs, out_tree = tree.flatten(out)
        mine = [isinstance(x, Traced) and x._trace is segment for x in outputs]
        segment.end()
        known = [x.value for x in own_outputs(outputs, mine)]
        traced = [leaves[k] for k in inputs] + segment.closed_over
        if known and any([is_differentiated(x) for x in traced]):
            for t in segment.closed_over:
                reopen(t)
            known = replayed(traced, Replay(self.f, treedef, leaves, inputs, mine, known, segment.captured))
        fresh = iter(known)
        result: R = out_tree.unflatten([next(fresh) if m else x for x, m in zip(outputs, mine, strict=True)])
        return result


class SegmentTensor(Tensor):
    """A Tensor of a checkpointed function that runs on the values inside its inputs."""

    __slots__ = ()
    __init__ = object.__init__


class Segment(ValueTrace):
    """Runs a function on the values inside its traced inputs, and notes what else it met: what it closes over.

    ``given`` takes the places of what it closes over, in the order of their use, where that is known already.
    """

    __slots__ = ("closed_over", "given", "seen")
    mode = "checkpoint"

    def __init__(self, captured: Captured, given: list[Any] | None = None) -> None:
        super().__init__(captured)
        self.closed_over: list[Traced] = []
        self.given = given
        self.seen: dict[int, Traced] = {}

    def end(self) -> None:
        """End the trace, and forget the values that belong to it: they would be a cycle."""
        super().end()
        self.seen.clear()

    tensor = SegmentTensor

    def wrap(self, value: Any) -> Traced:
        """Make a value of this trace."""
        t: Traced = self.tensor()
        t.value = value
        t._trace = self
        t.note = None
        return t

    def run(self, f: Any, treedef: tree.TreeDef, leaves: list[Any], inputs: list[int], values: list[Any]) -> Any:
        """Call a function with some of its leaves replaced."""
        leaves = list(leaves)
        for k, x in zip(inputs, values, strict=True):
            leaves[k] = self.wrap(x)
        args, kwargs = treedef.unflatten(leaves)
        with as_running(), writing_only_above(self):
            return settled_tree(f(*args, **kwargs))

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on the values inside."""
        self.check_alive()
        lowered = self.lower(args), {k: self.lower(v) for k, v in kwargs.items()}
        ans = prim.fun(*lowered[0], **lowered[1])
        if prim.rules:
            ans = tree.map(lambda x: self.wrap(x) if hasattr(x, "dtype") and x.dtype.kind in "fc" else x, ans)
            follow(prim, ans, args, kwargs, self)
        return ans

    def lower(self, x: Any) -> Any:
        """Return the value of one of its own traced values, or of one that it closes over."""
        if isinstance(x, Traced):
            if x._trace is self:
                return x.value
            if x._trace is CONSTANTS and x.place.family.born < self.level:  # a buffer from outside, like an array
                self.captured.add(x.value, *caller())
            return self.capture(x).value if isinstance(x._trace, (ReverseTrace, ForwardTrace)) else x
        if isinstance(x, np.ndarray):
            self.captured.add(x, *caller())  # the function is run again: it has to find the same values
        return x.__class__([self.lower(e) for e in x]) if x.__class__ in (list, tuple) else x

    def capture(self, x: Traced) -> Traced:
        """Return what stands for a traced value from outside."""
        if id(x) not in self.seen:
            value = settled(without_reverse(settled(x))) if self.given is None else self.given[len(self.closed_over)]
            self.seen[id(x)] = self.wrap(value)
            self.closed_over.append(x)
        return self.seen[id(x)]


def reopen(x: Any) -> None:
    """Let a captured value be used after its traces have ended: the backward pass runs its function again."""
    while isinstance(x, Traced):
        x._trace.reopened = True
        x = x.value


def without_reverse(x: Any) -> Any:
    """Return the value inside all reverse and forward traces."""
    while isinstance(x, Traced) and isinstance(x._trace, (ReverseTrace, ForwardTrace)):
        x = x.value
    return x


def is_differentiated(x: Any) -> bool:
    """Tell whether a value belongs to a reverse or forward trace at any level."""
    while isinstance(x, Traced):
        if isinstance(x._trace, (ReverseTrace, ForwardTrace)):
            return True
        x = x.value
    return False


class ReplayTrace(ReverseTrace):
    """Notes the graph of a checkpointed function; what it closes over is replaced by leaves, in the order of first use."""

    __slots__ = ("f", "leaves", "seen")

    def __init__(self, f: Any) -> None:
        super().__init__(Captured(how=False))  # walked at once
        self.f = f
        self.leaves: list[Any] = []
        self.seen: dict[int, tuple[Traced, Any]] = {}

    def end(self) -> None:
        """End the trace, and forget the values that belong to it: they would be a cycle."""
        super().end()
        self.seen.clear()
        self.leaves = []

    def adopt(self, x: Any) -> Any:
        """Replace traced values from outside."""
        if isinstance(x, Traced):
            if x._trace is self or not isinstance(x._trace, (ReverseTrace, ForwardTrace)):
                return x
            if id(x) not in self.seen:
                if len(self.seen) == len(self.leaves):
                    raise another(self.f)
                self.seen[id(x)] = (x, self.leaves[len(self.seen)])
            return self.seen[id(x)][1]
        return x.__class__([self.adopt(e) for e in x]) if x.__class__ in (list, tuple) else x

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive and note its node."""
        return super().process(prim, self.adopt(args), {k: self.adopt(v) for k, v in kwargs.items()})


class Replay:
    """What the backward pass needs to run a checkpointed function again."""

    def __init__(
        self,
        f: Any,
        treedef: tree.TreeDef,
        leaves: list[Any],
        inputs: list[int],
        mine: list[bool],
        known: list[Any],
        captured: Captured,
    ) -> None:
        self.f = f
        self.treedef = treedef
        self.inputs = inputs
        self.leaves = [None if k in inputs else x for k, x in enumerate(leaves)]
        self.mine = mine
        self.known: list[Any] | None = known
        self.sketches = [sketch(x) for x in known]
        self.captured = captured

    def compare(self, outputs: list[Any]) -> None:
        """Raise if the function gave other outputs than the first time."""
        for was, now in zip(self.sketches, map(sketch, outputs), strict=True):
            with np.errstate(all="ignore"):
                if was[0] == now[0] and abs(now[1] - was[1]) > was[2]:
                    raise another(self.f)

    def again(self, leaves: list[Any]) -> list[Any]:
        """Run the function on other leaves, natively at whatever levels they belong to."""
        n = len(self.inputs)
        segment = Segment(Captured(how=False), given=leaves[n:])
        out = tree.leaves(segment.run(self.f, self.treedef, self.leaves, self.inputs, leaves[:n]))
        segment.end()
        return [x.value if isinstance(x, Traced) and x._trace is segment else x for x in own_outputs(out, self.mine)]


def sketch(x: Any) -> tuple[int, Any, float]:
    """Return an array's size, its product with fixed weights, and how far that may move by rounding alone."""
    while isinstance(x, Traced):
        x = x.value
    x = np.ravel(x)
    size = x.size
    if size > WHOLE:
        x = x[samples(size)]
    with np.errstate(all="ignore"):
        return (
            size,
            np.einsum("i,i", x, all_weights()[: x.size]),
            np.sqrt(np.finfo(x.dtype).eps) * float(np.sum(np.abs(x))),
        )


@functools.cache
def all_weights() -> Any:
    """Return weights of different sizes for the entries of an array, made once."""
    return 0.5 + scrambled(WHOLE, 0) / 2.0**64


def another(f: Any) -> InPlaceError:
    """Make the error for a function that computes something else when it is run again."""
    return InPlaceError(
        f"checkpoint({getattr(f, '__name__', f)}): the function gave another result when the backward pass ran it again. "
        f"Something that it uses was changed in between: an array, a variable of a loop, or the state of a random generator. "
        f"Pass that in as an argument, or draw random numbers before."
    )


def own_outputs(outputs: list[Any], mine: list[bool]) -> list[Any]:
    """Return the outputs that depend on what a segment was given."""
    return [x for x, m in zip(outputs, mine, strict=True) if m]


def replayed(leaves: list[Any], call: Replay) -> Any:
    """Return the outputs of a checkpointed function, through every trace that its leaves belong to."""
    if isinstance(top_trace(leaves), (ReverseTrace, ForwardTrace)):
        return bind(CHECKPOINT, (leaves, call), {})
    if any(
        [is_differentiated(x) for x in leaves]
    ):  # by a level below a batch, which the first run did not look through
        return call.again(leaves)
    known, call.known = call.known, None
    return known


def replayed_vjp(g: Any, leaves: list[Any], call: Replay) -> list[Any]:
    """Run the function again, this time noting its graph, and walk back through it."""
    call.captured.check()
    trace = ReplayTrace(call.f)
    inner = [trace.leaf(x) for x in leaves]
    n = len(call.inputs)
    trace.leaves = inner[n:]
    all_leaves = list(call.leaves)
    for k, x in zip(call.inputs, inner[:n], strict=True):
        all_leaves[k] = x
    args, kwargs = call.treedef.unflatten(all_leaves)
    with as_running(), writing_only_above(trace):
        out = settled_tree(call.f(*args, **kwargs))
    trace.end()
    outputs = tree.leaves(out)
    if len(outputs) != len(call.mine):
        raise another(call.f)
    outputs = own_outputs(outputs, call.mine)
    call.compare(outputs)
    pairs = [(x.note, ct) for x, ct in zip(outputs, g, strict=True) if isinstance(x, Traced) and x._trace is trace]
    with np.errstate(all="ignore"):
        cts, _ = walk([note for note, _ in pairs], [ct for _, ct in pairs], len(leaves))
    return [np.zeros(shape_of(x), dtype_of(x)) if ct is None else ct for ct, x in zip(cts, leaves, strict=True)]


CHECKPOINT = Primitive(
    replayed, GENERAL, {"leaves": replayed_vjp}, name="checkpoint", signature="leaves, call", sequences=("leaves",)
)


def checkpoint(f: Callable[P, R]) -> Checkpoint[P, R]:
    """Return ``f`` as a function that keeps nothing for the backward pass but its inputs, and runs again there.

    Memory for time: a long computation cut into n checkpointed parts keeps the values of one part at a time, and runs
    each part twice. What ``f`` closes over is differentiated too. ``f`` has to do the same when it is run again.

    Parameters
    ----------
    f : function of arrays, or trees of them

    Returns
    -------
    function with the arguments of f
        It returns what ``f`` returns, of the same shapes and dtypes.

    Raises
    ------
    InPlaceError
        In the backward pass, if ``f`` gives another result when it is run again.

    Examples
    --------
    >>> grad(lambda x: checkpoint(np.sin)(x) ** 2)(0.5) == 2 * np.sin(0.5) * np.cos(0.5)
    np.True_
    """
    return Checkpoint(f)
