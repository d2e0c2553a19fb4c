"""Captured arrays: plain arrays of the user's that a graph keeps, and that may be written to before the backward pass.

Small ones are copied when they are kept. Of larger ones a fingerprint is taken at the first use and compared when the
backward pass begins: of up to 65,536 entries one of all their bits, of larger arrays a hash of 256 of them, which is also
compared at every later use. So a buffer that was filled again is noticed, a single entry changed in a larger array is not.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any

import numpy as np

from meintorch.errors import InPlaceError, source_line

SMALL = 4096  # entries; copying fewer costs less than an operation
WHOLE = 65_536

ndarray = np.ndarray


class Captured:
    """The large arrays that one trace keeps, with their fingerprints; ``check`` says whether they are as they were."""

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, int, int, CodeType | None, int]] = {}

    def add(self, x: Any, code: CodeType | None, offset: int) -> None:
        """Remember an array, and the user's line that used it first; raise if it was written to since."""
        known = self._arrays.get(id(x))
        if known is not None:
            if sampled(x) != known[1]:
                raise written(*known)
        elif is_writable(x):
            self._arrays[id(x)] = (x, sampled(x), fingerprint(x), code, offset)

    def check(self) -> None:
        """Raise if an array has been written to since it was used."""
        for known in self._arrays.values():
            if fingerprint(known[0]) != known[2]:
                raise written(*known)


def written(x: Any, _sample: int, _was: int, code: CodeType | None, offset: int) -> InPlaceError:
    """Make the error for an array that has changed."""
    return InPlaceError(
        f"an array of shape {x.shape} was used in {source_line(code, offset)} and written to afterwards; the backward pass "
        f"needs the values of then. Write into a copy (b = a.copy()), or make a new array."
    )


def is_writable(x: Any) -> bool:
    """Tell whether anyone may write to the memory of an array: a read-only view may look at a writable one."""
    while isinstance(x, ndarray):
        if x.flags.writeable:
            return True
        x = x.base
    return not (x is None or isinstance(x, bytes))


def fingerprint(x: Any) -> int:
    """Return a number that tells whether an array has been written to."""
    x = distinct(x)
    if x.size > WHOLE:
        return sampled(x)
    if x.dtype == np.float64 and x.flags.forc:
        # A sum of bits sees every single change, but no order, nor some changes of all signs or exponents; those move the
        # product with fixed weights. Both together cost a third of a hash.
        x = x.reshape(-1, order="A")
        product = float(np.einsum("i,i", x, weights(x.size)))
        if abs(product) < np.inf:
            return hash((int(np.add.reduce(x.view(np.uint64))), product))
    return hash(x.tobytes("A"))


def sampled(x: Any) -> int:
    """Return a hash of 256 entries of an array."""
    x = distinct(x)
    if x.size == 0:
        return 0
    places = samples(x.size)
    if x.flags.forc:
        return hash(x.reshape(-1, order="A")[places].tobytes())
    return hash(x[np.unravel_index(places, x.shape)].tobytes())


def distinct(x: Any) -> Any:
    """Return an array as a plain one, without the axes that only repeat it."""
    x = np.asarray(x)
    if 0 in x.strides:
        x = x[tuple(slice(1 if stride == 0 else None) for stride in x.strides)]
    return x


@functools.lru_cache(64)
def samples(size: int) -> Any:
    """Return 256 places in an array, spread over it and off any regular grid."""
    jitter = np.random.default_rng(size).random(256)
    return ((np.arange(256) + jitter) * (size / 256)).astype(np.intp)


def weights(size: int) -> Any:
    """Return fixed weights of different sizes for the entries of an array of up to 65,536."""
    return all_weights()[:size]


@functools.cache
def all_weights() -> Any:
    """Return the weights, made once."""
    return np.random.default_rng(0).uniform(0.5, 1.5, WHOLE)
