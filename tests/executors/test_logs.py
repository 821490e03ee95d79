"""Logs of trials: what is kept, how much of it, and what never is."""

import logging
import sys
from pathlib import Path

import pytest

from tuneparts.executors import logs
from tuneparts.executors.logs import _TrialLog
from tuneparts.search.events import TrialId
from tuneparts.search.storage import Folder

TRIAL = TrialId("arm", 0, 3)


def test_a_trial_that_has_not_begun_has_no_log(tmp_path: Path) -> None:
    assert logs.read(Folder(str(tmp_path)), TRIAL) == []


def test_prints_and_log_records_are_heard_and_still_go_where_they_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = Folder(str(tmp_path))
    log = _TrialLog(storage, TRIAL)
    with log.listen():
        print("to stdout")
        print("to stderr", file=sys.stderr)
        logging.lastResort.handle(  # type: ignore[union-attr]
            logging.LogRecord("x", logging.WARNING, "f", 1, "a %s", ("record",), None)
        )
    log.keep()
    text = "\n".join(logs.read(storage, TRIAL))
    for words in ("to stdout", "to stderr", "a record"):
        assert words in text
    captured = capsys.readouterr()
    assert "to stdout" in captured.out
    assert "to stderr" in captured.err


def test_what_was_said_before_an_exception_is_kept(tmp_path: Path) -> None:
    log = _TrialLog(Folder(str(tmp_path)), TRIAL)

    def speak_and_fail() -> None:
        print("the last words")
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), log.listen():
        speak_and_fail()
    log.keep()
    assert "the last words" in logs.read(Folder(str(tmp_path)), TRIAL)[0]


def test_the_next_worker_goes_on_where_the_last_one_died(tmp_path: Path) -> None:
    storage = Folder(str(tmp_path))
    for words in ("first", "second"):
        log = _TrialLog(storage, TRIAL)
        log.add(words)
        log.keep()
    assert [line.split()[1] for line in logs.read(storage, TRIAL)] == ["first", "second"]


def test_only_the_newest_lines_stay(tmp_path: Path) -> None:
    storage = Folder(str(tmp_path))
    log = _TrialLog(storage, TRIAL)
    log.add("\n".join(f"line{i}" for i in range(logs.NUM_LINES + 5)))
    log.keep()
    lines = logs.read(storage, TRIAL)
    assert len(lines) == logs.NUM_LINES
    assert lines[-1].endswith(f"line{logs.NUM_LINES + 4}")


def test_words_that_are_no_text_are_kept_as_well_as_they_can(tmp_path: Path, capsys) -> None:
    storage = Folder(str(tmp_path))
    log = _TrialLog(storage, TRIAL)
    with log.listen():
        print("no such file: caf\udce9.png")
    log.add("ValueError: caf\udce9.png")
    log.keep()
    assert [line.partition("caf")[2] for line in logs.read(storage, TRIAL)] == ["\\udce9.png"] * 2
    assert "caf\\udce9.png" in capsys.readouterr().out
    storage.child(*str(TRIAL).split("/"), "log").write("log.txt", b"\xff\xfe words\n")
    assert "words" in logs.read(storage, TRIAL)[0]


def test_secrets_do_not_reach_the_worker_s_own_log_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    storage = Folder(str(tmp_path))
    log = _TrialLog(storage, TRIAL)
    with log.listen():
        print("it says correct-horse-battery")
        print("in pieces: correct-", "horse-battery", sep="", end="")
        print("password=hunter2hunter2", file=sys.stderr)
        sys.stdout.write("\rprogress\r")
        sys.stdout.write("half a line")
    log.keep()
    captured = capsys.readouterr()
    said = captured.out + captured.err
    for text in (said, "\n".join(logs.read(storage, TRIAL))):
        assert "horse" not in text
        assert "hunter2" not in text
        assert "it says ***" in text
        assert "in pieces: ***" in text
        assert "half a line" in text


def test_secrets_do_not_reach_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    log = _TrialLog(Folder(str(tmp_path)), TRIAL)
    log.add("it says correct-horse-battery and postgresql://u:hunter2hunter2@host/db")
    log.keep()
    text = logs.read(Folder(str(tmp_path)), TRIAL)[0]
    assert "correct-horse" not in text
    assert "hunter2" not in text
