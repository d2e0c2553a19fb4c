"""The Tensor: a value on its way through a trace, which behaves like the ndarray that it stands for.

Tensors made by a user (`Tensor(data)`) belong to the object style; those inside a function that is being differentiated
belong to a transform. Both hand every operation to `meintorch.core.trace.bind`, which finds the operation's row.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from meintorch._typing import Array, Shape
from meintorch.core import large, specialise
from meintorch.core.adoption import is_sole
from meintorch.core.batching import BatchTrace
from meintorch.core.captured import Captured
from meintorch.core.dead import DeadTrace
from meintorch.core.forms import form_of, forms, warming
from meintorch.core.forward import ForwardTrace
from meintorch.core.graph import Node, ReverseTrace, pull_pick, pull_scaled
from meintorch.core.memory import bottom, multiplied
from meintorch.core.objects import OBJECTS, Cotangents, Note
from meintorch.core.primitive import ELEMENTWISE, find, registry
from meintorch.core.shapes import astype, discretize, dtype_of, may_repeat, shape_of, unbroadcast
from meintorch.core.storage import CONSTANTS, ConstantTrace, constant, prepare, write
from meintorch.core.trace import ENDED, Traced, bind, entered, here, is_scalar, primitive_of, top_trace
from meintorch.errors import BatchError, InPlaceError, InputError, LostDerivativeError, NoRuleError

__all__ = ["Tensor", "as_tensor", "unbroadcast"]

Method: TypeAlias = Callable[..., Any]


def is_batched(x: Any) -> bool:
    """Tell whether a value stands for a batch of examples, at any level."""
    while isinstance(x, Traced):
        if isinstance(x._trace, BatchTrace):
            return True
        x = x.value
    return False


def lost(what: str, instead: str, x: Any = None) -> LostDerivativeError:
    """Make the error for an operation that would drop the derivative."""
    if is_batched(x):
        instead = "Inside vmap it stands for many examples at once: keep it an array, or loop over the examples instead of vmap."
        if x.dtype.kind in "iu":
            instead += " To index a plain array with it use np.take_along_axis."
        elif "np.stack" in what or "np.array" in what:
            instead += " Build arrays of such values with np.stack."
    if function := entered():
        what = f"{function}, which needs plain numbers: {what}"
    if "scipy" in function:
        instead = (
            "Write it with functions that have a rule (np.logaddexp.reduce for logsumexp, np.linalg for scipy.linalg; the "
            "documentation's page Use SciPy has more), give it a rule with meintorch.func.primitive, or pass "
            "stop_gradient(x) where the derivative is not wanted."
        )
    return LostDerivativeError(
        f"{here()}: {what} would turn a traced value into a plain one and lose its derivative. {instead}"
    )


def assign(target: Any, value: Any) -> Any:
    """Write a whole array into another, as ufuncs do with ``out=``, and return that."""
    dtype = dtype_of(value)
    if not np.can_cast(dtype, target.dtype, "same_kind"):
        raise TypeError(f"Cannot cast ufunc output from {dtype!r} to {target.dtype!r} with casting rule 'same_kind'")
    shape = np.broadcast_shapes(shape_of(value), target.shape)
    if shape != target.shape:
        raise ValueError(f"non-broadcastable output operand with shape {target.shape} doesn't match the shape {shape}")
    target[...] = value
    return target


def _binary(fun: Callable[..., Any]) -> tuple[Method, Method, Method]:
    """Make an operator's method, its reflected form and its in-place form."""

    def method(a: Any, b: Any) -> Any:
        return bind(registry[fun], (a, b), {})

    def reflected(b: Any, a: Any) -> Any:
        return bind(registry[fun], (a, b), {})

    def in_place(a: Any, b: Any) -> Any:
        # A scalar is rebound, as in NumPy, and so are the tensors of the object style, which has no views.
        if a._trace is OBJECTS or is_scalar(a):
            return fun(a, b)
        if fun is operator.mul and a.dtype.kind == "c":
            prepare(a)
            return assign(a, bind(registry[multiplied], (a, b), {}))
        return assign(a, bind(registry[fun], (a, b), {}))

    return method, reflected, in_place


def _unary(fun: Callable[..., Any]) -> Method:
    return lambda a: bind(registry[fun], (a,), {})


def _comparison(fun: Callable[..., Any]) -> Method:
    return lambda a, b: bind(registry[fun], (a, b), {})


