import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.core import redaction
from tuneparts.core.redaction import MASK, Redactor

PLANTED = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"postgresql://me:{PLANTED}@db:5432/x", f"postgresql://me:{MASK}@db:5432/x"),
        ("no mysql+pymysql://a:p@ss@h/d now", f"no mysql+pymysql://a:{MASK}@h/d now"),
        ("https://ghp_0123456789abcdef@github.com/x", f"https://{MASK}@github.com/x"),
        (
            "s3://bucket/x?access_key=AB&secret_key=CD&region=eu",
            f"s3://bucket/x?access_key={MASK}&secret_key={MASK}&region=eu",
        ),
        ("tuneparts search x --set data.token=abc", f"tuneparts search x --set data.token={MASK}"),
        ("--db-password=abc", f"--db-password={MASK}"),
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: Bearer {MASK}"),
        ("{'api_key': 'abc', 'lr': 1}", f"{{'api_key': '{MASK}', 'lr': 1}}"),
        ("{'api_key': b'abc'}", f"{{'api_key': b'{MASK}'}}"),
        ('{"password": 12345678}', f'{{"password": {MASK}}}'),
        ('password="two words" x', f'password="{MASK}" x'),
        (r'{"a": "is token=\"abc\" right?"}', rf'{{"a": "is token=\"{MASK}\" right?"}}'),
        ("password: hunter2", f"password: {MASK}"),
        ("passphrase: hunter2", f"passphrase: {MASK}"),
        ("DB_PASS=hunter2 and on", f"DB_PASS={MASK} and on"),
        ("Server=x;pwd=hunter2;Port=1", f"Server=x;pwd={MASK};Port=1"),
        ("AccountKey=abc+/def==;x", f"AccountKey={MASK};x"),
        ("https://x/y?a=1&sig=abc%3D&b=2", f"https://x/y?a=1&sig={MASK}&b=2"),
        ("run --token hunter2 --trials 4", f"run --token {MASK} --trials 4"),
        ("mysql://u:pa/ss@h/d", f"mysql://u:{MASK}@h/d"),
        ("X-Api-Key: hunter2", f"X-Api-Key: {MASK}"),
        ("Authorization: Token hunter2", f"Authorization: Token {MASK}"),
        ("'Authorization': 'Basic aHVudGVyMg=='", f"'Authorization': 'Basic {MASK}'"),
        ("key AKIAABCDEFGHIJKLMNOP used", f"key {MASK} used"),
        ("ghp_" + "a1" * 18, MASK),
        ("github_pat_" + "a1" * 18, MASK),
        ("sk-proj-" + "a1" * 18, MASK),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----",
            f"-----BEGIN RSA PRIVATE KEY-----{MASK}",
        ),
    ],
)  # fmt: skip
def test_known_shapes_are_masked(text: str, expected: str) -> None:
    assert Redactor().text(text) == expected
    assert Redactor().text(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "num_tokens=5 and tokens=7",
        "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning",
        "sqlite:////results/mlflow.db",
        "s3://bucket/runs",
        "a token must be given: none was",
        "partitioned/seed0/00003",
        "Basic usage: see the docs",
        "Does basic augmentation suffice?",
        "max_token=128",
        "token: none",
        "http://127.0.0.1:5000/runs/a@b",
        "first pass: 3 of 8",
        "the tokenizer: bpe",
        '{"lr": 0.1, "net": {"name": "mlp"}}',
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().text(text) == text


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_known_value_is_found_wherever_it_stands(before: str, after: str) -> None:
    redactor = Redactor([PLANTED, PLANTED + "-longer"])
    assert PLANTED not in redactor.text(before + PLANTED + after)
    assert redactor.text(PLANTED + "-longer") == MASK


def test_short_values_are_masked_as_whole_words_only() -> None:
    redactor = Redactor(["digits", "", "abc"])
    assert redactor.text("rotated_digits, digits abc") == f"rotated_digits, {MASK} abc"


@pytest.mark.parametrize("unit", ["-", "0", "ab_", "--", "a://", "eyJ-", "token=", "password", "'"])
def test_time_is_linear_in_the_text(unit: str) -> None:
    """Quadratic patterns took half an hour of these; the limit is that of the whole test."""
    text = unit * (2**18 // len(unit))
    assert len(Redactor().text(text)) <= len(text)


@given(st.dictionaries(st.sampled_from(["question", "x"]), st.text(max_size=60)))
def test_masked_json_is_still_json(tree: dict[str, str]) -> None:
    tree = {key: f'token="abc" {value}' for key, value in tree.items()}
    masked = json.loads(Redactor().text(json.dumps(tree)))
    assert list(masked) == list(tree)
    assert all("abc" not in value or "abc" in tree[key][11:] for key, value in masked.items())


def test_trees_and_params() -> None:
    redactor = Redactor([PLANTED])
    tree = {"a": [f"x{PLANTED}", 1, None], "db_password": "short", "num_tokens": "7", "token": 3}
    assert redactor.tree(tree) == {
        "a": [f"x{MASK}", 1, None], "db_password": MASK, "num_tokens": "7", "token": 3,
    }  # fmt: skip
    flat = redactor.tree({"data.password": "short", "x": f"/home/{PLANTED}", "lr": "0.1"})
    assert flat == {"data.password": MASK, "x": f"/home/{MASK}", "lr": "0.1"}
    json.dumps(redactor.tree(tree))


def test_the_process_knows_its_environment_and_its_files(monkeypatch, tmp_path) -> None:
    token, login = tmp_path / "token", tmp_path / "login"
    token.write_text("file-token-value\n")
    login.write_text("me:file-login-value\n")
    monkeypatch.setenv("MY_API_KEY", "plain-key-value")
    monkeypatch.setenv("SOME_URI", "postgresql://me:p%40ss-word%21@db/x")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/home/me/.aws/credentials")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/google.json")
    monkeypatch.setenv("SECRET_NAME", "rotated_digits")
    for name in (
        "DB_PASS",
        "GITHUB_PAT",
        "OPENAI_KEY",
        "MYSQL_PWD",
        "SSH_PASSPHRASE",
        "SHORT_TOKEN",
    ):
        monkeypatch.setenv(name, f"v-{name[:3]}".lower())
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(token))
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(login))
    text = "file-token-value file-login-value plain-key-value p%40ss-word%21 p@ss-word!"
    assert redaction.redact(text) == " ".join([MASK] * 5)
    for plain in ("/home/me/.aws/credentials", "/home/me/google.json", "rotated_digits"):
        assert redaction.redact(plain) == plain
    assert redaction.redact("v-db_ v-git v-ope v-mys v-ssh v-sho") == " ".join([MASK] * 6)


def test_a_log_handler_writes_no_secret(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("MY_TOKEN", PLANTED)
    handler = logging.FileHandler(tmp_path / "log")
    handler.addFilter(redaction.RedactingFilter())
    logger = logging.Logger("x")
    logger.addHandler(handler)
    logger.warning("said %s", PLANTED)
    try:
        raise ValueError(f"lost {PLANTED}")
    except ValueError:
        logger.exception("failed")
    handler.close()
    written = (tmp_path / "log").read_text()
    assert PLANTED not in written
    assert f"said {MASK}" in written
    assert f"ValueError: lost {MASK}" in written


def test_uris_with_passwords_are_told_from_others() -> None:
    assert redaction.has_password("s3://key:secret@bucket/x")
    assert redaction.has_password("s3://bucket?secret_key=abc")
    assert not redaction.has_password("s3://bucket/x?region=eu")
