"""All cases, gathered from the families."""

from tests.cases import arithmetic, elementwise, reductions

CASES = [case for family in (arithmetic, elementwise, reductions) for case in family.CASES]
