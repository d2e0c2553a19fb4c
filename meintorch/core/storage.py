"""Writing into traced arrays, and the views that see it.

NumPy itself decides what is a view: the values inside of a traced array and of its views are real NumPy views of one
buffer, so that a write through one of them reaches all. What a trace notes about the buffer is kept in one place, its
`Storage`, and the array and its views (a `Family`) look there.

Nothing is paid for it before the first write. Until then arrays and views are ordinary traced values, of which the family
holds weak references. The first write copies the buffer, which others may hold, and turns all members into values that ask
the storage each time (`meintorch.tensor.BufferTensor`). In reverse mode a write gives the storage a new node, whose parents
are the node before it and the node of what was written; a member's own node is made anew when it is next asked for. Earlier
operations keep the nodes, and copies of the values, that they have seen.

A buffer can also belong to no transform at all (`constant`): what ``np.zeros_like(t)`` returns. Writing a value of a higher
trace into it, or into any array of a lower trace, lifts the family into that trace, for as long as it lasts.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import getitem
from typing import Any

import numpy as np

from meintorch._typing import Shape
from meintorch.core.memory import (
    WRITEABLE,
    Layout,
    Path,
    bottom,
    clone,
    memory_of,
    overlaps,
    steps_of,
    through,
)
from meintorch.core.primitive import ELEMENTWISE, Primitive, registry
from meintorch.core.primitive import constant as constant_row
from meintorch.core.shapes import dtype_of, may_repeat
from meintorch.core.trace import ENDED, Trace, Traced, array_of, bind, here, is_scalar, levels, rebuild, top_trace
from meintorch.errors import InPlaceError

ndarray = np.ndarray

# ---------------------------------------------------------------- views


class Step:
    """One operation that makes a view: a row's function, and its arguments around the array that is viewed.

    In the place of that array, unless it is an element of a sequence, the arguments have None; all others do not change.
    """

    __slots__ = ("args", "kwargs", "part", "place", "prim")

    def __init__(
        self, prim: Primitive, args: list[Any], kwargs: dict[str, Any], place: Any, part: int | None = None
    ) -> None:
        self.prim = prim
        self.args = args
        self.kwargs = kwargs
        self.place = place  # (position or keyword, element of a sequence or None)
        self.part = part  # which of several outputs

    @classmethod
    def of(cls, prim: Primitive, args: Any, kwargs: Any, place: Any, part: int | None) -> Step:
        """Return the step that a call was, without the values of other arrays in it."""
        where, element = place
        viewed = where if element is None else None
        return cls(
            prim,
            [None if k == viewed else shape_only(x) for k, x in enumerate(args)],
            {name: None if name == viewed else shape_only(x) for name, x in kwargs.items()},
            place,
            part,
        )

    def __call__(self, x: Any) -> Any:
        """Return the same view of another array."""
        prim, args, kwargs = self.call_on(x)
        ans = prim.fun(*args, **kwargs)
        return ans if self.part is None else ans[self.part]

    def call_on(self, x: Any) -> tuple[Primitive, list[Any], dict[str, Any]]:
        """Return the call that makes the view, or several with it, of another array."""
        args, kwargs = list(self.args), dict(self.kwargs)
        where, element = self.place
        given: Any = kwargs if isinstance(where, str) else args
        given[where] = x if element is None else replaced(given[where], element, x)
        return self.prim, args, kwargs

    def reads(self, index: slice) -> bool:
        """Tell whether the view is that of a slice."""
        return self.prim.fun is getitem and self.args[1].__class__ is slice and bool(self.args[1] == index)

    def is_imaginary_part(self) -> bool:
        """Tell whether the view is that of imaginary parts: gradients are df/dx - i df/dy."""
        return len(self.args) == 1 and not self.kwargs and bool(np.all(self.prim.fun(np.array([[1j]])) == 1))


def sign_of(path: Path) -> int:
    """Return the factor of a cotangent that goes through a real view of complex numbers: -1 for an imaginary part."""
    return -1 if any([isinstance(step, Step) and step.is_imaginary_part() for step in steps_of(path)]) else 1


PLAIN = {int, slice, bool, str, type(None), type(Ellipsis)}


def replaced(xs: Any, element: int, x: Any) -> Any:
    """Return a list or tuple with one element replaced."""
    return rebuild(xs, [x if i == element else e for i, e in enumerate(xs)])


def shape_only(x: Any) -> Any:
    """Return an argument without the values of arrays in it: to make a view they do not matter."""
    if x.__class__ in PLAIN:
        return x
    if isinstance(x, Traced) or (isinstance(x, ndarray) and x.dtype.kind in "fc"):
        given: Any = x
        return np.broadcast_to(np.zeros((), given.dtype), given.shape)
    return x.__class__([shape_only(e) for e in x]) if x.__class__ in {list, tuple} else x


def through_writable(path: Path, x: Any) -> Any:
    """Return the view of one of our own buffers at the end of a path, for writing."""
    view = through(path, x)
    if path is not None and memory_of(view) is not memory_of(x):
        raise InPlaceError(
            f"{here()}: a view of a traced array could not be followed here. Write into the array itself."
        )
    return view


class Storage:
    """What one trace knows of a buffer: the value of the whole, and the trace's note on it."""

    __slots__ = ("layout", "lifted", "note", "trace", "value", "version")

    def __init__(self, trace: Trace, value: Any, note: Any, layout: Any = None, *, lifted: bool = False) -> None:
        self.trace = trace
        self.value = value
        self.note = note
        self.layout = layout
        self.lifted = lifted  # the family was lifted into the trace, and leaves it when that ends
        self.version = 0  # goes up with each write


