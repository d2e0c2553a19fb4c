"""Traces: who takes part in one run of one transform, and which of several nested ones an operation belongs to.

A transform wraps its inputs in traced values that belong to its trace. An operation looks for the trace with the highest
level among its arguments; that trace unwraps its own values and runs the operation on what is inside, which may be
traced by a lower level, and so on down to plain arrays. A trace's level is the next number of one counter: the newer
trace is always the inner one, whichever thread made it, and there is nothing to restore after an exception.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from meintorch.core.captured import SMALL, Captured
from meintorch.core.memory import clone, layout_of, through
from meintorch.core.primitive import COMPOSITE, CONSTANT, STRUCTURAL, Primitive, find, name_of
from meintorch.errors import EscapedTensorError, InPlaceError, InputError, LostDerivativeError, NoRuleError, source_line

levels = itertools.count(1)


class Traced:
    """A value on its way through a trace.

    Attributes
    ----------
    value : what is inside: an array or a scalar, or a value traced by a lower level
    _trace : the trace it belongs to (ndarray has a method called trace)
    note : what that trace notes about the value (reverse mode: the node of the graph)
    place : its place among the views of an array; not set while nothing is known about it, see `meintorch.core.storage`
    """

    __slots__ = ("__weakref__", "_trace", "note", "place", "value")

    value: Any
    _trace: Trace
    note: Any
    place: Any
    written = False  # whether it has been written into, or may be; then value and note are asked from its place


class Trace:
    """One run of one transform. ``serial`` counts what it notes, and tells whether it has ended."""

    __slots__ = ("captured", "ended_at", "level", "reopened", "serial")

    tensor: type[Traced]  # the class of the values it makes; set by meintorch.tensor
    mode: str = "plain values"  # what the repr of its values calls it

    def __init__(self, captured: Captured | None = None) -> None:
        self.level = next(levels)
        self.captured = Captured() if captured is None else captured
        self.serial: int = 0
        self.ended_at = 0
        self.reopened = False  # the backward pass runs a part of the program again, in which the trace's values occur

    def end(self) -> None:
        """Make the use of values that outlive the trace an error."""
        if not self.reopened:
            self.ended_at, self.serial = self.serial, ENDED

    def check_alive(self) -> None:
        """Raise if the trace has ended."""
        self.serial += 0

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on arguments of which at least one belongs to this trace, and note what is needed."""
        raise NotImplementedError

    def is_scalar(self, t: Traced) -> bool:
        """Tell whether one of its values stands for a NumPy scalar rather than for an array without axes."""
        return is_scalar(t.value)

    def open(self, t: Traced) -> Any:
        """Return the value of one of its own traced values, in the form in which it may be kept."""
        return t.value

    # What a trace does when an array is written into, see `meintorch.core.storage`. ``s`` is the storage of the array.

    strips = True  # when the trace ends, what is inside is the right value of an array that was lifted into it

    def own(self, s: Any) -> None:
        """Make the buffer a copy that nobody else holds."""
        s.layout = layout_of(s.value)
        s.value = clone(s.value)

    def lift(self, s: Any, value: Any) -> None:
        """Make ``value``, a buffer of a lower trace, the value of this one's storage."""
        raise NotImplementedError

    def write(self, s: Any, path: Any, index: Any, value: Any, add: bool) -> None:
        """Write into the view at the end of ``path``."""
        raise NotImplementedError

    def note_of_view(self, s: Any, path: Any, value: Any) -> Any:
        """Return the note of the view at the end of ``path``, whose value is given."""
        return through(path, s.note)

    def settled(self, t: Traced) -> Any:
        """Return one of its values as it is now, whatever is written into it later."""
        still = self.tensor()
        still.value = clone(t.value) if t.written else t.value
        still._trace = self
        still.note = t.note
        return still

    def through(self, path: Any, value: Any) -> Any:
        """Return the value of the view at the end of ``path``, given that of the whole."""
        return through(path, value)

    def is_view(self, prim: Primitive, t: Traced, args: Any, kwargs: Any, part: int | None, *, copied: bool) -> bool:
        """Tell whether a result is a view of an argument for NumPy, given that it shares memory here or is ``copied``."""
        return not is_scalar(t)

    def lower(self, x: Any) -> Any:
        """Return the value inside ``x`` if it belongs to this trace, else ``x``; looks into lists and tuples."""
        if isinstance(x, Traced):
            return x.value if x._trace is self else x
        if x.__class__ is list or x.__class__ is tuple:
            return x.__class__([self.lower(e) for e in x])
        return x


def is_scalar(x: Any) -> bool:
    """Tell whether a value is, or stands for, a scalar rather than an array without axes."""
    return x._trace.is_scalar(x) if isinstance(x, Traced) else not isinstance(x, np.ndarray)