def _method(fun: Callable[..., Any]) -> Method:
    """Make the method that does what a NumPy function does."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fun(self, *args, **kwargs)

    method.__name__ = fun.__name__
    method.__doc__ = f"Apply `numpy.{fun.__name__}` to the array."
    return method


class Tensor(Traced):
    """An array that remembers how it was computed.

    Parameters
    ----------
    data : array_like of real numbers, of any shape; copied, as float64
    _children : the tensors that it was computed from, for an operation of one's own
    _op : a name for that operation

    Raises
    ------
    InputError
        If ``data`` are not real numbers.

    Notes
    -----
    An operation of one's own computes its value, makes ``out = Tensor(value, (self,), "name")`` and assigns to
    ``out._backward`` a function without arguments that reads ``out.grad`` and does ``self.grad += ...``.

    Examples
    --------
    >>> x = Tensor(3.0)
    >>> y = x * x + x
    >>> y.backward()
    >>> x.grad
    array(7.)
    """

    __slots__ = ()

    def __init__(self, data: Any, _children: tuple[Tensor, ...] = (), _op: str = "") -> None:
        if not isinstance(_children, (tuple, list, set, frozenset)):
            raise InputError(f"_children is a tuple of tensors, such as (x,), not {type(_children).__name__}")
        children = tuple(_children)
        for child in (data, *children):
            if isinstance(child, Traced) and child._trace is not OBJECTS:
                raise lost("making a Tensor of it", "Inside a transform use the value as it is.")
        self.value = real_array(bottom(data))
        self._trace = OBJECTS
        self.note = OBJECTS.note(children, _op)

    # ------------------------------------------------------------ what an array tells

    @property
    def shape(self) -> Shape:
        """The shape of the array."""
        shape: Shape = self.value.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        dtype: np.dtype[Any] = self.value.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self.value.size)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the entries."""
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        """The number of bytes of one entry."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an unsized Tensor: it has no axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a Tensor without axes")
        return iter([self[i] for i in range(self.shape[0])])

    def __repr__(self) -> str:
        array = np.asarray(bottom(self))
        parts = [np.array2string(array, separator=", ", prefix="Tensor(")]
        if self._trace is not OBJECTS or array.size > np.get_printoptions()["threshold"]:
            parts.append(f"shape={self.shape}")
        t: Any = self
        while isinstance(t, Traced) and t._trace.level > 0:  # the object style is what a Tensor is by itself
            parts.append(f"{t._trace.mode} at level {t._trace.level}")
            t = t.value
        return f"Tensor({', '.join(parts)})"

    def __format__(self, spec: str) -> str:
        return format(bottom(self), spec) if spec and not is_batched(self) else repr(self)

    def __hash__(self) -> int:
        if self._trace is OBJECTS:
            return object.__hash__(self)
        raise lost(
            "using it as a key of a dict, in a set or for a cache",
            "By value it would lose its derivative, and by identity it would not be found again. Use "
            "float(stop_gradient(x)) as the key.",
            self,
        )

    # ------------------------------------------------------------ what would cut the trace

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise lost(
            "converting it to an ndarray (np.array, np.asarray, or a function that calls them)",
            "Use np.stack([...]) or np.concatenate to build arrays from traced values, or meintorch.numpy, whose functions "
            "see them; and stop_gradient(x) (in the object style x.data) where the derivative is not wanted.",
            self,
        )

    def __float__(self) -> float:
        raise lost(
            "float() of it (also by math.sin and the like, or by assigning it into a plain ndarray)",
            "Use NumPy's function (np.sin), build arrays with np.stack or np.where, or take float(stop_gradient(x)) "
            "where the derivative is not wanted.",
            self,
        )

    def __complex__(self) -> complex:
        raise lost("complex() of it", "Write x + 0j, or take complex(stop_gradient(x)).", self)

    def __index__(self) -> int:
        raise lost("using it as an index", "Use int(x): an integer has no derivative.", self)

    def item(self, *args: Any) -> float:
        """Refuse: a Python number has no derivative."""
        raise lost(
            "x.item()", "Index it (x[0]), or take stop_gradient(x).item() where the derivative is not wanted.", self
        )

    def tolist(self) -> list[Any]:
        """Refuse: Python numbers have no derivative."""
        raise lost("x.tolist()", "Use list(x), or stop_gradient(x).tolist() where the derivative is not wanted.", self)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self.value) if ndigits is None else np.round(self, ndigits)

    def __trunc__(self) -> int:
        return int(self.value)

    def __floor__(self) -> int:
        below: int = math.floor(self.value)
        return below

    def __ceil__(self) -> int:
        above: int = math.ceil(self.value)
        return above

    # ------------------------------------------------------------ writing into it

    def __setitem__(self, index: Any, value: Any) -> None:
        write(self, index, value)

    def fill(self, value: Any) -> None:
        """Set all entries to one value."""
        if shape_of(value) != ():
            raise ValueError("x.fill takes one value for all entries; use x[...] = values")
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        """Sort the entries in place; see `numpy.sort`."""
        self[...] = np.sort(self, axis, kind, order)

    def partition(self, kth: Any, axis: int = -1, kind: Any = "introselect") -> None:
        """Partition the entries in place; see `numpy.partition`."""
        self[...] = np.partition(self, kth, axis, kind)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Set entries, counted in C order; see `numpy.put`."""
        np.put(self, indices, values, mode)  # type: ignore[arg-type]

    # ------------------------------------------------------------ NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if method == "at":
            at(ufunc, *args)
            return None
        kwargs = without_none(kwargs)
        if method == "outer":
            a, b = args
            return ufunc(np.reshape(a, np.shape(a) + (1,) * np.ndim(b)), b, **kwargs)
        if "out" in kwargs or "where" in kwargs:
            return with_options(self, ufunc, method, args, kwargs)
        if method == "__call__":
            return bind(primitive_of(ufunc), args, kwargs)
        return bind(primitive_of(getattr(ufunc, method)), args, kwargs)

    def __array_function__(
        self, fun: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        out = kwargs.get("out")
        if isinstance(out, Tensor):
            return assign(out, fun(*args, **{k: v for k, v in kwargs.items() if k != "out"}))
        return bind(primitive_of(fun), args, kwargs)

    # ------------------------------------------------------------ methods that NumPy has as functions

    __add__, __radd__, __iadd__ = _binary(operator.add)
    __sub__, __rsub__, __isub__ = _binary(operator.sub)
    __mul__, __rmul__, __imul__ = _binary(operator.mul)
    __truediv__, __rtruediv__, __itruediv__ = _binary(operator.truediv)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(operator.floordiv)
    __mod__, __rmod__, __imod__ = _binary(operator.mod)
    __pow__, __rpow__, __ipow__ = _binary(operator.pow)
    __matmul__, __rmatmul__, __imatmul__ = _binary(operator.matmul)
    __neg__, __pos__, __abs__ = _unary(operator.neg), _unary(operator.pos), _unary(operator.abs)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)
    __and__, __rand__, __iand__ = _binary(operator.and_)  # of booleans, which have no derivative
    __or__, __ror__, __ior__ = _binary(operator.or_)
    __xor__, __rxor__, __ixor__ = _binary(operator.xor)
    __invert__ = _unary(operator.invert)

    def __getitem__(self, index: Any) -> Any:
        return bind(registry[operator.getitem], (self, index), {})

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __contains__(self, x: Any) -> bool:
        return bool(np.any(self == x))

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return np.matrix_transpose(self)

    @property
    def real(self) -> Any:
        """The real part."""
        return np.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        np.real(self)[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return np.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        np.imag(self)[...] = value

    @property
    def flat(self) -> Flat:
        """The entries in C order, as one axis, to be read and to be assigned to."""
        return Flat(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        Flat(self)[:] = values

    sum, prod, mean, var = _method(np.sum), _method(np.prod), _method(np.mean), _method(np.var)
    std, max, min, argmax = _method(np.std), _method(np.max), _method(np.min), _method(np.argmax)
    argmin, any, all, cumsum = _method(np.argmin), _method(np.any), _method(np.all), _method(np.cumsum)
    cumprod, round, squeeze, swapaxes = (
        _method(np.cumprod),
        _method(np.round),
        _method(np.squeeze),
        _method(np.swapaxes),
    )
    ravel, repeat, take, diagonal = _method(np.ravel), _method(np.repeat), _method(np.take), _method(np.diagonal)
    trace, dot, argsort, argpartition = (
        _method(np.trace),
        _method(np.dot),
        _method(np.argsort),
        _method(np.argpartition),
    )
    nonzero, searchsorted = _method(np.nonzero), _method(np.searchsorted)

    def clip(self, min: Any = None, max: Any = None, **options: Any) -> Any:
        """Return the array with its entries limited to an interval; see `numpy.clip`."""
        return np.clip(self, min, max, **options)

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        """Return the array with another shape; see `numpy.reshape`."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Any:
        """Return the array with its axes permuted; see `numpy.transpose`."""
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) if axes else None)

    def astype(self, dtype: Any, **options: Any) -> Any:
        """Return the array in another dtype; an integer or bool one has no derivative."""
        fun = astype if np.dtype(dtype).kind in "fc" else discretize
        return bind(registry[fun], (self, dtype), options)

    def flatten(self, order: Any = "C") -> Any:
        """Return a copy with one axis."""
        return np.ravel(np.copy(self), order=order)

    def copy(self, order: Any = "C") -> Any:
        """Return a copy; of a scalar, which nobody can change, the scalar itself."""
        return self if is_scalar(self) else np.copy(self, order=order)

    def view(self, *dtype: Any) -> Any:
        """Return the array again; a view with another dtype is refused."""
        if dtype:
            raise lost("x.view(dtype)", "Use x.astype(dtype).", self)
        return np.reshape(self, self.shape)

    def compress(self, condition: Any, axis: Any = None) -> Any:
        """Return the slices where a condition holds; see `numpy.compress`."""
        return np.compress(condition, self, axis=axis)

    def conj(self) -> Any:
        """Return the complex conjugate; of real numbers the array itself."""
        return np.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    # ------------------------------------------------------------ the object style

    @property
    def data(self) -> Array:
        """The array itself, which may be changed in place or assigned to; that of a result is read-only."""
        note = self._note("data")
        array: Array = self.value
        if note.kept:
            array.flags.writeable = False  # other tensors were computed from it, and keep it for the backward pass
        return array

    @data.setter
    def data(self, data: Any) -> None:
        note = self._note("data")
        if data is not self.value:
            self.value = real_array(data)
            note.kept = False

    @property
    def grad(self) -> Array:
        """The gradient gathered so far: an array of the tensor's shape, zeros before any backward pass."""
        note = self._note("grad")
        if note.grad is None:
            note.grad = np.zeros(self.shape)
        return note.grad

    @grad.setter
    def grad(self, grad: Any) -> None:
        note = self._note("grad")
        array = np.asarray(grad, dtype=np.float64)
        note.grad = array if array.shape == self.shape else np.broadcast_to(array, self.shape).copy()

    def zero_grad(self) -> None:
        """Set the gradient to zeros."""
        self._note("zero_grad").grad = None

    def backward(self) -> None:
        """Add to ``.grad`` of every tensor of the graph the gradient of this one's sum.

        Every call starts from fresh cotangents: calling it twice doubles each gradient, exactly.
        """
        self._note("backward")
        OBJECTS.backward(self)

    @property
    def _children(self) -> tuple[Tensor, ...]:
        return self._note("_children").children  # type: ignore[return-value]

    @property
    def _op(self) -> str:
        return self._note("_op").op

    @property
    def _backward(self) -> Callable[[], object]:
        note = self._note("_backward")

        def add_shares() -> None:
            cts, nodes, owned = Cotangents(), Cotangents(), Cotangents()
            note.node[1](note.node, self.grad, cts, nodes, owned)
            if note.node[1] is pull_pick:  # one of several outputs: on to the operation that made them
                made = note.node[2]
                made[1](made, cts.pop(made[0]), cts, nodes, owned)
            for child in note.children:
                g = cts[child.note.node[0]]
                if g is not None:
                    child.grad = child.grad + g  # type: ignore[attr-defined]

        return note.backward or add_shares

    @_backward.setter
    def _backward(self, closure: Callable[[], object]) -> None:
        self._note("_backward").backward = closure

    def _note(self, name: str) -> Note:
        """Return the object style's note; a transform's tensors have none."""
        if self._trace is not OBJECTS:
            raise lost(
                f"x.{name}", "It belongs to tensors made by Tensor(...); inside a transform use the value as it is."
            )
        note: Note = self.note
        return note

    def __reduce__(self) -> Any:
        if self._note("pickling").children:
            raise TypeError("a Tensor that was computed from others cannot be pickled or copied; use Tensor(x.data)")
        return type(self), (self.value,)


class Flat:
    """The entries of a Tensor in C order, as ``ndarray.flat`` gives them."""

    __slots__ = ("_t",)

    def __init__(self, t: Tensor) -> None:
        self._t = t

    def __len__(self) -> int:
        return self._t.size

    def __iter__(self) -> Iterator[Any]:
        return iter(np.ravel(self._t))

    def __getitem__(self, index: Any) -> Any:
        return np.ravel(self._t)[np.arange(self._t.size)[index]]  # a copy

    def __setitem__(self, index: Any, values: Any) -> None:
        np.put(self._t, np.arange(self._t.size)[index], values)  # type: ignore[arg-type]

    def copy(self) -> Any:
        """Return the entries as a new array."""
        return self._t.flatten()

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*unflat(args), **kwargs)

    def __array_function__(self, fun: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fun(*unflat(args), **unflat(kwargs))


def unflat(x: Any) -> Any:
    """Return arguments with the entries' array in place of `Flat`."""
    if isinstance(x, Flat):
        return np.ravel(x._t)
    if x.__class__ is dict:
        return {name: unflat(value) for name, value in x.items()}
    return x.__class__([unflat(e) for e in x]) if x.__class__ in {list, tuple} else x


def real_array(data: Any) -> Array:
    """Return a float64 copy of real numbers."""
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise InputError(f"a Tensor holds an array of real numbers, not {data!r:.60}: {error}") from None
    if array.dtype.kind not in "fiu":
        raise InputError(f"a Tensor holds real numbers, not {array.dtype} ({data!r:.60})")
    return np.array(array, dtype=np.float64)


def as_tensor(x: Any) -> Tensor:
    """Return ``x`` if it is a Tensor, else a Tensor that holds it.

    Parameters
    ----------
    x : Tensor, or array_like of real numbers, of any shape

    Returns
    -------
    Tensor
        ``x`` itself, or a new one of the object style: a copy of its shape, as float64.

    Raises
    ------
    InputError
        If ``x`` is neither: pass a Tensor, a number or an array of real numbers.

    Examples
    --------
    >>> as_tensor([1, 2])
    Tensor([1., 2.])
    >>> x = Tensor(3.0)
    >>> as_tensor(x) is x
    True
    """
    return x if isinstance(x, Tensor) else Tensor(x)


def with_options(self: Tensor, ufunc: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc with ``out=`` or ``where=``."""
    fun = ufunc if method == "__call__" else getattr(ufunc, method)
    rest = {k: v for k, v in kwargs.items() if k not in {"out", "where"}}
    outs, where = kwargs.get("out", ()), kwargs.get("where", True)
    if method != "__call__" and "where" in kwargs:  # of a reduction: its row knows what it means
        rest["where"], where = where, True
    outs = tuple([adopted(out, ufunc, self) if isinstance(out, np.ndarray) else out for out in outs])
    if fun is np.multiply and where is True and outs and outs[0] is args[0] and not rest:
        product = args[0]
        if product.dtype.kind == "c" and not is_scalar(product):
            product *= args[1]  # see there how complex numbers are rounded
            return product
    if where is True or method != "__call__":
        ans = bind(primitive_of(fun), args, rest)
        if not outs:
            return ans
        parts = ans if ufunc.nout > 1 else (ans,)
        results = tuple([x if out is None else assign(out, x) for out, x in zip(outs, parts, strict=True)])
        return results if ufunc.nout > 1 else results[0]
    if ufunc.nout > 1 or ufunc.signature is not None:
        raise NoRuleError(f"{here()}: np.{ufunc.__name__} has no derivative rule for its option where=. Use np.where.")
    shape = np.broadcast_shapes(*[shape_of(x) for x in (*args, where, *outs)])
    chosen = np.broadcast_to(where, shape)
    ans = fun(*[np.broadcast_to(x, shape)[chosen] for x in args], **rest)
    out = outs[0] if outs else constant(np.empty(shape, dtype_of(ans)))
    if out.shape != shape:
        raise ValueError(f"non-broadcastable output operand with shape {out.shape} doesn't match the shape {shape}")
    out[chosen] = ans
    return out


def adopted(out: Any, ufunc: Any, operand: Any) -> Any:
    """Return a handle for a plain array that is asked to take a traced result, if nobody else can see it."""
    if is_sole(out, operand):
        return constant(out)
    raise InPlaceError(
        f"{here()}: np.{ufunc.__name__} was asked to write a traced result into a plain array (out=, or an operator such as "
        f"`a += t`) that other names, views or containers may hold: it would lose its derivative there. Use the returned value "
        f"instead, a = a + t; or begin with a buffer that takes traced values: np.zeros_like(t), or zeros of meintorch.numpy."
    )


def at(ufunc: Any, a: Any, indices: Any, *values: Any) -> None:
    """Do ``ufunc.at(a, indices, *values)``: entries that an index names several times change several times."""
    if not isinstance(a, Tensor):
        raise InPlaceError(
            f"{here()}: np.{ufunc.__name__}.at was asked to write traced values into a plain array, which cannot hold their "
            f"derivative. Begin with np.zeros_like(t), or with zeros of meintorch.numpy."
        )
    if ufunc in {np.add, np.subtract}:
        write(a, indices, values[0] if ufunc is np.add else np.negative(values[0]), add=True)
        return
    if not may_repeat(indices):
        a[indices] = ufunc(a[indices], *values)
        return
    # One round for all entries named the first time, one for those named the second time, and so on.
    places = np.arange(a.size).reshape(a.shape)[indices]
    flat = places.reshape(-1)
    order = np.argsort(flat, kind="stable")
    first = np.flatnonzero(np.diff(flat[order], prepend=-1))
    rounds = np.empty(flat.size, np.intp)
    rounds[order] = np.arange(flat.size) - np.repeat(first, np.diff(first, append=flat.size))
    spread = [np.ravel(np.broadcast_to(v, places.shape)) for v in values]
    for k in range(rounds.max(initial=-1) + 1):
        now = np.flatnonzero(rounds == k)
        entries = np.unravel_index(flat[now], a.shape)
        a[entries] = ufunc(a[entries], *[v[now] for v in spread])


def without_none(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Drop a ufunc's ``out=(None,)``, which stands for no ``out`` at all."""
    out = kwargs.get("out")
    if out is None or any([o is not None for o in out]):
        return kwargs
    return {k: v for k, v in kwargs.items() if k != "out"}


# ---------------------------------------------------------------- tensors of reverse-mode transforms


class GraphTensor(Tensor):
    """A Tensor of a reverse-mode transform, whose elementwise operations are generated code."""

    __slots__ = ()
    __init__ = object.__init__  # made by the engine, at C speed


class ScaledTensor(GraphTensor):
    """A scalar whose derivative by another one is known on the way forward, as in ``2.0 * x + 1.0``: it needs no node.

    Attributes
    ----------
    base : the node of the other scalar
    factor : the derivative, neither 0 nor so large or small that products with it would overflow or vanish
    """

    __slots__ = ("base", "factor")
    base: Node
    factor: float

    @property
    def note(self) -> Any:
        """A node, made when something else than a scalar's arithmetic asks for it."""
        try:
            node: Node = noted.__get__(self)
        except AttributeError:
            trace: Any = self._trace
            if trace.serial is ENDED:  # an output is looked at
                n = trace.ended_at
                trace.ended_at = n + 1
            else:
                n = trace.count()
            node = (n, pull_scaled, self.base, self.factor, None, 0)
            noted.__set__(self, node)
        return node

    def with_node(self) -> Traced:
        """Return the scalar as one that has a node, for the functions that note one which comes after it."""
        trace: Any = self._trace
        t: Traced = trace.wrap(self.value, self.note, ())
        return t

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*with_nodes(args), **with_nodes(kwargs))

    def __array_function__(
        self, fun: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return fun(*with_nodes(args), **with_nodes(kwargs))


noted: Any = vars(Traced)["note"]  # where an object has its note, also under a property of that name


def with_nodes(x: Any) -> Any:
    """Return arguments with tensors that have a node in place of scaled ones."""
    if x.__class__ is ScaledTensor:
        return x.with_node()
    if x.__class__ is dict:
        return {name: with_nodes(value) for name, value in x.items()}
    return x.__class__([with_nodes(e) for e in x]) if x.__class__ in {list, tuple} else x


class DualTensor(Tensor):
    """A Tensor of a forward-mode transform."""

    __slots__ = ()
    __init__ = object.__init__


class DeadTensor(Tensor):
    """A cotangent of which some entries are dead."""

    __slots__ = ()
    __init__ = object.__init__


class BufferTensor(Tensor):
    """A Tensor of any transform, or of none, whose memory may be written into: it asks its family's storage.

    It has the layout of the other classes, one of which it was before the first write.
    """

    __slots__ = ()
    __init__ = object.__init__
    written = True

    @property
    def _trace(self) -> Any:  # type: ignore[override]
        return self.place.trace()

    @property
    def value(self) -> Any:
        """The value as it is now."""
        return self.place.value()

    @property
    def note(self) -> Any:
        """What the trace notes about it now."""
        return self.place.note()

    @property
    def shape(self) -> Shape:
        """The shape of the array, inside vmap that of one example."""
        shape: Shape = self.value.shape[isinstance(self._trace, BatchTrace) :]
        return shape

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    # A buffer that belongs to no transform has no derivative to lose.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._trace is not CONSTANTS:
            return super().__array__(dtype, copy)
        exported = np.asarray(memoryview(self.value))  # not a view, whose own views would hold the whole and not it
        family = self.place.family
        family.exports = [ref for ref in family.exports if ref() is not None] + [weakref.ref(exported)]
        return np.array(exported, dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.value) if self._trace is CONSTANTS else super().__float__()

    def __complex__(self) -> complex:
        return complex(self.value) if self._trace is CONSTANTS else super().__complex__()

    def item(self, *args: Any) -> Any:
        """Return an entry as a Python number."""
        return self.value.item(*args) if self._trace is CONSTANTS else super().item(*args)

    def tolist(self) -> Any:
        """Return the entries as nested lists of Python numbers."""
        return self.value.tolist() if self._trace is CONSTANTS else super().tolist()

    def __repr__(self) -> str:
        return repr(self.value) if self._trace is CONSTANTS else super().__repr__()

    def __reduce__(self) -> Any:
        return self.value.copy("K").__reduce__() if self._trace is CONSTANTS else super().__reduce__()

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if top_trace(args, kwargs) is CONSTANTS and (method != "at" or isinstance(args[0], Traced)):
            return CONSTANTS.call(ufunc if method == "__call__" else getattr(ufunc, method), args, kwargs, find(ufunc))
        return super().__array_ufunc__(ufunc, method, *args, **kwargs)

    def __array_function__(
        self, fun: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if top_trace(args, kwargs) is CONSTANTS:
            return CONSTANTS.call(fun, args, kwargs, find(fun))
        return super().__array_function__(fun, types, args, kwargs)


class BatchTensor(Tensor):
    """A Tensor of a batching transform: its shape is that of one example."""

    __slots__ = ()
    __init__ = object.__init__

    @property
    def shape(self) -> Shape:
        """The shape of one example."""
        shape: Shape = self.value.shape[1:]
        return shape

    @property
    def size(self) -> int:
        """The number of entries of one example."""
        return math.prod(self.shape)

    def __bool__(self) -> bool:
        raise batched("deciding on it (if, while, and, or, bool())", "Choose with np.where, np.select or np.maximum")

    def __int__(self) -> int:
        raise batched("int() of it", "Keep it an array")

    def __round__(self, ndigits: int | None = None) -> Any:
        return np.round(self, ndigits or 0)

    def __floor__(self) -> int:
        raise batched("math.floor() of it", "Use np.floor")

    def __ceil__(self) -> int:
        raise batched("math.ceil() of it", "Use np.ceil")

    def __trunc__(self) -> int:
        raise batched("math.trunc() of it", "Use np.trunc")

    def __contains__(self, x: Any) -> bool:
        raise batched("`in`", "Use np.any(x == ...)")


def batched(what: str, instead: str) -> BatchError:
    """Make the error for asking a batch for one answer."""
    return BatchError(
        f"{here()}: a value inside vmap stands for many examples at once, so {what} has no single answer. {instead}, or "
        f"loop over the examples instead of vmap."
    )


class Calls(dict[Any, Any]):
    """Generated functions by ufunc, made when first met; None for a ufunc that has none."""

    def __missing__(self, ufunc: Any) -> Any:
        prim = primitive_of(ufunc)
        made = None
        if specialise.has_call(prim):

            def plain(*args: Any) -> Any:
                return bind(prim, args, {})

            made = warming(plain, partial(specialise.call_of, prim), partial(self.__setitem__, ufunc))
        self[ufunc] = made
        return made


calls = Calls()


def specialised_ufunc(self: Tensor, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Do what `Tensor.__array_ufunc__` does, by a generated function where there is one."""
    if method == "__call__" and not kwargs:
        call = calls[ufunc]
        if call is not None:
            return call(*args)
    return of_form_ufunc(self, ufunc, method, *args, **kwargs)


def of_form_ufunc(self: Tensor, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Do what `Tensor.__array_ufunc__` does, by a generated function where there is one for the form of the call."""
    fun = ufunc if method == "__call__" else getattr(ufunc, method)
    special = method in {"at", "outer"} or "out" in kwargs or "where" in kwargs
    form = None if special else form_of(fun, args, kwargs)
    if form is None:
        return Tensor.__array_ufunc__(self, ufunc, method, *args, **kwargs)
    return form(*args, *kwargs.values())


def specialised_function(
    self: Tensor, fun: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Do what `Tensor.__array_function__` does, by a generated function where there is one for the form of the call."""
    form = form_of(fun, args, kwargs)
    if form is None:
        return Tensor.__array_function__(self, fun, types, args, kwargs)
    return form(*args, *kwargs.values())


def operator_form(fun: Callable[..., Any]) -> tuple[Method, Method]:
    """Make an operator's method and its reflected form, which call generated functions."""
    prim = registry[fun]

    def method(a: Any, b: Any) -> Any:
        form = forms[fun, a.__class__, b.__class__]
        return bind(prim, (a, b), {}) if form is None else form(a, b)

    def reflected(b: Any, a: Any) -> Any:
        return method(a, b)

    return method, reflected


def unary_form(fun: Callable[..., Any]) -> Method:
    """Make the method of an operator with one operand, which calls generated functions."""
    prim = registry[fun]

    def method(a: Any) -> Any:
        form = forms[fun, a.__class__]
        return bind(prim, (a,), {}) if form is None else form(a)

    return method


def batch_operator(fun: Callable[..., Any]) -> tuple[Method, Method]:
    """Make an operator's method for batches and its reflected form, which do what their trace does with arrays and numbers."""
    prim = registry[fun]

    def operand(a: Any, x: Any, b: Any) -> Any:
        """Return what is computed with in place of ``b``, next to the array ``x`` of ``a``; None if the trace is to do it."""
        kind = b.__class__
        if x.__class__ is not np.ndarray:
            return None
        if kind is BatchTensor:
            y = b.value
            return y if b._trace is a._trace and y.__class__ is np.ndarray and y.ndim == x.ndim else None
        return b if kind is float or kind is int or (kind is np.ndarray and b.ndim < x.ndim) else None

    def method(a: Any, b: Any) -> Any:
        x = a.value
        y = operand(a, x, b)
        return bind(prim, (a, b), {}) if y is None else on_examples(a._trace, fun, x, y)

    def reflected(b: Any, a: Any) -> Any:
        y = b.value
        x = operand(b, y, a)
        return bind(prim, (a, b), {}) if x is None else on_examples(b._trace, fun, x, y)

    return method, reflected


def on_examples(trace: Any, fun: Callable[..., Any], *operands: Any) -> Any:
    """Run an elementwise function on arrays whose first axis is the batch."""
    trace.serial += 0  # which raises if the trace has ended
    value = large.call(fun, operands)
    t = BatchTensor()
    t.value = value
    t._trace = trace
    t.note = value.ndim == 1
    return t


def batch_unary(fun: Callable[..., Any]) -> Method:
    """Make an elementwise function of one batch, which does what its trace does with arrays."""
    prim = registry[fun]

    def method(a: Any) -> Any:
        plain = a.value.__class__ is np.ndarray
        return on_examples(a._trace, fun, a.value) if plain else bind(prim, (a,), {})

    return method


def batch_ufunc(self: Tensor, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Do what `Tensor.__array_ufunc__` does, in the commonest cases without a general call."""
    if method == "__call__" and not kwargs:
        if len(args) == 1:
            prim = primitive_of(ufunc)
            if prim.kind is ELEMENTWISE and prim.batch is None and self.value.__class__ is np.ndarray:
                return on_examples(self._trace, ufunc, self.value)
        elif ufunc in BY_UFUNC and args[0].__class__ is np.ndarray:
            return getattr(self, BY_UFUNC[ufunc])(args[0])
    return Tensor.__array_ufunc__(self, ufunc, method, *args, **kwargs)


BY_UFUNC = {np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.divide: "__rtruediv__"}

OPERATORS: dict[str, tuple[Method, str]] = {
    "add": (operator.add, "x1 + x2"),
    "sub": (operator.sub, "x1 - x2"),
    "mul": (operator.mul, "x1 * x2"),
    "truediv": (operator.truediv, "x1 / x2"),
    "pow": (operator.pow, "x1 ** x2"),
    "neg": (operator.neg, "-v"),
}


def of_its_kind(name: str) -> Method:
    """Make a method of buffers that does what the tensors of its trace do."""

    def method(self: Any, *args: Any) -> Any:
        kind = BatchTensor if isinstance(self._trace, BatchTrace) else Tensor
        return getattr(kind, name)(self, *args)

    method.__name__ = name
    return method


for name in ("__bool__", "__int__", "__round__", "__floor__", "__ceil__", "__trunc__", "__contains__"):
    setattr(BufferTensor, name, of_its_kind(name))

ConstantTrace.tensor = BufferTensor
ReverseTrace.tensor = GraphTensor
ReverseTrace.scaled = ScaledTensor
ForwardTrace.tensor = DualTensor
BatchTrace.tensor = BatchTensor
DeadTrace.tensor = DeadTensor


def reverse_trace(captured: Captured | None = None) -> ReverseTrace:
    """Start a trace for reverse mode."""
    specialised()
    return ReverseTrace(captured)


def forward_trace() -> ForwardTrace:
    """Start a trace for forward mode."""
    specialised()
    return ForwardTrace()


def batch_trace(size: int) -> BatchTrace:
    """Start a trace for batches of examples."""
    specialised()
    return BatchTrace(size)


def specialised() -> None:
    """Give tensors their generated operators; the first trace brings them."""
    if not specialise.enabled or "__array_ufunc__" in vars(GraphTensor):
        return
    for name, (fun, call) in OPERATORS.items():
        unary = len(registry[fun].rules) == 1
        for method, form in {f"__{name}__": "unary" if unary else "left", f"__r{name}__": "right"}.items():
            if hasattr(Tensor, method):
                make = partial(specialise.compile_forward, registry[fun], call, form, 1)
                install = partial(setattr, GraphTensor, method)
                install(warming(getattr(Tensor, method), make, install))
                make = partial(specialise.compile_scaled, registry[fun], call, form, method)
                install = partial(setattr, ScaledTensor, method)
                install(warming(getattr(Tensor, method), make, install))
        if unary:
            setattr(DualTensor, f"__{name}__", unary_form(fun))
            setattr(BatchTensor, f"__{name}__", batch_unary(fun))
            continue
        for method, made in zip((f"__{name}__", f"__r{name}__"), operator_form(fun), strict=True):
            setattr(DualTensor, method, made)
        if fun is not operator.pow:
            for method, made in zip((f"__{name}__", f"__r{name}__"), batch_operator(fun), strict=True):
                setattr(BatchTensor, method, made)
    GraphTensor.__getitem__ = specialise.compile_getitem(registry[operator.getitem])
    GraphTensor.__array_ufunc__ = specialised_ufunc
    DualTensor.__array_ufunc__ = of_form_ufunc
    BatchTensor.__array_ufunc__ = batch_ufunc
    DualTensor.__getitem__ = operator_form(operator.getitem)[0]
    for kind in (GraphTensor, DualTensor):
        kind.__array_function__ = specialised_function
        kind.__matmul__, kind.__rmatmul__ = operator_form(operator.matmul)
    read, write_entry = specialise.compile_entries(Tensor.__getitem__, Tensor.__setitem__)
    BufferTensor.__getitem__, BufferTensor.__setitem__ = read, write_entry
