"""Where the boxes of a graph stand and how its edges run: a layered layout, as pure geometry.

Every box stands in a layer below the boxes that it depends on. An edge that passes a layer has a place of its own there, so
no edge runs through a box; the edges of one box share these places, as a trunk. Places are put in an order with few
crossings, and then as close below their neighbours as that order and their widths allow.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

Point: TypeAlias = "tuple[float, float]"

MARGIN = 12.0
BESIDE = 18.0  # between two neighbours in a layer
BELOW = 34.0  # between two layers
PORTS = 30.0  # between the ends of two edges at the top of a box
ORDER_SWEEPS, PLACE_SWEEPS = 12, 60


class Place:
    """A box, or the place where an edge passes a layer, which has neither width nor height.

    Attributes
    ----------
    x, top, bottom : its centre, and how far down it reaches
    above : pairs (place, port): where its edges come from, and where they enter, as distances from its centre
    below : pairs (place, port): where edges go to, and where they enter there
    """

    __slots__ = ("above", "below", "bottom", "height", "layer", "order", "top", "width", "x")

    def __init__(self, width: float, height: float, layer: int) -> None:
        self.width = width
        self.height = height
        self.layer = layer
        self.above: list[tuple[Place, float]] = []
        self.below: list[tuple[Place, float]] = []
        self.order = 0
        self.x = self.top = self.bottom = 0.0

    def share(self, port: float) -> float:
        """Return a port as a share of the width, between -1/2 and 1/2."""
        return port / self.width if self.width else 0.0


class Layout:
    """A graph laid out.

    Attributes
    ----------
    places : one for each box
    edges : from (box, which of its parents) to the ``(x, y)`` through which the edge goes: straight down, and curved, in turn
    width, height : of the picture
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], parents: Sequence[Sequence[int]]) -> None:
        """Lay out boxes of the given sizes. A box stands after its parents, the boxes that it depends on."""
        layers = layers_of(parents)
        self.places = [Place(w, h, layer) for (w, h), layer in zip(sizes, layers, strict=True)]
        ways = connect(self.places, parents)
        rows = depth_first(self.places)
        rows = ordered(rows)
        settle(rows)
        bands = stack(rows)
        self.edges = {(box, k): route(way, way[-1].above[k][1], bands) for (box, k), way in ways.items()}
        for place in [p for row in rows for p in row]:  # what refers to one another would be left to the collector
            place.below.clear()
        right = [p.x + p.width / 2 for p in self.places] + [x for points in self.edges.values() for x, _ in points]
        self.width = max(right, default=0.0) + MARGIN
        self.height = max([p.bottom for p in self.places], default=0.0) + MARGIN


