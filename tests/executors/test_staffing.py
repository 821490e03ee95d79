"""Which workers start and end: no Ray, only what waits and what fits."""

from tuneparts.executors.staffing import IDLE, LINGER, Post, Shape, decide, shape_of

CPU, WIDE = shape_of([{"CPU": 1}]), shape_of([{"CPU": 4}])
GPU = shape_of([{"CPU": 1, "GPU": 1}])
GROUP = shape_of([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
NODE = {"a": {"CPU": 8.0}}


def idle(shape: Shape, node: str = "a", seconds: float = 0.0) -> Post:
    return Post(shape, (node,) * len(shape), idle_seconds=seconds)


def busy(shape: Shape, node: str = "a") -> Post:
    return Post(shape, (node,) * len(shape), is_busy=True)


def test_as_many_start_as_wait_or_fit() -> None:
    assert decide(NODE, [], [(CPU, 3)]).start == [CPU] * 3
    assert decide(NODE, [], [(CPU, 30)]).start == [CPU] * 8
    assert decide(NODE, [], [(CPU, 30)], cpus=5).start == [CPU] * 5
    assert decide(NODE, [], [(GROUP, 30)]).start == [GROUP] * 2
    assert decide({}, [], [(CPU, 3)]).start == []


def test_those_that_are_there_count() -> None:
    posts = [busy(CPU), idle(CPU), Post(CPU)]
    assert decide(NODE, posts, [(CPU, 4)]).start == [CPU] * 2
    assert decide(NODE, posts, [(CPU, 30)]).start == [CPU] * 5


def test_a_node_that_joins_is_filled() -> None:
    posts = [busy(CPU) for _ in range(8)]
    assert decide(NODE, posts, [(CPU, 9)]).start == []
    assert decide({**NODE, "b": {"CPU": 2.0}}, posts, [(CPU, 9)]).start == [CPU] * 2


def test_at_a_barrier_everybody_stays() -> None:
    posts = [busy(CPU), *(idle(CPU, seconds=LINGER * 5) for _ in range(7))]
    change = decide(NODE, posts, [])
    assert (change.start, change.end) == ([], [])


def test_who_has_had_no_work_for_long_ends() -> None:
    posts = [busy(CPU), idle(CPU, seconds=IDLE), idle(CPU, seconds=IDLE)]
    assert decide(NODE, posts, []).end == posts[1:]
    assert decide(NODE, posts, [(CPU, 1)]).end == posts[2:]


def test_trials_that_wait_for_a_gpu_hold_up_none_without() -> None:
    nodes = {"a": {"CPU": 8.0, "GPU": 1.0}}
    for waiting in ([(GPU, 48), (CPU, 48)], [(CPU, 48), (GPU, 48)]):
        assert decide(nodes, [], waiting).start == [GPU] + [CPU] * 7
    posts = [busy(GPU), *(idle(CPU) for _ in range(7))]
    change = decide(nodes, posts, [(GPU, 47), (CPU, 41)])
    assert (change.start, change.end) == ([], [])


def test_workers_of_a_later_shape_give_way_after_their_segment() -> None:
    posts = [busy(CPU) for _ in range(8)]
    waiting = [(WIDE, 1), (CPU, 100)]
    assert decide(NODE, posts, waiting).end == []
    for number in range(4):
        posts[number] = idle(CPU)
    change = decide(NODE, posts, waiting)
    assert change.end == posts[:4]
    assert change.start == []  # when they have gone
    assert decide(NODE, posts[4:], waiting).start == [WIDE]


def test_room_that_is_being_cleared_is_not_given_away() -> None:
    posts = [busy(CPU) for _ in range(5)] + [idle(CPU) for _ in range(3)]
    change = decide(NODE, posts, [(WIDE, 1), (CPU, 100)])
    assert change.end == posts[5:]
    change = decide(NODE, posts[:5], [(WIDE, 1), (CPU, 100)])
    assert (change.start, change.end) == ([], [])


def test_a_shape_without_work_gives_way_once_it_has_lingered_or_is_all_idle() -> None:
    waiting = [(WIDE, 1)]
    posts = [idle(CPU) for _ in range(8)]
    assert decide(NODE, posts, waiting).end == posts[:4]
    posts[7] = busy(CPU)
    assert decide(NODE, posts, waiting).end == []
    for post in posts[:4]:
        post.idle_seconds = LINGER
    assert decide(NODE, posts, waiting).end == posts[:4]


def test_only_who_must_gives_way() -> None:
    nodes = {"a": {"CPU": 3.0}, "b": {"CPU": 8.0}}
    posts = [idle(CPU, "a") for _ in range(3)] + [idle(CPU, "b") for _ in range(8)]
    assert decide(nodes, posts, [(WIDE, 1)]).end == posts[3:7]


def test_a_worker_that_cannot_be_placed_any_more_is_not_waited_for() -> None:
    starting = Post(WIDE)
    posts = [starting, *(busy(CPU) for _ in range(6))]
    assert decide(NODE, posts, [(WIDE, 1), (CPU, 9)]).end == [starting]


def test_what_the_bundles_of_tasks_take_counts() -> None:
    nodes = {"a": {"CPU": 2.0}, "b": {"CPU": 2.0}}
    assert decide(nodes, [], [(GROUP, 2)]).start == [GROUP]
    posts = [Post(GROUP, ("a", "a", "b"), is_busy=True)]
    assert decide(nodes, posts, [(CPU, 5)]).start == [CPU]
