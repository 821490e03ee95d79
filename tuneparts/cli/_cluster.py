"""The verbs that concern a cluster: submit, cluster status."""

import asyncio
import logging
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

import tuneparts
from tuneparts.cli import _estimate, _options
from tuneparts.cli._output import Form, put, terminal
from tuneparts.cli._running import parse_seeds
from tuneparts.core import access, provenance
from tuneparts.core.errors import ClusterError, ConfigError, SecurityError, TunepartsError
from tuneparts.core.redaction import of_process, redact
from tuneparts.executors.place import GIB, bundles, describe, refuse_unplaceable, slots
from tuneparts.search import code, load, runs
from tuneparts.search.storage import refuse_keys

app = typer.Typer()
cluster = typer.Typer(name="cluster", help="Look at a Ray cluster.", no_args_is_help=True)
STOPPED = 130
"""Exit code of a job that somebody stopped."""
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
    scale: _options.Scale = "cpu",
    trials: _options.Trials = None,
    seeds: _options.Seeds = None,
    arms: _options.Arms = None,
    changes: _options.Set = None,
    storage: _options.Storage = None,
    results: Annotated[
        str | None,
        typer.Option(
            help="Folder of the cluster for journal and reports; it must outlive the job."
        ),
    ] = None,
    resume: _options.Resume = False,
    retry_failed: _options.Retry = False,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", help="Set on the cluster; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Print its output and wait for its end.")] = True,
) -> None:
    """Run a search as a job on a Ray cluster; its exit code is ours."""
    parse_seeds(seeds)
    is_run = runs.is_name(name)
    if is_run and (trials or seeds or arms or changes or storage):
        raise ConfigError(
            f"`{name}`: a run goes on as it began, but got options that change a search. Leave "
            "them out, or name the search."
        )
    if retry_failed and not is_run:
        raise ConfigError(
            f"`{name}`: failed trials are those of a run, but this is a search. Name the run, as "
            "its driver printed it: SEARCH/TIME-DIGEST."
        )
    if not is_run:
        load.check(name, scale=scale, trials=trials, changes=changes or [])
    given = {"--scale": None if is_run else scale, "--trials": trials, "--seeds": seeds}
    pairs = [*given.items(), ("--arms", arms), *(("--set", change) for change in changes or [])]
    words = [str(word) for pair in pairs if pair[1] is not None for word in pair]
    words += ["--retry-failed"] if retry_failed else []
    words += ["--resume"] if resume and not is_run else []
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"`{address}`: a job server reads http://HOST:PORT; its port is 8265 by default."
        )
    variables: dict[str, str] = {}
    for pair in environment or []:
        variable, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise ConfigError(f"`{redact(pair)}`: a variable reads `NAME=VALUE`.")
        variables[variable] = value
    if results is not None:
        if not PurePosixPath(results).is_absolute():
            raise ConfigError(
                f"--results {results}: not an absolute path. Give one that the cluster's head node "
                "keeps, such as /srv/tuneparts/results."
            )
        variables["TUNEPARTS_RESULTS"] = results
    for variable, value in [*variables.items(), *(("", word) for word in words)]:
        if of_process().tree({variable.lower(): value}) != {variable.lower(): value}:
            raise SecurityError(
                f"`{variable or redact(value)}` looks like a secret, and a job's command and "
                "environment are shown to all who see the cluster. Put it into a file on the "
                "cluster and name the file."
            )
    if storage is not None:
        words += ["--storage", refuse_keys(storage)]
    path = None if is_run else load.find(name)
    verb = ["resume", name] if path is None else ["search", f"searches/{path.stem}.py"]
    command = ["python", "-m", "tuneparts.cli.main", *verb, "--address", "auto", *words]
    access.use_ray_token()
    with _job_server(address):
        from ray.job_submission import JobSubmissionClient

        with _staged(path) as folder:
            client = JobSubmissionClient(address)
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
        exit_code = _follow(client, job)
    raise typer.Exit(exit_code)


@contextmanager
def _job_server(address: str) -> Iterator[None]:
    """Turn what Ray raises when a job server refuses or does not answer into one of our errors."""
    from ray.exceptions import AuthenticationError

    try:
        yield
    except TunepartsError:
        raise
    except AuthenticationError:
        raise SecurityError(
            f"the cluster at {redact(address)} asks for a token, and got none or a wrong one. Set "
            "TUNEPARTS_RAY_TOKEN_FILE to the file that holds it."
        ) from None
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        why = " ".join(redact(str(error)).split())
        advice = (
            "No node of it runs Ray's agent: start its head with `ray start --head` where "
            "`ray[default]` is installed, and wait until `ray status` lists the node."
            if "No available agent" in why
            else "Its head node needs `ray[default]`, and its port must be open to you (try "
            "`ssh -L`). Look at jobs with `ray job list --address`."
        )
        raise ClusterError(f"job server {redact(address)}: {why:.500}. {advice}") from error


