"""Cases for rules/fft.py."""

from typing import Any

import numpy as np

from tests.cases import Case, complexes, normal

F = np.fft
CASES = []
for fun in (F.fft, F.ifft, F.rfft, F.irfft, F.hfft, F.ihfft):
    real = fun in (F.rfft, F.ihfft)
    points = [normal(5), normal(4), normal(1) if real else normal(2)]
    points += [] if real else [complexes(5), complexes(4)]
    CASES += [Case(fun, fun, (x,), label=f"{x.dtype} {x.size}") for x in points]
    x = normal(3, 5, 2) if real else complexes(3, 5, 2)
    for n in (1, 2, 3, 4, 6, 7, 9, 12):
        CASES.append(Case(fun, lambda x, f=fun, n=n: f(x, n), (x[0].T,), label=f"n={n}"))
    for norm in ("backward", "ortho", "forward"):
        for n in (5, 6):
            CASES.append(Case(fun, lambda x, f=fun, n=n, o=norm: f(x, n, norm=o), (x[0].T,), label=f"{norm} {n}"))
    for axis in (0, 1, -3):
        CASES += [
            Case(fun, lambda x, f=fun, a=axis: f(x, axis=a), (x,), label=f"axis {axis}"),
            Case(fun, lambda x, f=fun, a=axis: f(x, 4, a, "ortho"), (x,), label=f"4 along axis {axis}"),
        ]
    CASES.append(Case(fun, fun, (np.asfortranarray(x.transpose(2, 0, 1)),), label="transposed"))
for fun in (F.fft, F.ifft, F.irfft, F.hfft):
    CASES.append(Case(fun, lambda x, f=fun: f(x, 6, axis=0), (normal(4, 2),), label="real"))

for fun in (F.fft2, F.ifft2, F.rfft2, F.irfft2, F.fftn, F.ifftn, F.rfftn, F.irfftn):
    real = fun in (F.rfft2, F.rfftn)
    x = normal(2, 3, 4) if real else complexes(2, 3, 4)
    calls: list[tuple[str, Any]] = [
        ("", fun),
        ("s", lambda x, f=fun: f(x, s=(2, 5), axes=(1, 2))),
        ("axes", lambda x, f=fun: f(x, axes=(-1, 0))),
        ("whole axis", lambda x, f=fun: f(x, (-1, 3), (2, 0), "forward")),
        ("ortho", lambda x, f=fun: f(x, axes=[0, 1], norm="ortho")),
    ]
    CASES += [Case(fun, call, (x,), label=label) for label, call in calls]
    if not real:
        CASES.append(Case(fun, fun, (normal(3, 3),), label="real"))
for fun in (F.fftn, F.ifftn):
    CASES.append(Case(fun, lambda x, f=fun: f(x, axes=(0, 1, 0)), (complexes(3, 2),), label="an axis twice"))
