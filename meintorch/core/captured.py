"""Captured arrays: plain arrays of the user's that a graph keeps, and that may be written to before the backward pass.

Small ones are copied when they are kept. Of larger ones a fingerprint is taken at the first use and compared when the
backward pass begins: of up to 65,536 entries a sum over all their bits, of larger arrays a hash of 256 of them. So a buffer
that was filled again is noticed always, a single entry that was changed in a larger array is not.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any

import numpy as np

from meintorch.errors import InPlaceError, source_line

SMALL = 4096  # entries; copying fewer costs less than an operation
SUMMED = 65_536

ndarray = np.ndarray


class Captured:
    """The large arrays that one trace keeps, with their fingerprints; ``check`` says whether they are as they were."""

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, int, CodeType | None, int]] = {}

    def add(self, x: Any, code: CodeType | None, offset: int) -> None:
        """Remember an array, and the user's line that used it first."""
        if id(x) not in self._arrays and x.flags.writeable:
            self._arrays[id(x)] = (x, fingerprint(x), code, offset)

    def check(self) -> None:
        """Raise if an array has been written to since it was used."""
        for x, was, code, offset in self._arrays.values():
            if fingerprint(x) != was:
                raise InPlaceError(
                    f"an array of shape {x.shape} was used in {source_line(code, offset)} and written to afterwards; the "
                    f"backward pass needs the values of then. Write into a copy (b = a.copy()), or make a new array."
                )


def fingerprint(x: Any) -> int:
    """Return a number that tells whether an array has been written to."""
    if x.size <= SUMMED and x.dtype.itemsize == 8 and x.flags.forc:
        return int(np.add.reduce(x.reshape(-1, order="A").view(np.uint64)))
    places = samples(x.size)
    if x.flags.forc:
        return hash(x.reshape(-1, order="A")[places].tobytes())
    return hash(x[np.unravel_index(places, x.shape)].tobytes())


@functools.cache
def samples(size: int) -> Any:
    """Return 256 places in an array, spread over it and off any regular grid."""
    jitter = np.random.default_rng(size).random(256)
    return ((np.arange(256) + jitter) * (size / 256)).astype(np.intp)
