"""All cases, gathered from the families."""

from tests.cases import (
    arithmetic,
    calculus,
    elementwise,
    fft,
    indexing,
    matrices,
    products,
    reductions,
    shaping,
    sorting,
)

CASES = [
    case
    for family in (arithmetic, elementwise, reductions, shaping, indexing, products, sorting, calculus, matrices, fft)
    for case in family.CASES
]
