"""The verbs that concern a cluster: submit, cluster status."""

import logging
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tuneparts
from tuneparts.cli import options
from tuneparts.cli.output import Form, records, terminal, write
from tuneparts.cli.running import parse_seeds
from tuneparts.core import access, provenance
from tuneparts.core.errors import ClusterError, ConfigError, SecurityError, TunepartsError
from tuneparts.core.redaction import Redactor, redact
from tuneparts.results.rendering import Table, show

if TYPE_CHECKING:
    from rich.console import Console

    from tuneparts.executors.place import Amounts

app = typer.Typer()
cluster = typer.Typer(name="cluster", help="Look at a Ray cluster.", no_args_is_help=True)
STOPPED = 130
"""Exit code of a job that somebody stopped."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {"CPU", "GPU", "memory", "object_store_memory"}


@app.command()
def submit(
    name: Annotated[
        str,
        typer.Argument(
            help="A file of `tuneparts searches`, or a path; or a run there to continue."
        ),
    ],
    address: Annotated[str, typer.Option(help="Job server of the head node, http://HOST:8265.")],
    scale: options.Scale = "cpu",
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    arms: options.Arms = None,
    changes: options.Set = None,
    storage: options.Storage = None,
    results: Annotated[
        str | None,
        typer.Option(
            help="Folder of the cluster for journal and reports; it must outlive the job."
        ),
    ] = None,
    resume: options.Resume = False,
    retry_failed: options.Retry = False,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", help="Set on the cluster; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Print its output and wait for its end.")] = True,
) -> None:
    """Run a search as a job on a Ray cluster; its exit code is ours."""
    from tuneparts.search import load, runs
    from tuneparts.search.storage import refuse_keys

    parse_seeds(seeds)
    is_run = runs.is_name(name)
    if is_run and (trials or seeds or arms or changes or storage):
        raise ConfigError(
            f"a run goes on as it began, but `{name}` got options that change a search. Leave them "
            "out, or name the search."
        )
    if retry_failed and not is_run:
        raise ConfigError(
            f"failed trials are those of a run, but `{name}` is a search. Name the run, as its "
            "driver printed it: SEARCH/TIME-DIGEST."
        )
    if not is_run:
        load.check(name, scale=scale, trials=trials, changes=changes or [])
    words = [] if is_run else ["--scale", scale]
    words += ["--retry-failed"] if retry_failed else []
    words += ["--resume"] if resume and not is_run else []
    words += [] if trials is None else ["--trials", str(trials)]
    words += [] if seeds is None else ["--seeds", seeds]
    words += [] if arms is None else ["--arms", arms]
    words += [word for change in changes or [] for word in ("--set", change)]
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"a job server is reached at http://HOST:PORT, but got `{address}`. Its port is 8265 "
            "by default."
        )
    variables = _parse_environment(environment or [])
    if results is not None:
        if not PurePosixPath(results).is_absolute():
            raise ConfigError(
                f"results lie in a folder of the cluster that stays, but got `{results}`. Give an "
                "absolute path that its head node keeps, such as /srv/tuneparts/results."
            )
        variables["TUNEPARTS_RESULTS"] = results
    for word in words:
        if redact(word) != word:
            raise SecurityError(
                f"a job's command is shown to all who see the cluster, but `{redact(word)}` would "
                "hold a secret. Put it into a file on the cluster and name the file."
            )
    if storage is not None:
        words += ["--storage", refuse_keys(storage)]
    path = None if is_run else load.find(name)
    if path is not None:
        _warn_of_secrets(path)
    verb = ["resume", name] if path is None else ["search", f"searches/{path.stem}.py"]
    command = ["python", "-m", "tuneparts.cli.main", *verb, "--address", "auto", *words]
    client = _client(address)
    with _staged(path) as folder, _told(address):
        job = client.submit_job(
            entrypoint=shlex.join(command),
            runtime_env={
                "working_dir": str(folder),
                "env_vars": {**variables, "TUNEPARTS_COMMIT": provenance.commit()},
            },
            metadata={"search": name if path is None else path.stem},
        )
    print(f"job {job} on {redact(address)}", flush=True)
    if not follow:
        print(f"Follow it with: ray job logs --address {redact(address)} --follow {job}")
        return
    with _told(address):
        code = _follow(client, job)
    raise typer.Exit(code)


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


def _warn_of_secrets(search_file: Path) -> None:
    """Say which lines of the files that travel look like secrets; they go as they are written."""
    from tuneparts.search import code

    for file in [search_file, *code.neighbours(search_file)]:
        lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
        marked = [str(n) for n, line in enumerate(lines, 1) if redact(line) != line]
        if marked:
            print(
                f"{file.name} is kept on the cluster as it is written, and line "
                f"{', '.join(marked)} of it looks like a secret.",
                file=sys.stderr,
            )


@contextmanager
def _staged(search_file: Path | None) -> Iterator[Path]:
    """A folder with this package, the search file and the modules beside it that it imports.

    A run that is continued has kept its code, so that there is no search file.
    """
    from tuneparts.search import code

    with tempfile.TemporaryDirectory(prefix="tuneparts-submit-") as name:
        folder = Path(name)
        package = Path(tuneparts.__file__).parent
        shutil.copytree(package, folder / "tuneparts", ignore=shutil.ignore_patterns(*code.LITTER))
        (folder / "searches").mkdir()
        if search_file is not None:
            code.copy([search_file, *code.neighbours(search_file)], folder / "searches")
        yield folder


def _parse_environment(pairs: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs; a job's environment is shown to everybody who sees the cluster."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ConfigError(f"a variable reads `NAME=VALUE`, but got `{redact(pair)}`.")
        given = {name.lower(): value}
        if Redactor().tree(given) != given or redact(value) != value:
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
    access.use_ray_token()
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
    import asyncio

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
    from asyncio import sleep

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
        await sleep(1)


@cluster.callback()
def _cluster() -> None:
    """Look at a Ray cluster."""


@cluster.command()
def status(
    name: options.SomeSearch = None,
    address: options.Address = None,
    scale: options.Scale = "cpu",
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Show nodes, CPUs and GPUs; with NAME what a search would use and how long it would take."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.executors.place import GIB
    from tuneparts.executors.ray import cluster
    from tuneparts.results.progress import clock
    from tuneparts.search import load

    console = terminal(form)
    search = None if name is None else load.load(name, scale=scale)
    cluster.prepare(address)
    import ray

    logging.getLogger("ray").handlers = [logging.NullHandler()]  # the table is the answer
    with ExitStack() as around:
        with console.status("joining the cluster"):
            around.enter_context(cluster.joined(address))
        table = node_table(ray.nodes())
        free: Mapping[str, float] = ray.available_resources()
        nodes = list(cluster.nodes().values())
    if form is Form.TABLE:
        show(console, table)
        said = f"free now: {free.get('CPU', 0):g} CPU, {free.get('GPU', 0):g} GPU, "
        console.print(f"{said}{free.get('memory', 0) / GIB:.1f} GB", highlight=False)
    if search is None:
        if form is not Form.TABLE:
            write(form, "nodes", records(table), free=dict(free))
        return
    use, seconds = _use(search, nodes, console)
    if form is not Form.TABLE:
        write(form, "arms", records(use), nodes=records(table), seconds=seconds)
        return
    show(console, use)
    said = f"about {clock(seconds)} on an idle cluster, from a few passes of each arm on one CPU "
    said += "of this machine; a GPU is faster by a factor that this cannot know"
    console.print(said, highlight=False)


def node_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """One line per node that ever joined."""
    from tuneparts.executors.place import GIB, describe

    rows = []
    for node in found:
        has: Mapping[str, float] = node["Resources"]
        custom = {k: v for k, v in has.items() if k not in _PLAIN and not k.startswith("node:")}
        rows.append(
            [
                node.get("NodeManagerHostname", ""),
                node["NodeManagerAddress"],
                "alive" if node["Alive"] else "dead",
                f"{has.get('CPU', 0):g}",
                f"{has.get('GPU', 0):g}",
                f"{has.get('memory', 0) / GIB:.1f} GB",
                describe(custom),
            ]
        )
    headers = ["node", "address", "state", "CPUs", "GPUs", "memory", "custom"]
    return Table.of_rows(headers, rows, numbers=["CPUs", "GPUs", "memory"], prose=["custom"])


def wall_seconds(
    work: Mapping[str, float], longest: Mapping[str, float], at_once: Mapping[str, int]
) -> float:
    """How long a search runs when its arms share the slots: never less than its longest trial.

    Args:
        work: seconds of all trials of each arm, one after the other.
        longest: seconds of one trial of each arm.
        at_once: trials of each arm that the cluster holds.
    """
    shared = sum(seconds / max(1, at_once[arm]) for arm, seconds in work.items())
    return max([shared, *longest.values()], default=0.0)


def _use(search: Any, nodes: "Sequence[Amounts]", console: "Console") -> tuple[Table, float]:
    """What each arm takes of a cluster, and the seconds of the whole search."""
    from tuneparts.cli import estimate
    from tuneparts.executors.place import bundles, describe, refuse_unplaceable, slots
    from tuneparts.results.progress import clock

    needs = {arm.name: bundles(arm) for arm in search.arms}
    refuse_unplaceable(needs, nodes)
    per_pass = estimate.seconds_per_arm(search, console)
    spared = estimate.spared_passes(search)
    rows = []
    work: dict[str, float] = {}
    longest: dict[str, float] = {}
    at_once: dict[str, int] = {}
    for arm in search.arms:
        seeds = len(search.seeds_of(arm))
        trials = arm.trials_per_seed * seeds
        made = arm.cost.expected * seeds - spared[arm.name]
        work[arm.name] = per_pass[arm.name] * made
        longest[arm.name] = per_pass[arm.name] * arm.config.passes
        at_once[arm.name] = min(slots(needs[arm.name], nodes), trials)
        takes = " + ".join(describe(need) for need in needs[arm.name])
        rows.append([arm.name, takes, trials, at_once[arm.name], clock(work[arm.name])])
    headers = ["arm", "a trial takes", "trials", "at once", "one after the other"]
    table = Table.of_rows(headers, rows, numbers=headers[2:], prose=["a trial takes"])
    return table, wall_seconds(work, longest, at_once)


app.add_typer(cluster)