@contextmanager
def _staged(search_file: Path | None) -> Iterator[Path]:
    """This package and the search file in a folder; lines that look like secrets are named."""
    files = [] if search_file is None else [search_file, *code.neighbours(search_file)]
    for file in files:
        lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
        marked = [str(n) for n, line in enumerate(lines, 1) if redact(line) != line]
        if marked:
            said = f"{file.name} is kept on the cluster as it is written, and line "
            print(f"{said}{', '.join(marked)} of it looks like a secret.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tuneparts-submit-") as name:
        folder = Path(name)
        package = Path(tuneparts.__file__).parent
        shutil.copytree(package, folder / "tuneparts", ignore=shutil.ignore_patterns(*code.LITTER))
        (folder / "searches").mkdir()
        code.copy(files, folder / "searches")
        yield folder


def _follow(client: Any, job: str) -> int:
    """Print the job's output as it comes, and return its exit code; Ctrl-C leaves it running."""
    try:
        asyncio.run(_print_logs(client, job))
    except KeyboardInterrupt:
        print(f"\nThe job goes on. Stop it with: ray job stop {job}", flush=True)
        return STOPPED
    details: Mapping[str, Any] = client.get_job_info(job).__dict__
    status = str(details["status"].value)
    if status == "SUCCEEDED":
        return 0
    reason = (details.get("message") or "").partition(", last available logs")[0]
    print(f"job {job} ended as {status}: {reason}")  # logs are printed above
    return STOPPED if status == "STOPPED" else details.get("driver_exit_code") or 1


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


@cluster.command()
def status(
    name: _options.SomeSearch = None,
    address: _options.Address = None,
    scale: _options.Scale = "cpu",
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Show nodes, CPUs and GPUs; with NAME what a search would use and how long it would take."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.executors.ray import cluster
    from tuneparts.results.progress import clock

    console = terminal(form)
    search = None if name is None else load.load(name, scale=scale)
    cluster.prepare(address)
    import ray

    logging.getLogger("ray").handlers = [logging.NullHandler()]  # the table is the answer
    with console.status("joining the cluster"), cluster.joined(address):
        rows = node_rows(ray.nodes())
        free: Mapping[str, float] = ray.available_resources()
        nodes = list(cluster.nodes().values())
    if search is None or form is Form.TABLE:
        hint = f"free now: {free.get('CPU', 0):g} CPU, {free.get('GPU', 0):g} GPU, "
        hint += f"{free.get('memory', 0) / GIB:.1f} GB"
        numbers = ["CPUs", "GPUs", "memory"]
        put(form, "nodes", rows, hint, numbers=numbers, prose=["custom"], free=dict(free))
    if search is None:
        return
    needs = {arm.name: bundles(arm) for arm in search.arms}
    refuse_unplaceable(needs, nodes)
    per_pass = _estimate.seconds_per_arm(search, console)
    plans = {plan["arm"]: plan for plan in _estimate.plan_rows(search, per_pass)}
    work = {name: plan["hours"] * 3600 for name, plan in plans.items()}
    longest = {arm.name: per_pass[arm.name] * arm.config.steps for arm in search.arms}
    at_once = {n: min(slots(needs[n], nodes), plan["trials"]) for n, plan in plans.items()}
    use = [
        {
            "arm": name,
            "a trial takes": " + ".join(map(describe, needs[name])),
            "trials": plan["trials"],
            "at once": at_once[name],
            "one after the other": clock(work[name]),
        }
        for name, plan in plans.items()
    ]
    seconds = wall_seconds(work, longest, at_once)
    hint = f"about {clock(seconds)} on an idle cluster, from a few steps of each arm on one CPU "
    hint += "of this machine; a GPU is faster by a factor that this cannot know"
    numbers, prose = ["trials", "at once", "one after the other"], ["a trial takes"]
    put(form, "arms", use, hint, numbers=numbers, prose=prose, nodes=rows, seconds=seconds)


def node_rows(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per node that ever joined."""
    rows = []
    for node in found:
        has = {k: int(v) if float(v).is_integer() else v for k, v in node["Resources"].items()}
        custom = {k: v for k, v in has.items() if k not in _PLAIN and not k.startswith("node:")}
        row = {
            "node": node.get("NodeManagerHostname", ""),
            "address": node["NodeManagerAddress"],
            "state": "alive" if node["Alive"] else "dead",
            "CPUs": has.get("CPU", 0),
            "GPUs": has.get("GPU", 0),
            "memory": f"{has.get('memory', 0) / GIB:.1f} GB",
            "custom": describe(custom),
        }
        rows.append(row)
    return rows


def wall_seconds(
    work: Mapping[str, float], longest: Mapping[str, float], at_once: Mapping[str, int]
) -> float:
    """Seconds of a search whose arms share the cluster: at least those of its longest trial."""
    shared = sum(seconds / max(1, at_once[arm]) for arm, seconds in work.items())
    return max([shared, *longest.values()], default=0.0)


app.add_typer(cluster)
