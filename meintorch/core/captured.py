"""Captured arrays: plain arrays of the user's that a graph keeps, and that may be written to before the backward pass.

Up to 65,536 entries a copy is kept, as far as there is room: one for all uses of an array between two writes. Of larger ones
a fingerprint of all their bits is taken at the first use and compared when the backward pass begins; but only the first times
that a given piece of code is differentiated, which is when a program that writes into its arrays shows itself, and the first
times that a pullback is called. Afterwards 256 entries stand for the whole. These are also compared at every later use. So a
loop over steps of training, or over calls of a pullback, does not read its data once more in each of them.

A fingerprint of a million numbers of eight bytes takes one or two milliseconds, hardly longer than NumPy takes to multiply
them.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any, Literal, TypeAlias

import numpy as np

from meintorch.core.large import distinct, unwrapped
from meintorch.errors import InPlaceError, InputError, source_line

SMALL = 4096  # entries; copying fewer costs less than an operation
WHOLE = 65_536
ROOM = 1 << 23  # bytes of copies for one trace
PIECE = 32_768  # words of eight bytes that are looked at together: they stay in the cache
FIRST = 2  # how often larger arrays are looked at as a whole for the same code

Check: TypeAlias = bool | Literal["full"]
Origin: TypeAlias = tuple[Any, int]

ndarray = np.ndarray


class Captured:
    """The large arrays that one trace keeps, with their fingerprints; ``check`` says whether they are as they were.

    Parameters
    ----------
    origin : which code is differentiated, see `origin_of`; if None, each line that uses an array counts for itself
    how : True; "full" to look at all entries always, False not to look at all
    """

    __slots__ = ("_arrays", "_checks", "_copies", "_exact", "_origin", "_room", "how")

    def __init__(self, origin: Origin | None = None, how: Check = True) -> None:
        if how is not True and how is not False and how != "full":
            raise InputError(f'check= takes True, False or "full", not {how!r:.40}')
        self.how = how
        self._origin = origin
        self._checks = 0
        self._exact: bool | None = None  # not decided before the first array that it matters for
        self._arrays: dict[int, tuple[Any, int, int | None, CodeType | None, int]] = {}
        self._copies: dict[int, tuple[Any, Any]] = {}  # by id, which stays an array's own as long as it is held
        self._room = ROOM

    def keep(self, x: Any, code: CodeType | None, offset: int) -> Any:
        """Return what to keep in an array's place: a copy, or a view of the array, which is then remembered."""
        if self.how is not False and x.size <= WHOLE:
            known = self._copies.get(id(x))
            if known is not None and is_same(x, known[1]):
                return known[1]
            if x.nbytes <= self._room:
                self._room -= x.nbytes
                copy = x.copy()
                self._copies[id(x)] = (x, copy)
                return copy
        self.add(x, code, offset)
        return x.view()  # which keeps shape and dtype, whatever the user makes of the array's own

    def add(self, x: Any, code: CodeType | None, offset: int) -> None:
        """Remember an array, and the user's line that used it first; raise if it was written to since."""
        if self.how is False:
            return
        known = self._arrays.get(id(x))
        if known is not None:
            if sampled(x) != known[1] or (self.how == "full" and fingerprint(x) != known[2]):
                raise written(*known)
        elif is_writable(x):
            whole = fingerprint(x) if self._is_whole(x, code, offset) else None
            self._arrays[id(x)] = (x, sampled(x), whole, code, offset)

    def check(self) -> None:
        """Raise if an array has been written to since it was used."""
        thorough = self.how == "full" or self._checks < FIRST
        self._checks += 1
        for known in self._arrays.values():
            x, sample, whole = known[:3]
            by_sample = whole is None or not (thorough or distinct(x).size <= WHOLE)
            if (sampled(x) != sample) if by_sample else (fingerprint(x) != whole):
                raise written(*known)

    def _is_whole(self, x: Any, code: CodeType | None, offset: int) -> bool:
        """Tell whether to take a fingerprint of all entries of an array."""
        if self.how == "full" or distinct(x).size <= WHOLE:
            return True
        if self._exact is None:
            self._exact = is_new(self._origin or (code, offset))
        return self._exact


