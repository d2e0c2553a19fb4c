"""All cases, gathered from the families."""

from tests.cases import arithmetic, elementwise, indexing, products, reductions, shaping

CASES = [
    case for family in (arithmetic, elementwise, reductions, shaping, indexing, products) for case in family.CASES
]
