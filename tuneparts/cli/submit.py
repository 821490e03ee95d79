"""`tuneparts submit`: a search as a Ray job, with the code it needs, its logs and its exit code."""

import asyncio
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import tuneparts
from tuneparts import credentials, provenance
from tuneparts.errors import ClusterError, ConfigError, SecurityError, TunepartsError
from tuneparts.redaction import Redactor, redact
from tuneparts.search import code, load, runs
from tuneparts.search.storage import refuse_keys

STOPPED = 130
"""Exit code of a job that somebody stopped."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def submit(
    name: str,
    *,
    address: str,
    words: Sequence[str],
    storage: str | None,
    environment: Sequence[str],
    follow: bool,
    results: str | None = None,
) -> int:
    """Send a search to a cluster; its exit code, or 0 at once when it is not followed.

    Args:
        name: a search file's name or path; or a run of the cluster, `SEARCH/TIME-DIGEST`, which is
            continued.
        address: the head node's job server, `http://HOST:8265`.
        words: options of `tuneparts search` besides storage, or of `tuneparts resume` for a run.
        storage: where checkpoints lie, reachable from all nodes.
        results: folder of the cluster for journal and reports; where TUNEPARTS_RESULTS of its nodes
            says when None.
        environment: `NAME=VALUE` for the job; secrets are refused.
        follow: print the job's output and wait for its end.
    """
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"a job server is reached at http://HOST:PORT, but got `{address}`. Its port is 8265 "
            "by default."
        )
    variables = parse_environment(environment)
    if results is not None:
        variables["TUNEPARTS_RESULTS"] = _absolute(results)
    _refuse_secrets(words)
    if storage is not None:
        words = [*words, "--storage", refuse_keys(storage)]
    path = None if runs.is_name(name) else load.find(name)
    if path is not None:
        _warn_of_secrets(path)
    client = _client(address)
    with staged(path) as folder, _told(address):
        job = client.submit_job(
            entrypoint=entrypoint(name, words) if path is None else entrypoint(path.stem, words),
            runtime_env={
                "working_dir": str(folder),
                "env_vars": {**variables, "TUNEPARTS_COMMIT": provenance.commit()},
            },
            metadata={"search": name if path is None else path.stem},
        )
    print(f"job {job} on {redact(address)}", flush=True)
    if not follow:
        print(f"Follow it with: ray job logs --address {redact(address)} --follow {job}")
        return 0
    with _told(address):
        return _follow(client, job)


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Tell what a job server answers in a sentence.

    Raises:
        ClusterError: In place of what Ray raises.
    """
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        if isinstance(error, TunepartsError):
            raise
        why = " ".join(redact(str(error)).split())
        cure = (
            "No node of it runs Ray's agent: start its head with `ray start --head` where "
            "`ray[default]` is installed, and wait until `ray status` lists the node."
            if "No available agent" in why
            else "Look at the job there with `ray job list --address`."
        )
        raise ClusterError(
            f"the job server at {redact(address)} takes jobs and tells of them, but: {why:.500}. "
            f"{cure}"
        ) from error


def _refuse_secrets(words: Sequence[str]) -> None:
    """Raise if an option holds a secret: a job's command is shown to all who see the cluster."""
    for word in words:
        if redact(word) != word:
            raise SecurityError(
                "a job's command is shown to all who see the cluster, but "
                f"`{redact(word)}` would hold a secret. Put it into a file on the cluster and name "
                "the file."
            )


def _warn_of_secrets(search_file: Path) -> None:
    """Say which lines of the files that travel look like secrets; they go as they are written."""
    for file in [search_file, *code.neighbours(search_file)]:
        lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
        marked = [str(n) for n, line in enumerate(lines, 1) if redact(line) != line]
        if marked:
            print(
                f"{file.name} is kept on the cluster as it is written, and line "
                f"{', '.join(marked)} of it looks like a secret.",
                file=sys.stderr,
            )