def written(x: Any, _sample: int, _whole: int | None, code: CodeType | None, offset: int) -> InPlaceError:
    """Make the error for an array that has changed."""
    return InPlaceError(
        f"an array of shape {x.shape} was used in {source_line(code, offset)} and written to afterwards; the backward pass "
        f"needs the values of then. Write into a copy (b = a.copy()), or make a new array."
    )


def is_same(x: Any, copy: Any) -> bool:
    """Tell whether an array is still what it was when it was copied: users may give it another shape or dtype in place."""
    same: bool = x.shape == copy.shape and x.dtype == copy.dtype and x.tobytes() == copy.tobytes()
    return same


def is_writable(x: Any) -> bool:
    """Tell whether anyone may write to the memory of an array: a read-only view may look at a writable one."""
    while isinstance(x, ndarray):
        if x.flags.writeable:
            return True
        x = x.base
    return not (x is None or isinstance(x, bytes))


# ---------------------------------------------------------------- which code is differentiated

seen: dict[Origin, int] = {}  # how often large arrays were captured there; threads may at worst count one time less


def origin_of(f: Any) -> Origin:
    """Return the code of a function, and how many wrappers lie around it: grad(grad(f)) is not grad(f)."""
    f, depth = unwrapped(f)
    code = getattr(f, "__code__", None) or getattr(type(f).__call__, "__code__", None)
    return code or getattr(f, "__name__", type(f)), depth


def is_new(origin: Origin) -> bool:
    """Count the times that some code captures large arrays; tell whether this is one of the first."""
    times = seen.get(origin, 0)
    if times >= FIRST:
        return False
    if len(seen) >= 1000:  # programs that make code without end: forgetting costs a look more
        seen.clear()
    seen[origin] = times + 1
    return True


# ---------------------------------------------------------------- fingerprints


def fingerprint(x: Any) -> int:
    """Return a number that any write changes, but for a chance of one in billions; one pass over the array."""
    x = distinct(x)
    if x.dtype.hasobject:
        return hash(x.tobytes())
    parts: list[Any] = []
    size = max(1, 8 * PIECE // max(1, x.itemsize))
    contiguous: Any = [["readonly", "contig"]]
    pieces: Any = np.nditer(x, ["external_loop", "buffered", "zerosize_ok"], contiguous, buffersize=size)
    for piece in pieces:
        octets = piece.view(np.uint8)
        end = octets.size - octets.size % 8
        words = octets[:end].view(np.uint64)
        # A product modulo 2**64 with odd weights sees every single change, and changes of several entries, exchanges too, if
        # they are in low bits. To those the high ones, signs and exponents, are copied; by 33, since signs of float32 are 32
        # bits apart, and would cancel.
        mixed = words >> 33
        mixed ^= words
        parts.append((int(np.einsum("i,i", mixed, odd_weights()[: mixed.size])), octets[end:].tobytes()))
    return hash(tuple(parts))


def sampled(x: Any) -> int:
    """Return a hash of 256 entries of an array."""
    x = distinct(x)
    if x.size == 0:
        return 0
    places = samples(x.size)
    if x.flags.forc:
        return hash(x.reshape(-1, order="A")[places].tobytes())
    return hash(x[np.unravel_index(places, x.shape)].tobytes())


@functools.lru_cache(64)
def samples(size: int) -> Any:
    """Return 256 places in an array, spread over it and off any regular grid."""
    jitter = scrambled(256, size) / 2.0**64
    return ((np.arange(256) + jitter) * (size / 256)).astype(np.intp)


@functools.cache
def odd_weights() -> Any:
    """Return a weight for each word of a piece of an array, made once."""
    return scrambled(PIECE, 0) | 1


def scrambled(n: int, seed: int) -> Any:
    """Return ``n`` words of 64 bits without order: Steele, Lea and Flood's splitmix64.

    To import np.random for them would take as long as to import meintorch.
    """
    words: Any = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed)) * 0x9E3779B97F4A7C15
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)