class Family:
    """An array and its views."""

    __slots__ = ("_members", "_storage", "born", "exports", "written")

    def __init__(self, storage: Storage, *, written: bool = False) -> None:
        self.born = next(levels) if storage.trace.level < 0 else 0  # after or before the start of some trace
        self._storage = storage
        self._members: list[weakref.ref[Traced]] = []
        self.written = written
        self.exports: list[weakref.ref[Any]] = []  # plain arrays that were made of a buffer without a trace

    def check_inside(self) -> None:
        """Raise if a checkpointed function writes into an array from outside, which it would do again when it is replayed."""
        s, segment = self._storage, replayed.get()
        if segment is not None and (self.born or s.trace.level) < segment.level:
            raise InPlaceError(
                f"{here()}: a checkpointed function writes into an array that comes from outside, and would do so again when "
                f"the backward pass runs it. Pass the array in as an argument, and return it."
            )

    def join(self, t: Traced) -> None:
        """Add a member."""
        if self.written:
            t.__class__ = CONSTANTS.tensor
            return
        members = self._members
        if len(members) > 8 and len(members) & (len(members) - 1) == 0:  # now and then, those that are gone are dropped
            self._members = members = [ref for ref in members if ref() is not None]
        members.append(weakref.ref(t))

    def storage(self) -> Storage:
        """Return the storage of the innermost trace that is still running."""
        s = self._storage
        while s.lifted and s.trace.serial is ENDED:
            if not s.trace.strips:
                raise InPlaceError(
                    f"{here()}: an array that was filled inside vmap is used after it. Each example wrote its own values: "
                    f"return them from the function instead."
                )
            inside = s.value
            s = (
                inside.place.family.storage()
                if isinstance(inside, Traced)
                else Storage(CONSTANTS, inside, None, s.layout)
            )
            self._storage = s
        return s

    def begin(self) -> None:
        """Prepare for the first write: the buffer becomes our own, and all members ask the storage from now on."""
        s = self._storage
        if not bottom(s.value).flags.writeable:
            raise ValueError("assignment destination is read-only")
        s.trace.own(s)
        self.written = True
        for ref in self._members:
            t = ref()
            if t is not None:
                t.value = t.note = None  # the storage knows
                t.__class__ = CONSTANTS.tensor
        self._members = []

    def lift(self, trace: Trace) -> Storage:
        """Hand the buffer over to a higher trace, for as long as that lasts."""
        s = self._storage
        value = s.value
        if s.trace is CONSTANTS:
            if any([ref() is not None for ref in self.exports]):
                raise InPlaceError(
                    f"{here()}: a traced value is written into a buffer of which a plain array was made (np.asarray), which "
                    f"would not see its derivative. Make that a copy: np.array(buffer)."
                )
        else:
            value = handle(Family(s, written=True))
        self._storage = Storage(trace, None, None, s.layout, lifted=True)
        trace.lift(self._storage, value)
        return self._storage