def entrypoint(name: str, words: Sequence[str]) -> str:
    """The command that the head node runs; its driver joins the cluster it runs on."""
    verb = ["resume", name] if runs.is_name(name) else ["search", f"searches/{name}.py"]
    command = ["python", "-m", "tuneparts.cli.main", *verb]
    return shlex.join([*command, "--address", "auto", *words])


def _absolute(results: str) -> str:
    """A folder of the cluster; relative to the job's own it would go with the job."""
    if not PurePosixPath(results).is_absolute():
        raise ConfigError(
            f"results lie in a folder of the cluster that stays, but got `{results}`. Give an "
            "absolute path that its head node keeps, such as /srv/tuneparts/results."
        )
    return results


@contextmanager
def staged(search_file: Path | None) -> Iterator[Path]:
    """A folder with this package, the search file and the modules beside it that it imports.

    A run that is continued has kept its code, so that there is no search file.
    """
    with tempfile.TemporaryDirectory(prefix="tuneparts-submit-") as name:
        folder = Path(name)
        package = Path(tuneparts.__file__).parent
        shutil.copytree(package, folder / "tuneparts", ignore=shutil.ignore_patterns(*code.LITTER))
        (folder / "searches").mkdir()
        if search_file is not None:
            code.copy([search_file, *code.neighbours(search_file)], folder / "searches")
        yield folder


def parse_environment(pairs: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs; a job's environment is shown to everybody who sees the cluster."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ConfigError(f"a variable reads `NAME=VALUE`, but got `{redact(pair)}`.")
        if Redactor().texts({name.lower(): value}) != {name.lower(): value} or (
            redact(value) != value
        ):
            raise ConfigError(
                f"a job's environment is shown to all who see the cluster, but `{name}` looks "
                "like a secret. Put it into a file on the cluster and name the file."
            )
        found[name] = value
    return found


def exit_code(status: str, driver_exit_code: int | None) -> int:
    """Ours, from a job's: success is 0, and a failure is never 0."""
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return STOPPED
    return driver_exit_code or 1


def _client(address: str) -> Any:
    credentials.use_ray_token()
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    try:
        return JobSubmissionClient(address)
    except AuthenticationError:
        raise SecurityError(
            f"the cluster at {redact(address)} asks for a token, and got none or a wrong one. Set "
            "TUNEPARTS_RAY_TOKEN_FILE to the file that holds it."
        ) from None
    except (ImportError, RuntimeError, ConnectionError) as error:
        raise ConfigError(
            f"a job server must answer at {redact(address)}, but: {redact(str(error))}. Its head "
            "node needs `ray[default]`, and its port must be open to you (try `ssh -L`)."
        ) from error


def _follow(client: Any, job: str) -> int:
    """Print the job's output as it comes; Ctrl-C leaves the job running."""
    try:
        asyncio.run(_print_logs(client, job))
    except KeyboardInterrupt:
        print(f"\nThe job goes on. Stop it with: ray job stop {job}", flush=True)
        return STOPPED
    details: Mapping[str, Any] = client.get_job_info(job).__dict__
    code = exit_code(str(details["status"].value), details.get("driver_exit_code"))
    if code:
        reason = (details.get("message") or "").partition(", last available logs")[0]
        print(f"job {job} ended as {details['status'].value}: {reason}")  # logs are printed above
    return code


async def _print_logs(client: Any, job: str) -> None:
    """Until the job has ended; a connection that breaks before is made again."""
    printed = 0
    while True:
        seen = 0
        try:
            async for text in client.tail_job_logs(job):
                fresh = text[max(0, printed - seen) :]
                seen += len(text)
                if seen > printed:
                    print(fresh, end="", flush=True)
                    printed = seen
        except (OSError, RuntimeError):
            pass  # a proxy or the head went away; the job may well go on
        if client.get_job_status(job).is_terminal():
            return
        await asyncio.sleep(1)
