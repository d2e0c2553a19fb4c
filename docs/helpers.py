"""What several pages need while they are built: pictures for both colour schemes, and tables for those who come from elsewhere.

Pages load it with `runpy.run_path("docs/helpers.py")`; it is not a part of the site.
"""

from __future__ import annotations

import ast
import io
import re
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

CURVES = [
    "#000001",
    "#000002",
    "#000003",
    "#000004",
    "#000005",
]  # stand for the colours in stylesheets/site.css
INK = "#000000"


def figure(
    width: float = 5.2, height: float = 3.4, **layout: Any
) -> tuple[Any, Any]:
    """Return a figure of matplotlib without a background, and its axes."""
    made = Figure(figsize=(width, height), layout="constrained")
    made.patch.set_alpha(0)
    axes = made.subplots(**layout)
    for ax in np.ravel(axes):
        ax.patch.set_alpha(0)
        ax.spines[["top", "right"]].set_visible(False)
    return made, axes


def picture(made: Any, description: str) -> str:
    """Return a figure as inline SVG whose colours follow the page, with a description for those who cannot see it."""
    file = io.StringIO()
    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": description}
    ):
        made.savefig(
            file,
            format="svg",
            metadata={
                "Date": None,
                "Creator": None,
                "Format": None,
                "Type": None,
            },
        )
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL
    )
    svg = re.sub(
        r' (?:width|height)="[\d.]+pt"', "", svg, count=2
    )
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(
        r"font: ([\d.]+)px [^;\"]*",
        r"font-size: \1px; font-family: inherit",
        svg,
    )
    for k, colour in enumerate(CURVES):
        svg = svg.replace(colour, f"var(--curve-{k})")
    svg = svg.replace(INK, "currentColor").replace(
        '<text style="', '<text style="fill: currentColor; '
    )
    svg = svg.replace(
        "<svg", f'<svg role="img" aria-label="{description}"', 1
    )
    return f'<figure class="picture">{" ".join(svg.split())}</figure>'


def side_by_side(
    elsewhere: str,
    rows: list[tuple[str, str]],
    names: dict[str, Any],
) -> str:
    """Return a table of what one wrote elsewhere and what one writes here; the latter is run, and its result shown."""
    lines = [
        f"| with {elsewhere} | with meintorch | it gives |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {code(theirs)} | {code(ours)} | {code(result(ours, names))} |"
        for theirs, ours in rows
    ]
    return "\n".join(lines)


def code(text: str) -> str:
    """Return a cell of code, or an empty one."""
    return f"`{text}`" if text else ""


def result(source: str, names: dict[str, Any]) -> str:
    """Run an expression, or statements that give nothing, and return what the expression gives, on one line."""
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        exec(source, names)
        return ""
    with np.printoptions(precision=3, suppress=True):
        return re.sub(
            r"\s*\n\s*", " ", rounded(eval(source, names))
        )


def rounded(value: Any) -> str:
    """Return the text of a result with few digits."""
    if value is None or callable(value):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    if isinstance(value, tuple):
        parts = [rounded(x) for x in value]
        return (
            "("
            + ", ".join([part or "..." for part in parts])
            + ("," if len(parts) == 1 else "")
            + ")"
        )
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
    ):
        return repr(
            np.asarray(value + value.dtype.type(0))
        )  # adding zero makes 0 of -0
    return repr(value)