class Place:
    """Where a member of a family finds its value and note."""

    __slots__ = ("_note", "_root", "_storage", "_value", "_version", "family", "path")

    _note: Any
    _storage: Storage
    _value: Any
    _version: int

    def __init__(self, family: Family, path: Path) -> None:
        self.family = family
        self.path = path
        self._root: Any = None  # the value of the whole that the rest was made from

    def trace(self) -> Trace:
        """Return the trace that the member belongs to now."""
        return self.family.storage().trace

    def value(self) -> Any:
        """Return the member's value: a view of the buffer."""
        s = self.family.storage()
        if self._root is not s.value or self._storage is not s:
            self._renew(s)
        return self._value

    def note(self) -> Any:
        """Return what the trace notes about the member."""
        s = self.family.storage()
        if self._root is not s.value or self._storage is not s:
            self._renew(s)
        if self._version != s.version:
            self._note = s.note if self.path is None else s.trace.note_of_view(s, self.path, self._value)
            self._version = s.version
        return self._note

    def _renew(self, s: Storage) -> None:
        self._root, self._storage, self._version = s.value, s, -1
        self._value = s.trace.through(self.path, s.value)


def place_of(t: Traced) -> Place:
    """Return a value's place in its family, which is founded if there is none."""
    place: Place | None = getattr(t, "place", None)
    if place is None:
        family = Family(Storage(t._trace, t.value, t.note))
        t.place = place = Place(family, None)
        family.join(t)
    return place


def follow(
    prim: Primitive, ans: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace, *, copied: bool = False
) -> None:
    """Let a result join the family of the argument that it is a view of.

    ``copied``: the trace has made copies of what may be views.
    """
    if prim.kind is ELEMENTWISE:
        return
    if isinstance(ans, Traced):  # the commonest case first: a scalar, or an array of its own
        value = ans.value
        if value.__class__ is not ndarray and not isinstance(value, Traced):
            return
        if value.__class__ is ndarray and value.base is None and not copied and not holds(args, value):
            return
    many = ans.__class__ is list or isinstance(ans, tuple)
    for part, t in enumerate(ans) if many else [(None, ans)]:
        value = bottom(t)
        if value.__class__ is not ndarray or not isinstance(t, Traced):
            continue
        memory = memory_of(value)
        for place, x in places(args, kwargs):
            if x._trace is trace and (
                copied or (memory_of(x.value) is memory and np.may_share_memory(value, bottom(x.value)))
            ):
                if trace.is_view(prim, t, args, kwargs, part, copied=copied):
                    source = place_of(x)
                    t.place = Place(source.family, (source.path, Step.of(prim, args, kwargs, place, part)))
                    source.family.join(t)
                break


def follow_view(t: Traced, x: Traced, prim: Primitive, args: list[Any], kwargs: dict[str, Any], place: Any) -> None:
    """Let a result join the family of ``x``, the one argument that is traced, if it is a view of that.

    The arguments are those of a `Step`.
    """
    base = t.value.base
    if base is x.value or (base is not None and base is x.value.base) or memory_of(t.value) is memory_of(x.value):
        source = place_of(x)
        t.place = Place(source.family, (source.path, Step(prim, args, kwargs, (place, None))))
        source.family.join(t)


def holds(args: tuple[Any, ...], value: Any) -> bool:
    """Tell whether a result is the very array that an argument holds."""
    return any([isinstance(x, Traced) and x.value is value for x in args])


def arrays_in(*args: Any) -> list[Any]:
    """Return the arrays among arguments, and in lists of them."""
    found: list[Any] = []
    for x in args:
        if x.__class__ is list or x.__class__ is tuple:
            found += arrays_in(*x)
        elif isinstance(x, (ndarray, Traced)):
            found.append(x)
    return found


def places(args: Any, kwargs: Any) -> Any:
    """Go through the traced arguments of a call, each with where it stands."""
    for where, x in itertools.chain(enumerate(args), kwargs.items()):
        if isinstance(x, Traced):
            yield (where, None), x
        elif x.__class__ is list or x.__class__ is tuple:
            for i, e in enumerate(x):
                if isinstance(e, Traced):
                    yield (where, i), e


