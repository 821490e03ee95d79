"""The reproducibility checklist of a run, filled in from the run itself.

The questions follow the checklists of the AutoML conference and of Lindauer and Hutter (2020), as
far as a run can answer them. What it cannot, such as how settings were chosen beforehand, is left
to the authors and said.
"""

from collections.abc import Mapping

from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import OUTCOMES
from tuneparts.reports.tables import number

UNKNOWN = "not recorded"


def items(run_data: RunData) -> dict[str, str]:
    """Question -> answer."""
    metadata, summary = run_data.metadata, run_data.summary
    arms = metadata.arms
    spaces = "; ".join(f"{arm.name}: {arm.space}" for arm in metadata.arms if arm.space)
    budgets = "; ".join(
        f"{arm.name} {arm.trials_per_seed} x {number(arm.passes, 0)}"
        + (f" ({arm.budget_note})" if arm.budget_note else "")
        for arm in arms
    )
    seeds = "; ".join(
        f"{', '.join(map(str, seeds))} ({', '.join(names)})" for seeds, names in _by_seeds(run_data)
    )
    outcomes = {
        **{kind: int(summary[kind].sum()) for kind in OUTCOMES},
        **{kind: int(summary[kind].sum()) for kind in ("missing", "unfinished", "not_started")},
    }
    counted = ", ".join(
        f"{count} {kind.replace('_', ' ')}" for kind, count in outcomes.items() if count
    )
    seconds = sum(run_data.trials.get("cost/seconds", [0.0]))
    passes = sum(run_data.trials.get("cost/passes", [0.0]))
    margin = "none was set" if metadata.within is None else f"{metadata.within:g}"
    declared = " against ".join(metadata.compare)
    return {
        "What is asked": metadata.question,
        "Comparison set beforehand": declared or "none; all arms are compared with the best",
        "Margin of equivalence": margin,
        "Search spaces": spaces or "nothing is searched",
        "Budget of each arm (trials a replicate x passes)": budgets,
        "Seeds of the replicates": seeds,
        "What replicates vary": metadata.replication or "no data is drawn",
        "Selection": f"{metadata.rule.model_dump()['kind']} by {metadata.metric}, not by test data",
        "Trials": f"{counted}, of {int(summary['expected'].sum())} planned",
        "Cost of everything": f"{number(passes, 0)} passes, {number(seconds, 0)} s in trials",
        "Hardware": metadata.environment.get("machine", UNKNOWN),
        "Code of tuneparts": metadata.commit or UNKNOWN,
        "Repository it was run from": metadata.environment.get("repository", UNKNOWN),
        "Versions": ", ".join(f"{n} {v}" for n, v in sorted(metadata.versions.items())) or UNKNOWN,
        "All packages": metadata.environment.get("packages", UNKNOWN),
        "Command": metadata.command or UNKNOWN,
        "Extended since": "; ".join(metadata.history) or "no",
        "Check a part of it": "`tuneparts verify` trains trials again and compares every number",
        "For the authors to say": "how settings outside the spaces were chosen, and what that cost",
    }


def to_markdown(run_data: RunData) -> str:
    """The checklist as Markdown."""
    lines = [f"- **{question}.** {answer}" for question, answer in items(run_data).items()]
    return f"# {run_data.metadata.name}: checklist\n\n" + "\n".join(lines) + "\n"


def environment(card: Mapping[str, object]) -> dict[str, str]:
    """What the card of a run says of its surroundings, in words."""
    found = {}
    if card.get("machine"):
        found["machine"] = str(card["machine"])
    packages = card.get("packages")
    if isinstance(packages, list):
        found["packages"] = ", ".join(map(str, packages))
    home = card.get("repository")
    if isinstance(home, Mapping):
        state = "with changes that are not committed" if home.get("dirty") else "clean"
        found["repository"] = f"{home.get('name')} at {home.get('commit')}, {state}"
    elif "repository" in card:
        found["repository"] = "none"
    return found


def _by_seeds(run_data: RunData) -> list[tuple[tuple[int, ...], list[str]]]:
    groups: dict[tuple[int, ...], list[str]] = {}
    for arm in run_data.metadata.arms:
        groups.setdefault(arm.seeds, []).append(arm.name)
    if len(groups) == 1:
        return [(seeds, ["all arms"]) for seeds in groups]
    return list(groups.items())
