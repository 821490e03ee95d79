import logging
import threading
from typing import Any

import pytest

from tuneparts.tracking.store import _Calls
from tuneparts.tracking.tracker import _Writer


class Sink:
    """Remembers what arrived in which call; fails and blocks on demand."""

    def __init__(self) -> None:
        self.calls = _Calls(None)
        self.pending: list[Any] = []
        self.sends: list[list[Any]] = []
        self.failures = 0
        self.attempts = 0
        self.gate, self.called = threading.Event(), threading.Event()
        self.gate.set()

    def advance(self) -> None:
        self.gate.wait()
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("away")
        some, self.pending = self.pending, []
        self.sends.append(some)
        self.called.set()
        self.calls.points += len(some)
        self.calls.made += 1


def put(sink: Sink, writer: _Writer, item: Any) -> None:
    sink.pending.append(item)
    writer.wake()


def arrived(sink: Sink) -> list[Any]:
    return [item for send in sink.sends for item in send]


def test_items_arrive_once_and_in_order() -> None:
    sink = Sink()
    writer = _Writer(sink.advance, sink.calls, interval=0.001)
    for item in range(1000):
        put(sink, writer, item)
    assert writer.flush(10)
    assert arrived(sink) == list(range(1000))
    assert writer.close(10)
    assert arrived(sink) == list(range(1000))


def test_items_are_gathered_until_a_flush() -> None:
    sink = Sink()
    writer = _Writer(sink.advance, sink.calls, interval=3600)
    assert sink.called.wait(10)  # before the first item, so that the parent run is there early
    for item in range(11):
        put(sink, writer, item)
    assert sink.sends == [[]]
    assert writer.flush(10)  # does not wait for the interval
    assert sink.sends[1:] == [list(range(11))]
    assert writer.close(10)


def test_failures_are_retried_until_they_pass(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    sink.failures = 5
    with caplog.at_level(logging.WARNING):
        writer = _Writer(sink.advance, sink.calls, interval=0.001, first_delay=0.001)
        put(sink, writer, "a")
        assert writer.flush(10)
    assert arrived(sink) == ["a"]
    assert writer.retries == 5
    assert writer.last_error is None
    assert [record.getMessage() for record in caplog.records] == [
        "tracking: the store does not answer, training goes on: away",
        "tracking: the store answers again",
    ]
    writer.close(10)


def test_items_keep_queueing_while_the_store_is_away() -> None:
    sink = Sink()
    sink.failures = 10**9
    writer = _Writer(sink.advance, sink.calls, interval=0.001, first_delay=0.001)
    for item in range(100):
        put(sink, writer, item)
    assert not writer.flush(0.05)
    assert writer.waiting >= 100
    assert writer.last_error == "away"
    sink.failures = 0
    assert writer.flush(10)
    assert arrived(sink) == list(range(100))
    assert writer.waiting == 0
    assert writer.close(10)


@pytest.mark.parametrize("fault", ["stays away", "hangs"])
def test_close_gives_up_on_a_store_that(fault: str) -> None:
    sink = Sink()
    if fault == "hangs":
        sink.gate.clear()
    else:
        sink.failures = 10**9
    writer = _Writer(sink.advance, sink.calls, interval=0.001, first_delay=0.001)
    put(sink, writer, "a")
    assert not writer.close(0.1)
    assert writer.waiting >= 1
    sink.gate.set()


def test_close_is_patient_while_there_is_progress() -> None:
    """A long queue takes longer than the timeout, but every call gets through."""
    sink = Sink()
    done = threading.Event()
    slow_send = sink.advance

    def advance() -> None:
        for _ in range(8):
            done.wait(0.05)
            sink.calls.made += 1
        slow_send()

    sink.advance = advance  # type: ignore[method-assign]
    writer = _Writer(sink.advance, sink.calls, interval=0.001)
    put(sink, writer, "a")
    assert writer.close(0.2)
    assert arrived(sink) == ["a"]
