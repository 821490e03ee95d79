import importlib
import os
import sys
from pathlib import Path

import pytest

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.search import code, load
from tuneparts.search.spec import Search

FILES = load.available()
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
@pytest.mark.parametrize("name", FILES)
def test_every_search_file_is_a_valid_question_at_every_scale(name: str, scale: str) -> None:
    search = load.load(name, scale=scale)
    assert parse(Search, search.model_dump(mode="json")).digest == search.digest
    assert search.name == name
    assert search.scale == scale
    assert load.question(FILES[name]).endswith("?")
    assert search.question.endswith("?")


def test_the_index_has_every_question() -> None:
    index = (ROOT / "searches" / "README.md").read_text()
    for name, path in FILES.items():
        assert f"| [`{name}`]({name}.py) | {load.question(path)} |" in index


def test_trials_seeds_and_fields_can_be_changed() -> None:
    search = load.load(
        "rotated_digits",
        scale="smoke",
        trials=3,
        seeds=[5, 6],
        changes=["random.optimiser.lr=0.5", "data.num_val=100", "none.net=mlp", "none.steps=40"],
    )
    assert search.arm("random").trials_per_seed == 3
    assert search.seeds_of(search.arm("random")) == (5, 6)
    assert search.arm("random").config.optimiser.lr == 0.5
    assert search.data.num_val == 100
    assert search.arm("none").config.net.name == "mlp"
    assert search.arm("none").budget_note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nobody.lr=1", "nobody"),
        ("random=1", "ARM.FIELD=VALUE"),
        ("random.lr", "ARM.FIELD=VALUE"),
        ("random.optimiser.weight_decya=1", "Did you mean `weight_decay`"),
        ("random.batch_size=-1", "batch_size"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused(change: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load.load("rotated_digits", scale="smoke", changes=[change])


def test_some_arms_bring_their_source_arms() -> None:
    search = load.load("rotated_digits", scale="smoke", arms=["partitioned_retrained", "none"])
    assert [arm.name for arm in search.arms] == ["partitioned", "none", "partitioned_retrained"]
    assert search.digest != load.load("rotated_digits", scale="smoke").digest
    with pytest.raises(UnknownNameError, match="nobody"):
        load.load("rotated_digits", scale="smoke", arms=["none", "nobody"])


def _question_with_neighbour(folder, notes: str):
    folder.mkdir()
    (folder / "neighbour.py").write_text(f"NOTES = {notes!r}\n")
    path = folder / "asked.py"
    path.write_text(QUESTION)
    return path


QUESTION = '''"""Why?"""
from neighbour import NOTES
from tuneparts.methods.baselines.config import Standard
from tuneparts.data.config import Data
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Search

def search(scale):
    from neighbour import NOTES as late
    assert late is NOTES
    return Search(
        name="asked", question="Why?", notes=NOTES, scale=scale, metric="val/accuracy", seeds=(0,),
        data=Data(name="digits"), steps=4,
        arms=(Arm(name="one", config=Standard(steps=4, interval=2)),),
    )
'''


def test_a_search_file_imports_the_modules_beside_it(tmp_path, monkeypatch) -> None:
    first = _question_with_neighbour(tmp_path / "first", "of the first")
    second = _question_with_neighbour(tmp_path / "second", "of the second")
    path = list(sys.path)
    assert load.load(str(first)).notes == "of the first"
    assert load.load(str(second)).notes == "of the second"
    assert sys.path == path
    monkeypatch.chdir(first.parent)
    (first.parent / "neighbour.py").write_text("NOTES = 'of the first, edited since'\n")
    assert load.load("asked.py").notes == "of the first, edited since"


def test_a_failing_neighbour_leaves_no_trace(tmp_path) -> None:
    path = _question_with_neighbour(tmp_path / "folder", "fine")
    (path.parent / "neighbour.py").write_text("raise RuntimeError('broken')\n")
    before = list(sys.path)
    with pytest.raises(ConfigError, match=r"neighbour\.py line 1: RuntimeError: broken"):
        load.load(str(path))
    assert sys.path == before
    assert "neighbour" not in sys.modules
    path.write_text('"""Nothing?"""\n')
    with pytest.raises(ConfigError, match="defines `search"):
        load.load(str(path))


def test_neighbours_are_what_is_imported_from_the_folder(tmp_path) -> None:
    path = tmp_path / "asked.py"
    path.write_text("import a, json\nfrom package.x import y\nfrom . import nothing\n")
    (tmp_path / "a.py").write_text("import b.c\nimport asked\n")
    for name in ("b", "package", "unused"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "c.py").write_text("def late():\n    import d\n")
    (tmp_path / "d.py").touch()
    (tmp_path / "e.py").touch()
    names = [found.name for found in code.neighbours(path)]
    assert names == ["a.py", "b", "d.py", "package"]


def test_a_bad_file_does_not_hide_the_others(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "searches"
    folder.mkdir()
    (folder / "broken.py").write_text("def search(:")
    (folder / "latin.py").write_bytes(b'"""caf\xe9"""')
    (folder / "gone.py").symlink_to(folder / "nowhere.py")
    os.mkfifo(folder / "pipe.py")
    monkeypatch.chdir(tmp_path)
    found = {name: load.question(path) for name, path in load.available().items()}
    assert found["broken"].startswith("(cannot be read: line ")
    assert found["latin"].startswith("(cannot be read: UnicodeDecodeError")
    assert "rotated_digits" in found
    assert not {"gone", "pipe"} & set(found)


def test_a_change_reaches_the_algorithm_and_the_resources_of_an_arm() -> None:
    changes = [
        "tpe.algorithm.sampler=gp",
        'tpe.algorithm.options={"n_startup_trials": 3}',
        "pbt.algorithm.population=6",
        "asha.resources.gpus=0.5",
    ]
    search = load.load("random_vs_partitioned", scale="smoke", trials=7, changes=changes)
    tpe = search.arm("tpe").algorithm
    assert (tpe.sampler, tpe.options, tpe.num_trials) == ("gp", {"n_startup_trials": 3}, 7)
    assert search.arm("asha").resources.gpus == 0.5
    assert search.arm("pbt").trials_per_seed == 6
    with pytest.raises(UnknownNameError, match=r"`gpp` is not a known sampler. Did you mean `gp`"):
        load.load("random_vs_partitioned", scale="smoke", changes=["tpe.algorithm.sampler=gpp"])
    with pytest.raises(ConfigError, match=r"`smapler` is not a field of Optuna. Did you mean `sam"):
        load.load("random_vs_partitioned", scale="smoke", changes=["tpe.algorithm.smapler=gp"])


def test_a_search_file_may_refuse_a_change():
    for name in ("invariances", "random_vs_partitioned_mnist", "rotated_mnist"):
        assert load.load(name, scale="smoke", changes=["data.num_train=50"]).data.num_train == 50
        with pytest.raises(ConfigError, match=r"trains a net for digits.*Use `invariances_cifar`"):
            load.load(name, scale="smoke", changes=["data.name=cifar10", "data.pool=1"])


def test_limits_are_set_as_all_else_is() -> None:
    changes = ["random.at_once=2", "stop.hours=1.5", "stop.target=0.9"]
    search = load.load("rotated_digits", scale="smoke", changes=changes)
    assert search.arm("random").at_once == 2
    assert (search.stop.hours, search.stop.target) == (1.5, 0.9)
    with pytest.raises(ConfigError, match=r"`hour` is not a field of Stop. Did you mean `hours"):
        load.load("rotated_digits", scale="smoke", changes=["stop.hour=2"])
    with pytest.raises(
        ConfigError, match=r"`hours`: neither an arm nor .* Did you mean `stop.hours`"
    ):
        load.load("rotated_digits", scale="smoke", changes=["hours=2"])


def test_it_is_said_which_of_two_searches_of_one_name_is_taken(
    tmp_path, monkeypatch, capsys
) -> None:
    shipped = load.find("rotated_digits")
    assert capsys.readouterr().err == ""
    (tmp_path / "searches").mkdir()
    mine = tmp_path / "searches" / "rotated_digits.py"
    mine.write_text('"""Mine."""\n')
    monkeypatch.chdir(tmp_path)
    assert load.find("rotated_digits").resolve() == mine
    assert f"`rotated_digits` is {mine}, which hides" in capsys.readouterr().err
    assert load.find(str(shipped.absolute())) == shipped.absolute()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '"""Why?"""\n\ndef search(scale:\n    pass\n',
            r"line 3: this is not Python: '\(' was never",
        ),
        (
            '"""Why?"""\n\ndef search(scale: Scale) -> None:\n    pass\n',
            r"line 3: NameError: .* Write `tp.Scale`, after `import tuneparts as tp`\.",
        ),
        ('"""Why?"""\nimport nowhere\n', "line 2: ModuleNotFoundError: No module named 'nowhere'"),
        (
            '"""Why?"""\nimport tuneparts as tp\ndef search(scale):\n'
            "    return tp.data.Data(name='mnits')\n",
            "line 4: .*Did you mean `mnist`",
        ),
        (
            '"""Why?"""\nfrom tuneparts import Standard\ndef search(scale):\n'
            "    return Standard(steps=0)\n",
            "line 4: `steps` = 0: should be greater than 0",
        ),
        (
            QUESTION.replace("from neighbour import NOTES\n", "NOTES = 1 / 0\n"),
            "line 2: ZeroDivision",
        ),
    ],
)
def test_what_is_wrong_in_a_search_file_is_told_by_its_line(
    tmp_path, monkeypatch, text, said
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "searches").mkdir()
    (tmp_path / "searches" / "broken.py").write_text(text)
    with pytest.raises(ConfigError, match=rf"^searches/broken\.py {said}"):
        load.load("broken")
    assert load.load("rotated_digits", scale="smoke").name == "rotated_digits"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trials": 0}, "`trials` = 0: an arm that searches runs at least one trial"),
        ({"changes": ["random.lr"]}, "ARM.FIELD=VALUE"),
        ({"scale": "cpus"}, "Did you mean `cpu`"),
        ({"name": "rotated_digit"}, "Did you mean `rotated_digits`"),
        ({"name": "nowhere.py"}, "nowhere.py: no such file"),
    ],
)
def test_what_needs_no_file_is_refused_without_running_it(options, said: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=said):
        load.check(**{"name": "rotated_digits", **options})


def test_a_script_may_import_its_own_search_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "imported_before.py"
    text = (ROOT / "examples" / "own_net.py").read_text("utf-8")
    file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("imported_before")
    monkeypatch.setitem(sys.modules, "imported_before", mine)  # and forgotten after this test
    nets = [arm.config.net.name for arm in load.load(str(file), scale="smoke").arms]
    assert any(name.startswith("imported_before:") for name in nets)
    assert sys.modules["imported_before"] is not mine  # it may have been edited since
    again = sys.modules["imported_before"]
    file.write_text(f"{text}\n1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load.load(str(file), scale="smoke")
    assert sys.modules["imported_before"] is again
