"""The code that a search brings along, and what it may not be."""

import importlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.executors import Place, execute
from tuneparts.search import code, load, runs
from tuneparts.search.code import Code

MINE = """
from tuneparts.testing.null import NullConfig

class Mine(NullConfig):
    steps: int = 4
"""
SEARCH = """
from tuneparts.data.config import Data
from tuneparts.search.spec import Search
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale

def search(scale):
    data = Data(name="digits", num_train=20, num_val=10, num_test=10)
    return Search(
        name="mine", question="Why?", scale=scale, metric="val/accuracy", seeds=(0, 1), steps=4,
        data=data, arms=(Arm(name="one", config=Mine()),),
    )
"""
FACTS = {"command": "", "commit": "", "versions": {}, "storage": None}


@pytest.fixture
def beside(tmp_path) -> Path:
    """A search file whose method stands in a package beside it, among other things."""
    folder = tmp_path / "work"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").write_text("import helper")
    (folder / "pack" / "mine.py").write_text(MINE)
    (folder / "helper.py").touch()
    (folder / "unused.py").touch()
    (folder / "asked.py").write_text(f"from pack.mine import Mine\n{SEARCH}")
    return folder / "asked.py"


def test_what_the_method_imports_travels_and_nothing_else(beside, tmp_path) -> None:
    search = load.load(str(beside))
    assert search.arms[0].config.model_dump()["method"] == "pack.mine:Mine"
    run = runs.create(tmp_path / "results", search, **FACTS)
    kept = run.folder / "code"
    files = {str(path.relative_to(kept)) for path in kept.rglob("*.py")}
    assert files == {"pack/__init__.py", "pack/mine.py", "helper.py"}
    assert run.card["code"] == Code.of(kept).digest
    execute(runs.Run(run.root, run.name).search, folder=run.folder, place=Place("local", workers=2))


def test_a_search_of_our_own_methods_brings_nothing(tmp_path) -> None:
    search = load.load("rotated_digits", scale="smoke")
    run = runs.create(tmp_path, search, **FACTS)
    assert run.card["code"] == ""
    assert not (run.folder / "code").exists()


