"""The engine: primitives and their registry, traces, the graph and its walk."""
