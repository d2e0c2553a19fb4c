"""Plain arrays that a traced value is added to: ``acc = np.zeros(3)``, then ``acc += t``.

NumPy would change the array in place; an ndarray cannot hold a derivative. But if nobody else can see that array, it is the
same to go on with a traced one under its name. Two things tell, and where they cannot be trusted the answer is no:

- The instruction of the caller: an in-place operator whose result is stored. (In ``np.add(acc, t, out=acc)`` the result may
  be dropped; there only an array without a name will do, as in ``np.exp(t, out=np.zeros(3))``.)
- The number of references to the array, and to those whose memory it uses. How many there are when nobody else holds it
  depends on the interpreter, and is found out by trying.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType
from typing import Any

import numpy as np

from meintorch.core.large import is_remembered
from meintorch.core.trace import caller

# From 3.14 on, names are read without a reference; without a global lock, counts are not exact.
TRUSTED = hasattr(sys, "getrefcount") and sys.version_info < (3, 14) and getattr(sys, "_is_gil_enabled", lambda: True)()

Probe = Callable[[Any], None]


class CountedError(Exception):
    """Ends a trial, with the number of references."""


# Whether this thread is finding out how many references are usual.
trial: ContextVar[bool] = ContextVar("trial", default=False)


def is_sole(out: Any, operand: Any) -> bool:
    """Tell whether a ufunc that was asked to write into ``out``, for the sake of ``operand``, may do without it.

    ``out`` is expected to be held by two callers inside of the library: the ufunc protocol's method and what it calls.
    """
    count = sys.getrefcount(out) - is_remembered(out) if TRUSTED else 0
    if trial.get():
        raise CountedError(count)
    if not TRUSTED:
        return False
    probe = accumulating if is_stored(*caller()) else temporary
    return count <= usual(probe, operand.__class__, operand) and is_base_sole(out)


def is_base_sole(x: Any) -> bool:
    """Tell whether nobody else sees the memory of an array."""
    while x.base is not None:
        x = x.base
        # the array that looks at it, this variable, and the argument of the call
        if not isinstance(x, np.ndarray) or sys.getrefcount(x) - is_remembered(x) > 3:
            return False
    return True


@functools.lru_cache(256)
def is_stored(code: CodeType | None, offset: int) -> bool:
    """Tell whether an instruction is an in-place operator whose result is stored at once."""
    if code is None:
        return False
    found = False
    for instruction in dis.get_instructions(code):
        if instruction.offset == offset:
            if instruction.opname != "BINARY_OP" or "=" not in instruction.argrepr:
                return False
            found = True
        elif found and instruction.opname not in {"CACHE", "SWAP", "COPY"}:
            return instruction.opname.startswith("STORE")
    return False


counts: dict[tuple[Probe, type], int] = {}


def usual(probe: Probe, kind: type, operand: Any) -> int:
    """Return the number of references to an array that only the probe holds; found out once, where no tracer looks on."""
    known = counts.get((probe, kind))
    if known is None:
        import threading  # noqa: PLC0415 - at the top it would slow down every import of meintorch

        found: list[int] = []

        def run() -> None:
            trial.set(True)
            try:
                probe(operand)
            except CountedError as counted:
                found.append(counted.args[0])

        thread = threading.Thread(target=run)
        tracers = threading.gettrace(), threading.getprofile()
        threading.settrace(None)
        threading.setprofile(None)
        try:
            thread.start()
            thread.join()
        finally:
            threading.settrace(tracers[0])
            threading.setprofile(tracers[1])
        known = counts[probe, kind] = found[0] if found else 0
    return known


def accumulating(t: Any) -> None:
    """Do what a caller does who adds to an array."""
    acc = np.zeros(1)
    acc += t


def temporary(t: Any) -> None:
    """Do what a caller does who passes an array without a name."""
    np.negative(t, out=np.zeros(1))