def layers_of(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer of each box: below all of its parents, and if these are but one or none, just above its first child.

    So a box that is needed late stands where it is needed; an edge from its parent down to there is part of the parent's trunk.
    """
    layers: list[int] = []
    for above in parents:
        layers.append(1 + max([layers[p] for p in above], default=-1))
    first: dict[int, int] = {}
    for k in reversed(range(len(parents))):
        if k in first and len(set(parents[k])) <= 1:
            layers[k] = first[k] - 1
        for p in parents[k]:
            first[p] = min(first.get(p, layers[k]), layers[k])
    highest = min(layers, default=0)
    return [layer - highest for layer in layers]


def connect(places: list[Place], parents: Sequence[Sequence[int]]) -> dict[tuple[int, int], list[Place]]:
    """Link the places, with new ones where an edge passes a layer; return each edge's places, from the parent to the box."""
    ways: dict[tuple[int, int], list[Place]] = {}
    trunks: dict[int, list[Place]] = {}
    for child, above in enumerate(parents):
        place = places[child]
        apart = min(PORTS, place.width / (len(above) + 1))
        for k, parent in enumerate(above):
            trunk = trunks.setdefault(parent, [places[parent]])
            for layer in range(trunk[-1].layer + 1, place.layer):
                passing = Place(0.0, 0.0, layer)
                link(trunk[-1], passing, 0.0)
                trunk.append(passing)
            way = trunk[: place.layer - trunk[0].layer]
            link(way[-1], place, (k - (len(above) - 1) / 2) * apart)
            ways[child, k] = [*way, place]
    return ways


def link(upper: Place, lower: Place, port: float) -> None:
    """Let an edge run between places in neighbouring layers."""
    upper.below.append((lower, port))
    lower.above.append((upper, port))


# ---------------------------------------------------------------- order


def depth_first(places: list[Place]) -> list[list[Place]]:
    """Return the layers, each in the order in which its places are met from the outputs on, operand by operand."""
    rows: list[list[Place]] = [[] for _ in range(max([p.layer for p in places], default=-1) + 1)]
    seen: set[int] = set()
    stack = [p for p in reversed(places) if not p.below]
    while stack:
        place = stack.pop()
        if id(place) not in seen:
            seen.add(id(place))
            rows[place.layer].append(place)
            stack += [p for p, _ in reversed(place.above)]
    return rows


def ordered(rows: list[list[Place]]) -> list[list[Place]]:
    """Return the rows in an order with few crossings: the best of what sweeps down and up come by.

    A sweep sorts each row by the mean order of its neighbours in the row before, and then lets neighbours change places.
    """
    number(rows)
    best, fewest = rows, sum([crossings(row) for row in rows])
    for sweep in range(ORDER_SWEEPS):
        down = sweep % 2 == 0
        rows = list(rows)
        for k in range(len(rows)) if down else reversed(range(len(rows))):
            rows[k] = sorted(rows[k], key=partial(wanted_order, down=down))
            number([rows[k]])
        for row in rows:
            exchange(row)
        found = sum([crossings(row) for row in rows])
        if found < fewest:
            best, fewest = rows, found
    number(best)
    return best


def exchange(row: list[Place]) -> None:
    """Let neighbours in a row change places where that makes fewer crossings, until none do."""
    better = True
    while better:
        better = False
        for k in range(len(row) - 1):
            a, b = row[k], row[k + 1]
            if passed(a, b) > passed(b, a):
                row[k], row[k + 1] = b, a
                a.order, b.order = k + 1, k
                better = True


def passed(a: Place, b: Place) -> int:
    """Count the crossings of the edges of two places, of which the first stands on the left."""
    count = sum([p.order > q.order for p, _ in a.above for q, _ in b.above])
    ends = [q.order + q.share(port) for q, port in b.below]
    return count + sum([p.order + p.share(port) > end for p, port in a.below for end in ends])


def number(rows: Iterable[list[Place]]) -> None:
    """Write down the order of the places in their rows."""
    for row in rows:
        for k, place in enumerate(row):
            place.order = k


def wanted_order(place: Place, *, down: bool) -> float:
    """Return the mean order of a place's neighbours above or below."""
    if down:
        orders = [p.order - place.share(port) for p, port in place.above]
    else:
        orders = [p.order + p.share(port) for p, port in place.below]
    return sum(orders) / len(orders) if orders else place.order


def crossings(row: list[Place]) -> int:
    """Count the crossings of the edges that go down from a row."""
    ends: list[float] = []
    count = 0
    for place in row:
        here = [p.order + p.share(port) for p, port in place.below]
        count += sum([len(ends) - bisect_right(ends, end) for end in here])
        for end in here:
            insort(ends, end)
    return count


# ---------------------------------------------------------------- positions


def settle(rows: list[list[Place]]) -> None:
    """Set every x: as close below or above the neighbours as the order and the widths allow."""
    for row in rows:
        fit(row, [(0.0, 1.0)] * len(row))
    for sweep in range(PLACE_SWEEPS):
        both = sweep >= PLACE_SWEEPS // 2  # first along with the rows already swept, in the end between all neighbours
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            fit(row, [wanted_x(p, above=down or both, below=both or not down) for p in row])


def wanted_x(place: Place, *, above: bool, below: bool) -> Point:
    """Return the x that a place's edges pull it to, and how strongly; long edges pull most, so that they run straight."""
    pulls: list[Point] = []
    if above:
        pulls += [(p.x - port, strength(p, place)) for p, port in place.above]
    if below:
        pulls += [(p.x + port, strength(p, place)) for p, port in place.below]
    total = sum([weight for _, weight in pulls])
    return (sum([x * weight for x, weight in pulls]) / total, total) if pulls else (place.x, 0.01)


def strength(a: Place, b: Place) -> float:
    """Return how strongly an edge pulls: more if it passes a layer at one of its ends, most if it does so at both."""
    return (1.0, 2.0, 8.0)[(a.width == 0) + (b.width == 0)]


def fit(row: list[Place], wanted: Sequence[Point]) -> None:
    """Set the x of a row, in its order and without overlap, closest to what is wanted in the sense of least squares.

    Measured from where each place would stand if the row were packed, the x have to ascend: an isotonic regression. Places
    that want to pass one another form a block, which stands at the mean of what they want.
    """
    packed = 0.0
    offsets = [0.0]
    for a, b in pairwise(row):
        packed += (a.width + b.width) / 2 + BESIDE
        offsets.append(packed)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many places
    for (x, pull), offset in zip(wanted, offsets, strict=False):
        mean, weight, count = x - offset, pull, 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, many = blocks.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight += heavy
            count += many
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for place, mean, offset in zip(row, means, offsets, strict=False):
        place.x = mean + offset


def stack(rows: list[list[Place]]) -> list[Point]:
    """Move everything into the picture, one row below the other; return where each row begins and ends."""
    bands: list[Point] = []
    top = MARGIN
    left = min([p.x - p.width / 2 for row in rows for p in row], default=0.0)
    for row in rows:
        height = max([p.height for p in row])
        bottom = top + height
        bands.append((top, bottom))
        for p in row:
            p.x += MARGIN - left
            p.top = top + (height - p.height) / 2
            p.bottom = min(p.top + p.height, bottom)
        longest = max([abs(q.x + port - p.x) for p in row for q, port in p.below], default=0.0)
        top = bottom + BELOW + min(longest, 600.0) / 15  # room to turn for edges that run far
    return bands


def route(way: list[Place], port: float, bands: list[Point]) -> list[Point]:
    """Return the points of an edge: down through a row, across to the next, down through that, and so on."""
    first, last = way[0], way[-1]
    points = [(first.x, first.bottom)]
    for place in way:
        x = place.x + (port if place is last else 0.0)
        top, bottom = bands[place.layer]
        points += (
            [(x, bottom)] if place is first else [(x, top), (x, last.top)] if place is last else [(x, top), (x, bottom)]
        )
    return points
