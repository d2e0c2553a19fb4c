"""All cases, gathered from the families."""

from importlib.util import find_spec

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
    writing,
)

CASES = [
    case
    for family in (
        *(arithmetic, elementwise, reductions, shaping, indexing, writing),
        *(products, sorting, calculus, matrices, fft),
    )
    for case in family.CASES
]

if find_spec("scipy"):  # which the tests need and meintorch does not
    from tests.cases import special

    CASES += special.CASES

# A case and its square share everything but second derivatives, for which alone the square of a linear function is there.
UNSQUARED = [case for case in CASES if not case.label.endswith("squared")]