# ---------------------------------------------------------------- writing


# The trace of the innermost checkpointed function that is running: arrays that are older may not be written into.
replayed: ContextVar[Trace | None] = ContextVar("replayed", default=None)


# Whether a transform is running the user's code: then meintorch.numpy makes buffers that take traced values.
running: ContextVar[bool] = ContextVar("running", default=False)


@contextlib.contextmanager
def as_running() -> Iterator[None]:
    """Run code of the user's as a part of a transform."""
    token = running.set(True)
    try:
        yield
    finally:
        running.reset(token)


@contextlib.contextmanager
def writing_only_above(trace: Trace | None) -> Iterator[None]:
    """Refuse writes into arrays that are older than a trace, if there is one."""
    token = replayed.set(trace)
    try:
        yield
    finally:
        replayed.reset(token)


def prepare(target: Any) -> None:
    """Make an array's buffer our own, as it will be written into."""
    place = place_of(target)
    if not place.family.written:
        place.family.begin()


def write(target: Any, index: Any, value: Any, *, add: bool = False) -> None:
    """Do ``target[index] = value``; with ``add``, ``np.add.at(target, index, value)``."""
    if value.__class__ is list or value.__class__ is tuple:
        value = array_of(value)
    segment = replayed.get()
    if segment is not None and isinstance(value, Traced) and 0 < value._trace.level < segment.level:
        value = segment.process(registry[clone], (value,), {})  # it has to know of what it closes over
    trace = top_trace((target, index, value))
    assert trace is not None
    if trace.level == 0 or target._trace.level == 0:
        raise InPlaceError(
            f"{here()}: a Tensor of the object style is not written into, nor into another array. Build the new array with "
            f"np.where, np.stack or np.concatenate; between backward passes assign to t.data."
        )
    place = place_of(target)
    family = place.family
    family.check_inside()
    if not add and isinstance(value, Traced) and is_same(family, target, index, value):
        return
    trace.check_alive()
    check_apart(bottom(target))
    if not family.written:
        if is_scalar(target):
            raise TypeError(f"'numpy.{dtype_of(target).type.__name__}' object does not support item assignment")
        family.begin()
    s = family.storage()
    if trace is not s.trace:
        s = family.lift(trace)
    if segment is None:
        trace.write(s, place.path, frozen(index), value, add)
    else:
        with writing_only_above(None):  # the array inside of this one may belong to an older trace
            trace.write(s, place.path, frozen(index), value, add)
    s.version += 1


def check_apart(x: Any) -> None:
    """Raise if a plain array cannot be written into entry by entry."""
    if x.__class__ is ndarray and overlaps(x):
        if not x.flags.num & WRITEABLE:
            raise ValueError("assignment destination is read-only")
        raise InPlaceError(
            f"{here()}: this writes into an array some of whose entries share memory (what np.broadcast_arrays, np.meshgrid or "
            f"sliding windows return). Write into a copy."
        )


def is_same(family: Family, target: Traced, index: Any, value: Traced) -> bool:
    """Tell whether ``target[index] = value`` ends ``target[index] op= ...``, which has been written through a view."""
    if getattr(value, "place", None) is None or value.place.family is not family:
        return False
    if index.__class__ is slice and value.place.path is not None:
        before, step = value.place.path
        if before is target.place.path and isinstance(step, Step) and step.reads(index):
            return True
    here, there = bottom(target[index]), bottom(value)  # type: ignore[index]
    if here.__class__ is not ndarray or here.dtype != there.dtype or here.shape != there.shape:
        return False
    return bool(here.ctypes.data == there.ctypes.data and here.strides == there.strides)


def frozen(index: Any) -> Any:
    """Return an index that nobody can change any more."""
    if index.__class__ is tuple:
        return tuple([frozen(part) for part in index])
    if index.__class__ is list:
        return array_of(index) if top_trace(index) is not None else np.array(index, np.intp if not index else None)
    if isinstance(index, ndarray):
        return index.copy()
    return index