def test_code_that_is_too_large_is_refused(beside, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(code, "MOST_BYTES", 100)
    with pytest.raises(ConfigError, match=r"pack.*at most 100\. Move data out"):
        code.keep(load.load(str(beside)), tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_file_with_the_name_of_another_module_cannot_define_a_method(tmp_path) -> None:
    path = tmp_path / "json.py"
    path.write_text(MINE + SEARCH)
    with pytest.raises(ConfigError, match=r"`tuneparts_search_json:Mine` cannot.*no other module"):
        load.load(str(path))


def test_the_digest_is_of_what_the_files_say(beside, tmp_path) -> None:
    search = load.load(str(beside))
    one, two = (code.keep(search, tmp_path / name) for name in ("one", "two"))
    assert one.digest == two.digest != ""
    (tmp_path / "two" / "helper.py").write_text("x = 1")
    assert Code.of(tmp_path / "two").digest != one.digest


SCRIPT = (
    MINE
    + SEARCH
    + """
if __name__ == "__main__":
    import sys
    from pathlib import Path
    from tuneparts.executors import Place, execute

    execute(search("smoke"), folder=Path(sys.argv[1]), place=Place("local", workers=2))
"""
)


def test_a_script_is_imported_by_the_name_of_its_file(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, tmp_path / "run"], check=True, timeout=120)
    assert [path.name for path in (tmp_path / "run" / "code").glob("*.py")] == ["script.py"]
    text = (tmp_path / "run" / "journal.jsonl").read_text()
    assert '"method": "script:Mine"' in text
    assert text.count('"finished"') == 2


def test_what_is_typed_into_an_interpreter_is_refused() -> None:
    words = [sys.executable, "-c", MINE + SEARCH + "search('smoke')"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "typed into a notebook or an interpreter. Write it into a `.py` file" in done.stderr


def test_an_environment_in_the_folder_of_a_search_is_not_its_code(tmp_path) -> None:
    site = tmp_path / ".venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed_there.py").write_text("class Base: ...")
    (tmp_path / "beside.py").write_text("import installed_there")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        with code._importable(tmp_path):
            import beside
        kept = sys.modules["installed_there"]
        with code._importable(tmp_path, afresh=True):
            assert sys.modules["installed_there"] is kept
            assert "beside" not in sys.modules
            importlib.import_module("beside")
        assert sys.modules["beside"] is not beside
        assert sys.modules["beside"].installed_there is kept
    with code._importable(tmp_path / ".venv"):
        assert "beside" not in sys.modules


def test_copies_are_as_private_as_the_user_wants_them(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner" / "__pycache__").mkdir(parents=True)
    (package / "inner" / "__pycache__" / "x.pyc").touch()
    (package / "inner" / "part.py").write_text("x = 1\n")
    (tmp_path / "one.py").write_text("y = 2\n")
    for path in (tmp_path / "one.py", package, package / "inner", package / "inner" / "part.py"):
        path.chmod(0o755)
    goal = tmp_path / "goal"
    before = os.umask(0o077)
    try:
        goal.mkdir()
        code.copy([package, tmp_path / "one.py"], goal)
    finally:
        os.umask(before)
    found = {str(path.relative_to(goal)): path for path in goal.rglob("*")}
    assert set(found) == {"one.py", "package", "package/inner", "package/inner/part.py"}
    assert [name for name, path in found.items() if path.stat().st_mode & 0o077] == []


def a_folder(path: Path, **modules: str) -> Path:
    path.mkdir()
    for name, text in modules.items():
        (path / f"{name}.py").write_text(text)
    return path


def both_inside(first: code.Code, second: code.Code) -> bool:
    """Whether two threads can be inside at once: each waits there for the other."""
    meeting = threading.Barrier(2)

    def train(one: code.Code) -> bool:
        with one.importable():
            try:
                meeting.wait(0.5)
            except threading.BrokenBarrierError:
                return False
            return True

    with ThreadPoolExecutor(2) as threads:
        return all(threads.map(train, (first, second)))


def test_threads_that_import_the_same_or_other_names_train_side_by_side(tmp_path) -> None:
    one = code.Code.of(a_folder(tmp_path / "one", part_of_one="x = 1"))
    again = code.Code.of(a_folder(tmp_path / "again", part_of_one="x = 1"))
    other = code.Code.of(a_folder(tmp_path / "other", part_of_other="x = 2"))
    clash = code.Code.of(a_folder(tmp_path / "clash", part_of_one="x = 3"))
    assert both_inside(one, one)
    assert both_inside(one, again)
    assert both_inside(one, other)
    assert not both_inside(one, clash)


def test_each_thread_imports_its_own_module(tmp_path) -> None:
    codes = [
        code.Code.of(a_folder(tmp_path / f"f{i}", **{name: f"x = {i}"}))
        for i, name in enumerate(("part_a", "part_a", "part_b", "part_a", "part_c"))
    ]
    names = ("part_a", "part_a", "part_b", "part_a", "part_c")

    def found(number: int) -> list[int]:
        values = []
        for _ in range(20):
            with codes[number].importable():
                values.append(importlib.import_module(names[number]).x)
        return values

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(found, range(5))) == [[number] * 20 for number in range(5)]
    assert code._USES == {}
    assert not code._TURN.locked()


def test_who_wants_to_load_is_not_kept_waiting_by_those_who_train(tmp_path) -> None:
    folder = a_folder(tmp_path / "code", part_of_one="x = 1")
    kept, is_over = code.Code.of(folder), threading.Event()

    def train() -> None:
        while not is_over.wait(0.001):
            with kept.importable():
                time.sleep(0.01)

    with ThreadPoolExecutor(3) as threads:
        trained = [threads.submit(train) for _ in range(2)]
        threads.submit(_loads, folder).result(timeout=20)
        is_over.set()
        for one in trained:
            one.result(timeout=20)


def _loads(folder: Path) -> None:
    with code._importable(folder, afresh=True):
        importlib.import_module("part_of_one")


def test_a_thread_that_imports_meanwhile_misses_no_entry(tmp_path: Path) -> None:
    before = list(sys.path)
    with code._importable(tmp_path):
        entries = iter(sys.path)
        assert next(entries) == str(tmp_path.resolve())
    assert list(entries) == before == sys.path
