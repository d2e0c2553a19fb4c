"""Print a table: `python -m tests.benchmarks [--growth] [--rounds 20] [--small] [part of a name ...]`."""

import argparse

from tests.benchmarks.measure import compare, growth
from tests.benchmarks.workloads import WORKLOADS


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="What a derivative costs.")
    parser.add_argument("names", nargs="*", help="parts of the names of the workloads to run; all without one")
    parser.add_argument("--growth", action="store_true", help="how time and memory grow from n to 8 n")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    options = parser.parse_args(arguments)
    chosen = [w for w in WORKLOADS if not options.names or any([part in w.name for part in options.names])]
    if options.growth:
        print(f"{'':20}{'n':>8} {'':13} time (n is 1): 2n, 4n, 8n   memory: 2n, 4n, 8n")
    else:
        print(f"{'':20}{'n':>8} {'':13}  by hand   ratio   peak by hand        peak   difference")
    at_least = 0.0 if options.small else 0.01  # seconds of each measurement
    for workload in chosen:
        n = workload.small if options.small else workload.usual
        start = f"{workload.name:20}{n:8,} {workload.grows:13}"
        if options.growth:
            (first, least), *rest = growth(workload, [n, 2 * n, 4 * n, 8 * n], options.rounds, at_least)
            times = " ".join([f"{time / first:7.1f}" for time, _ in rest])
            peaks = " ".join([f"{peak / least:6.1f}" for _, peak in rest])
            print(f"{start} {times}   {peaks}")
        else:
            found = compare(workload, n, options.rounds, at_least)
            print(
                f"{start}{found.seconds_by_hand * 1e3:7.2f} ms{found.ratio:8.2f}{found.peak_by_hand / 1e3:12,.0f} kB"
                f"{found.peak / 1e3:9,.0f} kB{found.difference:13.0e}"
            )


if __name__ == "__main__":
    main()