def put(part: Any, path: Path, index: Any, value: Any, add: bool) -> Any:
    """Write into a plain buffer or one of a lower trace; return it, or what takes its place."""
    if not isinstance(part, Traced) and top_trace((index, value)) is not None:
        part = constant(part)
    view = through_writable(path, part)
    if add:
        if not bottom(view).flags.writeable:  # np.add.at does not always look
            raise ValueError("assignment destination is read-only")
        add_at(view, index, value)
    else:
        view[index] = value
    return part


def add_at(view: Any, index: Any, value: Any) -> None:
    """Do ``np.add.at``; many times as fast where no entry is named twice."""
    if isinstance(view, Traced) or may_repeat(index):
        np.add.at(view, index, value)
    else:
        view[index] += value


def last_written(shape: Shape, index: Any) -> Any:
    """Return for each entry that ``t[index] = v`` writes whether it stays: of those at the same place the last one does."""
    if top_trace((index,)) is not None:
        return bind(registry[last_written], (shape, index), {})
    number = np.empty(shape, np.intp)
    region = number[index].shape
    ids = np.arange(int(np.prod(region))).reshape(region)
    number[index] = ids
    return number[index] == ids


constant_row(last_written)

# ---------------------------------------------------------------- buffers that belong to no transform


class ValueTrace(Trace):
    """A trace that notes nothing about its arrays: their storage is just the buffer."""

    __slots__ = ()

    def lift(self, s: Storage, value: Any) -> None:
        """Take over a buffer of a lower trace."""
        s.value = value

    def write(self, s: Storage, path: Path, index: Any, value: Any, add: bool) -> None:
        """Write into the view at the end of ``path``."""
        s.value = put(s.value, path, self.lower(index), self.lower(value), add)

    def note_of_view(self, s: Storage, path: Path, value: Any) -> None:
        """Note nothing."""


class ConstantTrace(ValueTrace):
    """Below all others: buffers that hold plain values, until a traced value is written into one."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.level = -1

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on the values; a view of a buffer is a buffer."""
        return self.call(prim.fun, args, kwargs, prim)

    def call(self, fun: Callable[..., Any], args: Any, kwargs: Any, prim: Primitive | None = None) -> Any:
        """Call a function on the values; what it makes can be written into, too."""
        ans = fun(*self.lower(args), **{k: self.lower(v) for k, v in kwargs.items()})

        def buffer(x: Any, part: int | None) -> Any:
            if x.__class__ is not ndarray or x.dtype.kind not in "fc":
                return x
            for place, given in places(args, kwargs):
                if given._trace is not self:
                    continue
                if given.value is x:
                    return given
                if memory_of(given.value) is memory_of(x):
                    if prim is None:
                        raise InPlaceError(
                            f"{here()}: {fun.__name__} made a view of a buffer, which cannot be followed."
                        )
                    source = place_of(given)
                    return handle(source.family, (source.path, Step.of(prim, args, kwargs, place, part)))
            plain = arrays_in(*args, *kwargs.values())
            return x if any([memory_of(a) is memory_of(x) for a in plain]) else constant(x)

        if ans.__class__ is list or isinstance(ans, tuple):
            return rebuild(ans, [buffer(x, part) for part, x in enumerate(ans)])
        return buffer(ans, None)

    def settled(self, t: Traced) -> Any:
        """Return the values as a plain array."""
        return t.value.copy("K")


CONSTANTS = ConstantTrace()


def filled(layout: Layout, content: Any) -> Any:
    """Return a buffer of our own with a certain layout and content."""
    buffer = layout.blank()
    if isinstance(content, Traced):
        buffer = constant(buffer)
    buffer[...] = content
    return buffer


def constant(buffer: Any) -> Any:
    """Return a handle for a plain buffer of our own, into which traced values can be written."""
    return handle(Family(Storage(CONSTANTS, buffer, None, Layout(buffer)), written=True))


def handle(family: Family, path: Path = None) -> Any:
    """Return a value that asks a family's storage."""
    t = CONSTANTS.tensor()
    t.place = Place(family, path)
    return t


def settled(x: Any) -> Any:
    """Return a value as it is now, whatever is written into it later; of a buffer without a trace a plain copy."""
    return x._trace.settled(x) if isinstance(x, Traced) else x
