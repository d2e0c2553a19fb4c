"""Discrete Fourier transforms.

The matrix of the transform is symmetric: it is its own transpose, without a conjugate. Along several axes a transform
is one along each axis after the other, and so is its transpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch._typing import Rule, Shape
from meintorch.core.batching import BatchCall, axes_batch, shifted
from meintorch.core.primitive import composite, linear
from meintorch.core.trace import array_of

_SWAPPED: dict[Any, Any] = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _resized(shape: Shape, axis: int, n: int) -> Shape:
    return tuple([n if k == axis % len(shape) else m for k, m in enumerate(shape)])


def _like(h: Any, a_shape: Any, a_dtype: Any, axis: int) -> Any:
    """Undo cropping and padding along an axis, and leave a real argument a real cotangent."""
    missing = a_shape[axis] - h.shape[axis]
    if missing < 0:
        h = h[tuple([slice(n) for n in a_shape])]
    if missing > 0:
        h = np.concatenate([h, np.zeros(_resized(a_shape, axis, missing), h.dtype)], axis=axis)
    if h.dtype.kind == "c" and a_dtype.kind != "c":
        h = np.real(h)
    return h if h.dtype == a_dtype else h.astype(a_dtype)


def _fft_transpose(g: Any, a_shape: Any, a_dtype: Any, n: Any, axis: Any, norm: Any) -> Any:
    return _like(np.fft.fft(g, n, axis, norm), a_shape, a_dtype, axis)


def _ifft_transpose(g: Any, a_shape: Any, a_dtype: Any, n: Any, axis: Any, norm: Any) -> Any:
    return _like(np.fft.ifft(g, n, axis, norm), a_shape, a_dtype, axis)


def _counts(half: int, n: int, axis: int, ndim: int, dtype: Any) -> Any:
    """How many of n frequencies each of the lower half stands for: two, but for zero and the middle of an even n."""
    counts = np.full(half, 2, dtype)
    counts[0] = 1
    if n % 2 == 0:
        counts[n // 2] = 1
    return counts.reshape(_resized((1,) * ndim, axis, half))


def _rfft_transpose(g: Any, a_shape: Any, a_dtype: Any, n: Any, axis: Any, norm: Any) -> Any:
    n = a_shape[axis] if n is None else n
    half = np.conjugate(g) / _counts(g.shape[axis], n, axis, g.ndim, np.finfo(g.dtype).dtype)
    return _like(np.fft.irfft(half, n, axis, _SWAPPED.get(norm, norm)), a_shape, a_dtype, axis)


def _irfft_transpose(g: Any, a_shape: Any, a_dtype: Any, n: Any, axis: Any, norm: Any) -> Any:
    h = np.conjugate(np.fft.rfft(g, n, axis, _SWAPPED.get(norm, norm)))
    return _like(h * _counts(h.shape[axis], g.shape[axis], axis, g.ndim, g.dtype), a_shape, a_dtype, axis)


linear(np.fft.fft, batch=axes_batch("axis"), a=_fft_transpose)
linear(np.fft.ifft, batch=axes_batch("axis"), a=_ifft_transpose)
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


def _axes(axes: Any, s: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(-(ndim if s is None else len(s)), 0)) if axes is None else tuple(axes)


def _several_transpose(other: Rule, last: Rule) -> Rule:
    """Go back through the axes one by one; the last of them is the one of which a real transform keeps half."""

    def transpose(g: Any, a_shape: Any, a_dtype: Any, s: Any, axes: Any, norm: Any) -> Any:
        axes = _axes(axes, s, len(a_shape))
        rules = [*[other] * (len(axes) - 1), last]
        todo = list(zip(rules, [None] * len(axes) if s is None else s, axes, strict=True))
        steps, shape = [], a_shape
        for rule, n, axis in todo if last is _irfft_transpose else todo[::-1]:
            if n is None and rule is _irfft_transpose:
                n = 2 * (a_shape[axis] - 1)  # noqa: PLW2901 - what NumPy takes it for
            elif n is None or n == -1:
                n = a_shape[axis]  # noqa: PLW2901
            steps.append((rule, shape, n, axis))
            shape = _resized(shape, axis, n // 2 + 1 if rule is _rfft_transpose else n)
        for k in range(len(steps) - 1, -1, -1):
            rule, before, n, axis = steps[k]
            g = rule(g, before, np.result_type(a_dtype, g.dtype, 1j) if k else a_dtype, n, axis, norm)
        return g

    return transpose


def _several_batch(call: BatchCall) -> Any:
    if not call.only("a"):
        return None
    n = call.get("a").ndim - 1
    call.set("axes", shifted(_axes(call.get("axes"), call.get("s"), n), n))
    return call.run()


for _fun in (np.fft.fft2, np.fft.fftn):
    linear(_fun, batch=_several_batch, a=_several_transpose(_fft_transpose, _fft_transpose))
for _fun in (np.fft.ifft2, np.fft.ifftn):
    linear(_fun, batch=_several_batch, a=_several_transpose(_ifft_transpose, _ifft_transpose))
for _fun in (np.fft.rfft2, np.fft.rfftn):
    linear(_fun, batch=_several_batch, a=_several_transpose(_fft_transpose, _rfft_transpose))
for _real in (np.fft.irfft2, np.fft.irfftn):
    linear(_real, batch=_several_batch, a=_several_transpose(_ifft_transpose, _irfft_transpose))