ATOMS = {int, float, bool, str, type(None), slice}  # classes of arguments that are what they are


class Call:
    """A call of a primitive, seen by the trace that runs it.

    Attributes
    ----------
    args, kwargs : the arguments with the trace's own values unwrapped
    traced : from the name of each parameter that was traced to its traced value, or, where the parameter takes a
        sequence of arrays, to a list of (element, traced value)
    places : from the same names to where the argument stands: a position or a keyword
    inputs : all traced values
    plain : the ids of the arguments that are not traced here
    volatile : the ids of values that may be written to after the call, by this trace or by another
    """

    __slots__ = ("args", "inputs", "kwargs", "places", "plain", "prim", "trace", "traced", "volatile")

    def __init__(self, trace: Trace, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.trace = trace
        self.prim = prim
        self.traced: dict[str, Any] = {}
        self.places: dict[str, int | str] = {}
        self.inputs: list[Traced] = []
        self.plain: set[int] = set()
        self.volatile: set[int] = set()
        single, tensor = prim.single, trace.tensor
        self.args = []
        for k, x in enumerate(args):
            if (
                k < len(single) and x.__class__ is tensor and x._trace is trace
            ):  # the commonest case, as `_open` would do it
                self.inputs.append(x)
                self.traced[single[k]] = x
                self.places[single[k]] = k
                self.args.append(trace.open(x))
            elif x.__class__ in ATOMS:
                self.args.append(x)
            else:
                self.args.append(self._open(x, k, *prim.parameter_at(k)))
        self.kwargs = {name: x if x.__class__ in ATOMS else self._open(x, name, name, -1) for name, x in kwargs.items()}
        if self.volatile and top_trace(self.args, self.kwargs) is not None:
            # What a lower trace is handed as a constant, it keeps as such: of a buffer that is written to again, a copy.
            self.args = [self._still(x) for x in self.args]
            self.kwargs = {name: self._still(x) for name, x in self.kwargs.items()}

    def _still(self, x: Any) -> Any:
        """Return a copy of an array that may be written to."""
        if x.__class__ is list or x.__class__ is tuple:
            return x.__class__([self._still(e) for e in x])
        return x.copy() if isinstance(x, np.ndarray) and id(x) in self.volatile else x

    def run(self) -> Any:
        """Call the primitive on the unwrapped arguments."""
        if self.prim.forward is not None:
            ans, self.kwargs["saved"] = self.prim.forward(*self.args, **self.kwargs)
            self.plain.add(id(self.kwargs["saved"]))
            return ans
        try:
            ans = self.prim.fun(*self.args, **self.kwargs)
        except (LostDerivativeError, ValueError, TypeError) as error:
            # An argument that NumPy does not look at may belong to a lower trace.
            cause = error if isinstance(error, LostDerivativeError) else error.__cause__
            if not isinstance(cause, LostDerivativeError) or top_trace(self.args, self.kwargs) is None:
                raise
            return bind(self.prim, tuple(self.args), self.kwargs)
        return np.complex128(ans) if ans.__class__ is complex else ans  # a Python complex comes of 1j * np.float64

    def _open(self, x: Any, place: int | str, parameter: str, element: int) -> Any:
        """Unwrap one argument, and note whether it is traced."""
        if isinstance(x, Traced) and element < 0 and parameter in self.prim.sequences:
            x = list(x)  # type: ignore[call-overload]
        if x.__class__ is list or x.__class__ is tuple:
            if parameter in self.prim.sequences and element < 0:
                return x.__class__([self._open(e, place, parameter, i) for i, e in enumerate(x)])
            if top_trace(x) is self.trace:
                raise no_derivative(self.prim, parameter)
            if parameter in self.prim.rules and parameter not in self.prim.sequences:
                return np.asarray(x)  # rules take arrays; and a list may be changed before the backward pass
            self.plain.add(id(x))
            return x
        if not isinstance(x, Traced) or x._trace is not self.trace:
            if x.__class__ is not np.ndarray and isinstance(x, np.ndarray) and x.__array_priority__ > 0:
                kind = type(x).__name__
                raise InputError(
                    f"{here()}: {self.prim.name} met a {kind}, whose operators do not mean what an ndarray's do. Take "
                    f"np.asarray(x) of it."
                )
            if isinstance(x, Traced) and x._trace.level < 0:  # a buffer that belongs to no transform
                x = x.value
                self.volatile.add(id(x))
                return x
            if x.__class__ is not np.ndarray and parameter in self.prim.rules and is_sequence(x):
                x = np.asarray(x)  # a range, a deque, a memoryview: like a list
            self.plain.add(id(x))
            return x
        if self.prim.rules.get(parameter) is None:
            raise no_derivative(self.prim, parameter)
        self.inputs.append(x)
        if element < 0:
            self.traced[parameter] = x
        else:
            self.traced.setdefault(parameter, []).append((element, x))
        self.places.setdefault(parameter, place)
        value = self.trace.open(x)
        if x.written:
            self.volatile.add(id(value))
        return value

    def with_every(self, change: Callable[[Any], Any], *, offsets: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with each array that may be differentiated changed, traced or not.

        ``change`` sees traced values as such. ``offsets`` takes the place of what is added to an otherwise linear function.
        """
        prim = self.prim
        traced = {}
        for parameter, found in self.traced.items():
            for element, t in found if found.__class__ is list else [(-1, found)]:
                traced[parameter, element] = t

        def changed(parameter: str, element: int, x: Any) -> Any:
            return change(traced.get((parameter, element), x))

        args, kwargs = list(self.args), dict(self.kwargs)
        for parameter in (*prim.rules, *prim.offsets):
            position = prim.parameters.index(parameter)
            if position == prim.variadic:  # all further positional arguments are its elements
                args[position:] = [changed(parameter, i, x) for i, x in enumerate(args[position:])]
                continue
            here: Any = args if position < len(args) else kwargs
            place: Any = position if position < len(args) else parameter
            if place is parameter and parameter not in kwargs:
                continue
            if parameter in prim.offsets:
                here[place] = None if here[place] is None else offsets
            elif parameter in prim.sequences:
                here[place] = here[place].__class__([changed(parameter, i, x) for i, x in enumerate(here[place])])
            else:
                here[place] = changed(parameter, -1, here[place])
        return args, kwargs

    def argument(self, parameter: str) -> Any:
        """Return one of the traced arguments, unwrapped."""
        place = self.places[parameter]
        return self.kwargs[place] if isinstance(place, str) else self.args[place]

    def kept(
        self, residuals: tuple[Any, ...], loose: list[bool], code: CodeType | None, offset: int
    ) -> tuple[Any, ...]:
        """Return residuals with the plain arrays of the user's as they are now: copied, or registered as captured.

        ``loose`` tells which of them may be arrays at all.
        """
        if True not in loose:
            return residuals
        pairs = zip(residuals, loose, strict=True)
        return tuple([self._kept(x, False, code, offset) if free else x for x, free in pairs])

    def _kept(self, x: Any, inside: bool, code: CodeType | None, offset: int) -> Any:
        if isinstance(x, np.ndarray):
            if self.volatile and (id(x) in self.volatile or x.base is not None):
                return x.copy()
            if inside or id(x) in self.plain:
                return kept(x, self.trace.captured, code, offset)
        elif x.__class__ is tuple or x.__class__ is list:
            inside = inside or id(x) in self.plain
            return x.__class__([self._kept(e, inside, code, offset) for e in x])
        elif isinstance(x, Traced):
            return x._trace.settled(x)
        return x

    def with_argument(self, parameter: str, element: int, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with one of the traced ones replaced."""
        place = self.places[parameter]
        args, kwargs = list(self.args), dict(self.kwargs)
        here: Any = kwargs if isinstance(place, str) else args
        if element < 0:
            here[place] = value
        elif self.prim.variadic is not None:
            args[self.prim.variadic + element] = value
        else:
            here[place] = here[place].__class__([value if i == element else x for i, x in enumerate(here[place])])
        return args, kwargs


def kept(x: Any, captured: Captured, code: CodeType | None, offset: int) -> Any:
    """Return a plain array of the user's, or a list or tuple of such, as it is now: copied, or registered as captured."""
    if isinstance(x, np.ndarray):
        return x.copy() if x.size <= SMALL else captured.keep(x, code, offset)
    if x.__class__ is tuple or x.__class__ is list:
        return x.__class__([kept(e, captured, code, offset) for e in x])
    return x


def no_derivative(prim: Primitive, parameter: str) -> NoRuleError:
    """Make the error for a traced argument that has no rule."""
    return NoRuleError(
        f"{here()}: {prim.name} has no derivative with respect to its argument {parameter!r}. If it should count as a "
        f"constant there, pass stop_gradient(...) of it."
    )


def is_many(ans: Any) -> bool:
    """Tell whether a primitive returned several arrays rather than one."""
    return isinstance(ans, (tuple, list))


def rebuild(like: Any, parts: list[Any]) -> Any:
    """Make a tuple, list or namedtuple like ``like`` from new parts."""
    make = getattr(like, "_make", None)
    return make(parts) if make is not None else type(like)(parts)


def top_trace(args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any] | None = None) -> Trace | None:
    """Return the trace with the highest level among the arguments, None if nothing is traced."""
    top: Trace | None = None
    for x in args if not kwargs else (*args, *kwargs.values()):
        if isinstance(x, Traced):
            trace: Trace | None = x._trace
        elif x.__class__ is list or x.__class__ is tuple:
            trace = top_trace(x)
        else:
            continue
        if trace is not None and (top is None or trace.level > top.level):
            top = trace
    return top


def bind(prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a primitive to arguments that may be traced, by handing them to the innermost trace among them."""
    if prim.kind is COMPOSITE:
        assert prim.definition is not None
        return prim.definition(*args, **kwargs)
    trace = top_trace(args, kwargs)
    if trace is None:
        if prim.sequences and any([is_sequence(x) for x in (*args, *kwargs.values())]):
            return bind(prim, tuple([as_list(x) for x in args]), {name: as_list(x) for name, x in kwargs.items()})
        return prim.fun(*args, **kwargs)
    if prim.kind is STRUCTURAL or prim.kind is CONSTANT:
        return trace.process(prim, args, kwargs)
    if kwargs or len(args) > prim.accepted:
        refuse_options(prim, args, kwargs)
    return trace.process(prim, args, kwargs)


def is_sequence(x: Any) -> bool:
    """Tell whether an argument is a sequence that is neither list nor tuple, such as a namedtuple or a deque."""
    known = x.__class__ in ATOMS or x.__class__ is list or x.__class__ is tuple
    return not known and isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def as_list(x: Any) -> Any:
    """Return a sequence of another class as a list, in which traced values are looked for; all else as it is."""
    return list(x) if is_sequence(x) else x


def refuse_options(prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse options that no rule covers, rather than ignore them."""
    for option in prim.refused:
        value = kwargs.get(option)
        if value is None and option in prim.parameters:
            position = prim.parameters.index(option)
            value = args[position] if prim.variadic is None and position < len(args) else None
        if value is None or is_default(prim, option, value):
            continue
        if option == "out":
            raise InPlaceError(
                f"{here()}: {prim.name} was asked to write a traced result into an existing array (out=, or an operator such as "
                f"`a += t` with a plain array a), which would lose its derivative. "
                f"Use the returned value instead: a = {prim.name}(...), or a = a + t."
            )
        raise NoRuleError(
            f"{here()}: {prim.name} has no derivative rule for its option {option}=. Leave it out and do its work on "
            f"the result (np.where for where=), or apply the function to stop_gradient(x)."
        )


def is_default(prim: Primitive, option: str, value: Any) -> bool:
    """Tell whether an option was given the value that it has anyway."""
    parameter = prim.signature.parameters.get(option)
    default = None if parameter is None else parameter.default
    return value is default or (
        isinstance(value, (bool, int, str)) and type(value) is type(default) and value == default
    )


def primitive_of(fun: Callable[..., Any]) -> Primitive:
    """Return the row of a NumPy callable, or say that there is none."""
    prim = find(fun)
    if prim is None:
        raise NoRuleError(
            f"{here()}: {name_of(fun)} has no derivative rule. If its result should count as a constant, apply it to "
            f"stop_gradient(x); else write it with functions that have a rule."
        )
    return prim


class Modules(dict[Any, bool]):
    """Whether a module, given by name, is a library whose lines no message names."""

    def __missing__(self, name: Any) -> bool:
        within = self[name] = str(name).startswith(("meintorch.", "numpy", "scipy"))
        return within


is_library = Modules()


def caller() -> tuple[CodeType | None, int]:
    """Return the code object and instruction offset of the user's frame: the innermost outside libraries."""
    frame: Any = sys._getframe(2)
    while frame is not None and is_library[frame.f_globals.get("__name__", "")]:
        frame = frame.f_back
    return (None, 0) if frame is None else (frame.f_code, frame.f_lasti)


def entered() -> str:
    """Name the library's function, written in Python, that the user's line has called; "" if there is none."""
    found, frame = "", sys._getframe(1)
    while frame is not None and is_library[name := frame.f_globals.get("__name__", "")]:
        if not name.startswith("meintorch"):
            package, function = name.partition("._")[0], frame.f_code.co_qualname.removesuffix(".__call__")
            found = f"a function of {package}" if "<" in function else f"{package}.{function}"
        frame = frame.f_back  # type: ignore[assignment]
    return found


def here() -> str:
    """Name the user's line that is running now."""
    return source_line(*caller())


def array_of(x: Any) -> Any:
    """Return a list that may hold traced values as one array."""
    if x.__class__ in {list, tuple} and top_trace(x) is not None:
        return np.stack([array_of(e) for e in x])
    return x if isinstance(x, Traced) else np.asanyarray(x)


class Ended:
    """Takes the place of an ended trace's counter, so that using one of its values says what is wrong.

    Living traces pay nothing for this check: counting is what they do anyway.
    """

    __slots__ = ()

    def __add__(self, other: int) -> int:
        raise EscapedTensorError(
            "a traced value was used after the transform that made it had returned (it was kept in a global, a default "
            "argument, a cache or an object). Return it from the function, as an output or with has_aux=True, instead."
        )


ENDED: Any = Ended()
