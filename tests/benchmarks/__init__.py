"""What a derivative costs, next to one that is written by hand: `python -m tests.benchmarks`."""
