"""A PostgreSQL server of one's own: a folder, a port on loopback, gone afterwards."""

import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.harness.scene import unused_port

_ACCOUNT = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this account for it."""


def why_not() -> str | None:
    """What this machine lacks for MLflow on a server, as a sentence; None when it has all."""
    if importlib.util.find_spec("psycopg2") is None:
        return "the driver psycopg2 is not installed (pip install 'tuneparts[cluster]')"
    return why_no_server()


def why_no_server() -> str | None:
    """What it lacks for the server alone."""
    if _binaries() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and not _has_account():
        return f"PostgreSQL does not run as root, and there is no account `{_ACCOUNT}`"
    return None


class Postgres:
    """A running server with an empty database; a context manager."""

    def __init__(self) -> None:
        binaries = _binaries()
        if binaries is None:
            raise FileNotFoundError(why_no_server())
        self._bin = binaries
        self._folder = tempfile.TemporaryDirectory(prefix="tp-postgres-")
        self._root = Path(self._folder.name)
        self._port = unused_port()
        self._password = secrets.token_hex(16)

    @property
    def uri(self) -> str:
        """The database, as MLflow takes it."""
        return f"postgresql+psycopg2://mlflow:{self._password}@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> "Postgres":
        if os.geteuid() == 0:
            shutil.chown(self._root, _ACCOUNT)
        password = self._root / "password"
        password.write_text(self._password)
        password.chmod(0o644)  # inside a folder that only the account enters
        self._run(
            "initdb", "--pgdata", str(self._root / "data"), "--username", "mlflow",
            "--pwfile", str(password), "--auth", "scram-sha-256", "--no-sync",
        )  # fmt: skip
        password.unlink()
        self._control("start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control("stop")
        self._folder.cleanup()

    def restart(self) -> None:
        """Break every connection and come back."""
        self._control("restart")

    def _control(self, verb: str) -> None:
        options = f"-h 127.0.0.1 -p {self._port} -k {self._root} -c fsync=off"
        words = ["--pgdata", str(self._root / "data"), "--mode", "immediate", "--wait"]
        if verb == "start":
            words = [*words[:2], "--wait"]
        if verb != "stop":
            words += ["--options", options, "--log", str(self._root / "log")]
        self._run("pg_ctl", verb, *words)

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._bin / program), *words]
        if os.geteuid() == 0:
            command = ["runuser", "--user", _ACCOUNT, "--", *command]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )


def _binaries() -> Path | None:
    """The newest server's programs; Debian keeps them off the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if found:
        return found[-1].parent
    where = shutil.which("initdb")
    return None if where is None else Path(where).parent


def _has_account() -> bool:
    try:
        pwd.getpwnam(_ACCOUNT)
    except KeyError:
        return False
    return True
