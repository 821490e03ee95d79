"""Which workers to start and which to end: what waits against what fits. Arithmetic, no Ray.

A worker serves one shape, which is what a trial reserves: its own bundle and those of its tasks.
It stays over every barrier, so it also holds its resources while it has nothing to do. It ends only
when another shape needs them, or after a long time without work.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tuneparts.executors.placement import Amounts, Room

Shape: TypeAlias = tuple[tuple[tuple[str, float], ...], ...]
"""Bundles of a trial, hashable."""
LINGER = 10.0
"""Seconds without work after which a worker gives way to one of another shape.

To start a worker takes some seconds, and a barrier is often over sooner.
"""
IDLE = 300.0
"""Seconds without work after which a worker ends, so that a cluster can give its node back."""


def shape_of(trial: Iterable[Amounts]) -> Shape:
    """Make the shape of a trial from its bundles."""
    return tuple(tuple(sorted((k, v) for k, v in one.items() if v)) for one in trial)


def bundles_of(shape: Shape) -> list[dict[str, float]]:
    """Recover the bundles of a shape."""
    return [dict(bundle) for bundle in shape]


@dataclass(eq=False)
class Post:
    """A worker, as far as staffing looks at it."""

    shape: Shape
    nodes: tuple[str, ...] | None = None
    """Where its bundles lie; None while it is starting."""
    is_busy: bool = False
    idle_seconds: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it is there and has nothing to do."""
        return self.nodes is not None and not self.is_busy


@dataclass
class Staffing:
    """What to change."""

    start: list[Shape] = field(default_factory=list)
    end: list[Post] = field(default_factory=list)


def decide(
    nodes: Mapping[str, Amounts],
    posts: Iterable[Post],
    waiting: Iterable[tuple[Shape, int]],
    *,
    cpus: float | None = None,
) -> Staffing:
    """Decide which workers to start and which to end.

    Shapes that need a GPU or another special resource come first: the others could run anywhere.
    Otherwise the order of `waiting` counts. A shape that finds no room takes that of workers which
    have nothing to do, and that of workers of later shapes as soon as they have ended a segment. It
    never waits for what its own shape holds: trials that wait for a GPU hold up none without.

    Args:
        nodes: node -> what it has.
        posts: the workers that there are.
        waiting: shape and number of segments that wait, those to run first standing first.
        cpus: CPUs that all workers together may hold; None for all that there are.

    Example:
        >>> cpu, gpu = shape_of([{"CPU": 1}]), shape_of([{"CPU": 1, "GPU": 1}])
        >>> found = decide({"a": {"CPU": 3, "GPU": 1}}, [], [(cpu, 9), (gpu, 9)])
        >>> found.start == [gpu, cpu, cpu]
        True
    """
    return _Decision(list(posts), waiting, Room(nodes, cpus)).made()


class _Decision:
    def __init__(self, posts: list[Post], waiting: Iterable[tuple[Shape, int]], room: Room) -> None:
        wanted: Counter[Shape] = Counter()
        for shape, count in waiting:
            wanted[shape] += count
        self._wanted = dict(sorted(wanted.items(), key=lambda item: not _is_special(item[0])))
        self._rank = {shape: rank for rank, shape in enumerate(self._wanted)}
        self._posts = posts
        self._room = room
        """What is free, or will be once those that give way have ended."""
        self._free = room
        """What is free now."""
        self._change = Staffing()

    def made(self) -> Staffing:
        self._subtract_posts()
        for shape, count in self._wanted.items():
            there = sum(1 for post in self._posts if post.shape == shape and not post.is_busy)
            for _ in range(count - there):
                if self._room.reserve(bundles_of(shape)):
                    if self._free.reserve(bundles_of(shape)):
                        self._change.start.append(shape)
                elif not self._make_room(shape):
                    break
        for post in self._without_work():
            if post.idle_seconds >= IDLE:
                self._change.end.append(post)
        return self._change

    def _subtract_posts(self) -> None:
        """Take what workers hold; those that are starting and can no longer be placed end."""
        for post in self._posts:
            if post.nodes is not None:
                self._room.hold(bundles_of(post.shape), post.nodes)
        for post in [post for post in self._posts if post.nodes is None]:
            if not self._room.reserve(bundles_of(post.shape)):
                self._posts.remove(post)
                self._change.end.append(post)
        self._free = self._room.copy()

    def _make_room(self, shape: Shape) -> bool:
        """Take the room of other workers for one of this shape; returns whether that is possible.

        Those that are idle end. Where some are still busy the room of the others is kept free.
        """
        tried, taken = self._room.copy(), []
        for post in self._that_yield_to(shape):
            tried.release(bundles_of(post.shape), post.nodes or ())
            taken.append(post)
            if tried.reserve(bundles_of(shape)):
                break
        else:
            return False
        for post in list(taken):  # give back what turned out not to be needed
            tried.hold(bundles_of(post.shape), post.nodes or ())
            if tried.is_overdrawn:
                tried.release(bundles_of(post.shape), post.nodes or ())
            else:
                taken.remove(post)
        self._room = tried
        self._change.end += [post for post in taken if post.is_idle]
        self._posts = [post for post in self._posts if post not in taken]
        return True

    def _that_yield_to(self, shape: Shape) -> list[Post]:
        """Workers of other shapes that give way to this one, idle ones first."""
        last = len(self._rank)
        spare = self._without_work()
        busy_shapes = {post.shape for post in self._posts if post.is_busy}

        def gives_way(post: Post) -> bool:
            if post.nodes is None or post.shape == shape:
                return False
            if post in spare:
                return post.idle_seconds >= LINGER or post.shape not in busy_shapes
            return self._rank.get(post.shape, last) > self._rank[shape]

        return sorted(filter(gives_way, self._posts), key=lambda post: post.is_busy)

    def _without_work(self) -> list[Post]:
        """Idle workers for which no segment waits."""
        left = Counter(self._wanted)
        found = []
        for post in filter(lambda post: post.is_idle, self._posts):
            left[post.shape] -= 1
            if left[post.shape] < 0:
                found.append(post)
        return found


def _is_special(shape: Shape) -> bool:
    return any(name not in {"CPU", "memory"} for bundle in shape for name, _ in bundle)
