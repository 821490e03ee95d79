"""The code that a search brings along, and what it may not be."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuneparts.errors import ConfigError
from tuneparts.executors import execute
from tuneparts.search import code, load, runs
from tuneparts.search.code import Code

MINE = """
from tuneparts.bench.null import NullConfig

class Mine(NullConfig):
    passes: int = 4
"""
SEARCH = """
from tuneparts.data.config import DataConfig
from tuneparts.search.spec import Arm, Scale, Search

def search(scale):
    data = DataConfig(name="digits", num_train=20, num_val=10, num_test=10)
    return Search(
        name="mine", question="Why?", scale=scale, metric="val/accuracy", seeds=(0, 1), passes=4,
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
    execute(runs.Run(run.root, run.name).search, folder=run.folder, executor="local", workers=2)


def test_a_search_of_our_own_methods_brings_nothing(tmp_path) -> None:
    search = load.load("rotated_digits", scale="smoke")
    run = runs.create(tmp_path, search, **FACTS)
    assert run.card["code"] == ""
    assert not (run.folder / "code").exists()


def test_code_that_is_too_large_is_refused(beside, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(code, "MOST_BYTES", 100)
    with pytest.raises(ConfigError, match=r"at most 100 bytes, but .*pack.*Move data out"):
        code.keep(load.load(str(beside)), tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_file_with_the_name_of_another_module_cannot_define_a_method(tmp_path) -> None:
    path = tmp_path / "json.py"
    path.write_text(MINE + SEARCH)
    with pytest.raises(
        ConfigError, match=r"`tuneparts_search_json:Mine` cannot.*whose name no other module has"
    ):
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
    from tuneparts.executors import execute

    execute(search("smoke"), folder=Path(sys.argv[1]), executor="local", workers=2)
"""
)


def test_a_script_is_imported_by_the_name_of_its_file(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, tmp_path / "run"], check=True, timeout=120)
    assert [path.name for path in (tmp_path / "run" / "code").iterdir()] == ["script.py"]
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
        with code.importable(tmp_path):
            import beside
        kept = sys.modules["installed_there"]
        with code.importable(tmp_path, afresh=True):
            assert sys.modules["installed_there"] is kept
            assert "beside" not in sys.modules
            importlib.import_module("beside")
        assert sys.modules["beside"] is not beside
        assert sys.modules["beside"].installed_there is kept
    with code.importable(tmp_path / ".venv"):
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
