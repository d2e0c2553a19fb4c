"""Discrete Fourier transforms.

The matrix of the transform is symmetric: it is its own transpose, without a conjugate. Along more than one axis a
transform is one along each axis after the other, which is also how NumPy computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meintorch.core.batching import axes_batch
from meintorch.core.primitive import composite, linear
from meintorch.rules.indexing import array_of

_SWAPPED: dict[Any, Any] = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _like(h: Any, a_shape: Any, a_dtype: Any, axis: int) -> Any:
    """Undo cropping and padding along an axis, and leave a real argument a real cotangent."""
    missing = a_shape[axis] - h.shape[axis]
    if missing < 0:
        h = h[tuple([slice(n) for n in a_shape])]
    if missing > 0:
        zeros = np.zeros([missing if k == axis % h.ndim else n for k, n in enumerate(a_shape)], h.dtype)
        h = np.concatenate([h, zeros], axis=axis)
    if h.dtype.kind == "c" and a_dtype.kind != "c":
        h = np.real(h)
    return h if h.dtype == a_dtype else h.astype(a_dtype)


def _own(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The transpose of a transform whose matrix is symmetric."""

    def transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any, norm: Any) -> Any:
        return _like(fun(g, None, axis, norm), a_shape, a_dtype, axis)

    return transpose


def _counts(half: int, n: int, axis: int, ndim: int, dtype: Any) -> Any:
    """How many of n frequencies each of the lower half stands for: two, but for zero and the middle of an even n."""
    counts = np.full(half, 2, dtype)
    counts[0] = 1
    if n % 2 == 0:
        counts[n // 2] = 1
    return counts.reshape([half if k == axis % ndim else 1 for k in range(ndim)])


def _rfft_transpose(g: Any, a_shape: Any, a_dtype: Any, n: Any, axis: Any, norm: Any) -> Any:
    n = a_shape[axis] if n is None else n
    half = np.conjugate(g) / _counts(g.shape[axis], n, axis, g.ndim, np.finfo(g.dtype).dtype)
    return _like(np.fft.irfft(half, n, axis, _SWAPPED.get(norm, norm)), a_shape, a_dtype, axis)


def _irfft_transpose(g: Any, a_shape: Any, a_dtype: Any, axis: Any, norm: Any) -> Any:
    h = np.conjugate(np.fft.rfft(g, None, axis, _SWAPPED.get(norm, norm)))
    return _like(h * _counts(h.shape[axis], g.shape[axis], axis, g.ndim, g.dtype), a_shape, a_dtype, axis)


linear(np.fft.fft, batch=axes_batch("axis"), a=_own(np.fft.fft))
linear(np.fft.ifft, batch=axes_batch("axis"), a=_own(np.fft.ifft))
linear(np.fft.rfft, batch=axes_batch("axis"), a=_rfft_transpose)
linear(np.fft.irfft, batch=axes_batch("axis"), a=_irfft_transpose)


@composite(np.fft.hfft)
def _hfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    a = array_of(a)
    n = 2 * (a.shape[axis] - 1) if n is None else n
    return np.fft.irfft(np.conjugate(a), n, axis, _SWAPPED.get(norm, norm), out)


@composite(np.fft.ihfft)
def _ihfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    return np.conjugate(np.fft.rfft(a, n, axis, _SWAPPED.get(norm, norm), out))


# ---------------------------------------------------------------- several axes


def _steps(a: Any, s: Any, axes: Any, funs: Callable[[int], Sequence[Callable[..., Any]]]) -> list[tuple[Any, ...]]:
    """The transform, the length and the axis of each step, as NumPy completes what was not given."""
    if axes is None:
        axes = range(-len(a.shape if s is None else s), 0)
    lengths = [-1] * len(axes) if s is None else s
    shape = a.shape
    steps = []
    for fun, n, axis in zip(funs(len(axes)), lengths, axes, strict=True):
        whole = 2 * (shape[axis] - 1) if fun is np.fft.irfft and s is None else shape[axis]
        steps.append((fun, n if n is None or n != -1 else whole, axis))
    return steps


def _several(
    first: Callable[..., Any], last: Callable[..., Any], a: Any, s: Any, axes: Any, norm: Any, out: Any
) -> Any:
    """Transform along one axis after the other: the last one by ``last``, which of a real transform is the half one."""
    a = array_of(a)
    steps = _steps(a, s, axes, lambda n: [first] * (n - 1) + [last])
    if last is not np.fft.irfft:
        steps.reverse()
    for fun, n, axis in steps:
        a = fun(a, n, axis, norm, out)
    return a


def _register(several: Callable[..., Any], two: Callable[..., Any], first: Any, last: Any) -> None:
    def definition(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
        return _several(first, last, a, s, axes, norm, out)

    def over_two(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
        return _several(first, last, a, s, axes, norm, out)

    composite(several)(definition)
    composite(two)(over_two)


_register(np.fft.fftn, np.fft.fft2, np.fft.fft, np.fft.fft)
_register(np.fft.ifftn, np.fft.ifft2, np.fft.ifft, np.fft.ifft)
_register(np.fft.rfftn, np.fft.rfft2, np.fft.fft, np.fft.rfft)
_register(np.fft.irfftn, np.fft.irfft2, np.fft.ifft, np.fft.irfft)
