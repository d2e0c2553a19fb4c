"""One call of each benchmark at a small size: what is compared with what is by hand is the same derivative.

Nothing is timed: times do not belong into tests.
"""

import numpy as np
import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.measure import difference
from tests.benchmarks.workloads import WORKLOADS


@pytest.mark.parametrize("workload", WORKLOADS, ids=[w.name for w in WORKLOADS])
def test_both_derivatives_agree(workload, rng):
    inputs = workload.inputs(rng, workload.small)
    before = [np.copy(x) for x in inputs]
    expected = workload.by_hand(*inputs)
    assert difference(workload.derive(workload.program)(*inputs), expected) < 1e-12
    assert all([np.array_equal(x, y) for x, y in zip(inputs, before, strict=True)])


def test_the_difference_is_seen():
    x = np.array([1.0, -2.0])
    assert difference((x, x), (x, x - 0.5)) == 0.5 / 2.5
    with pytest.raises(AssertionError):
        difference(x, x[:, None])


@pytest.mark.parametrize("mode", [[], ["--growth"]])
def test_the_table_has_a_row_for_each(mode, capsys):
    main(["--small", "--rounds", "1", *mode])
    names = [line[:20].strip() for line in capsys.readouterr().out.splitlines()]
    assert names == ["", *[workload.name for workload in WORKLOADS]]
