"""Where the boxes of a picture lie and how its edges run.

Boxes lie in layers from top to bottom, ordered by fast-sugiyama, the extra isokern[view].
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from ..status import InvalidArgument

ACROSS, DOWN = 24.0, 44.0  # pixels between boxes of a layer, and between layers
LANE = 16.0  # the width of an edge's lane past a layer

K = TypeVar("K", bound=Hashable)
Point = tuple[float, float]


@dataclass
class Arrangement(Generic[K]):
    """The centre and size of each box, the points of each edge from box to box, and the size of it all, in pixels.

    An edge goes from the bottom of a box to the bottom of its layer, from the top to the bottom of each layer that it
    passes, and from the top of the last layer to the top of a box there.
    """

    centres: dict[K, Point] = field(default_factory=dict)
    sizes: dict[K, tuple[float, float]] = field(default_factory=dict)
    edges: list[list[Point]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def place(
    sizes: Mapping[K, tuple[float, float]], edges: Sequence[tuple[K, K]], loose: Collection[K] = ()
) -> Arrangement[K]:
    """Lay out boxes of these sizes, (width, height), with an edge from the upper to the lower box of each pair.

    The upper box of an edge comes first in `sizes`. The boxes in `loose` stand right above their first reader, all
    others as high as they can. InvalidArgument where fast-sugiyama is not installed.
    """
    keys = list(sizes)
    layers = _layers(keys, edges, loose)
    at = {key: n for n, key in enumerate(keys)}
    extents = list(sizes.values())
    ways: list[list[int]] = []  # of each edge, the nodes on its way: the boxes at its ends, and its lanes between them
    depth = [layers[k] for k in keys]
    for a, b in edges:
        lanes = range(layers[a] + 1, layers[b])
        ways.append([at[a], *range(len(depth), len(depth) + len(lanes)), at[b]])
        depth += lanes
        extents += [(LANE, 0.0)] * len(lanes)
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for n, layer in enumerate(depth):
        rows[layer].append(n)
    across = _apart(_columns(len(depth), [pair for way in ways for pair in pairwise(way)]), rows, extents)
    tall = [max((extents[n][1] for n in row), default=0.0) for row in rows]
    tops = [sum(tall[:layer]) + DOWN * layer for layer in range(len(rows))]
    made: Arrangement[K] = Arrangement(sizes=dict(sizes), height=sum(tall) + DOWN * max(0, len(rows) - 1))
    left = min((x - w / 2 for x, (w, _) in zip(across, extents, strict=True)), default=0.0)
    across = [x - left for x in across]
    made.width = max((x + w / 2 for x, (w, _) in zip(across, extents, strict=True)), default=0.0)
    made.centres = {k: (across[n], tops[depth[n]] + tall[depth[n]] / 2) for k, n in at.items()}
    begins, ends = _ports(ways, across, extents, 0), _ports(ways, across, extents, -1)
    for way, begin, end in zip(ways, begins, ends, strict=True):
        first, last = keys[way[0]], keys[way[-1]]
        through = [(begin, layers[first]), *((across[n], depth[n]) for n in way[1:-1]), (end, layers[last])]
        points = [(x, y) for x, n in through for y in (tops[n], tops[n] + tall[n])]
        points[0] = (begin, made.centres[first][1] + sizes[first][1] / 2)
        points[-1] = (end, made.centres[last][1] - sizes[last][1] / 2)
        made.edges.append(points)
    return made


def _layers(keys: Sequence[K], edges: Sequence[tuple[K, K]], loose: Collection[K]) -> dict[K, int]:
    """Return the layer of each box, from 0."""
    before: dict[K, list[K]] = {k: [] for k in keys}
    after: dict[K, list[K]] = {k: [] for k in keys}
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    found: dict[K, int] = {}
    for k in keys:
        found[k] = 1 + max((found[a] for a in before[k]), default=-1)
    for k in reversed(keys):
        if k in loose and after[k]:
            found[k] = min(found[b] for b in after[k]) - 1
    return found


def _columns(nodes: int, edges: Sequence[tuple[int, int]]) -> list[float]:
    """Return positions of nodes, at least 1 apart in a layer, with few crossings.

    Edges go from a layer to the next one.
    """
    try:
        from fast_sugiyama import from_edges
    except ImportError:
        raise InvalidArgument(
            "view",
            "fast-sugiyama, which lays graphs out, is not installed",
            hint="pip install 'isokern[view]' (Python 3.11 or later)",
        ) from None
    # fast-sugiyama assigns layers of its own. Those of the least total edge length are ours, but for where each
    # connected part begins
    parts = from_edges(edges, vertex_spacing=1, dummy_vertices=False, ranking_type="minimize")
    found = {n: x for n, (x, _) in parts.align_layouts_horizontal(spacing=1).to_dict().items()}
    alone = max(found.values(), default=-1.0)
    return [found[n] if n in found else (alone := alone + 1) for n in range(nodes)]


def _apart(columns: Sequence[float], rows: Sequence[list[int]], extents: Sequence[tuple[float, float]]) -> list[float]:
    """Return centres in pixels in the order of the columns, which are half as wide as the widest box.

    Nodes of a layer that would touch are moved apart.
    """
    unit = max((w for w, _ in extents), default=0.0) / 2 + ACROSS
    found = [x * unit for x in columns]
    for row in rows:
        row = sorted(row, key=lambda n: columns[n])
        wanted = [found[n] for n in row]
        for a, b in pairwise(row):
            found[b] = max(found[b], found[a] + (extents[a][0] + extents[b][0]) / 2 + ACROSS)
        middle = sum(found[n] - x for n, x in zip(row, wanted, strict=True)) / max(1, len(row))
        for n in row:
            found[n] -= middle  # the row moves back by the mean of its pushes to the right
    return found


def _ports(ways: Sequence[Sequence[int]], across: Sequence[float], extents: Sequence[Point], end: int) -> list[float]:
    """Return where each edge touches the box at its beginning (end 0) or its end (-1).

    The points are spread over the middle, in the order of what is at the other side.
    """
    of: dict[int, list[int]] = {}
    for e, way in enumerate(ways):
        of.setdefault(way[end], []).append(e)
    found = [0.0] * len(ways)
    for node, touching in of.items():
        touching.sort(key=lambda e: (across[ways[e][1 if end == 0 else -2]], e))
        for n, e in enumerate(touching):
            found[e] = across[node] + extents[node][0] * ((n + 1) / (len(touching) + 1) - 0.5)
    return found
