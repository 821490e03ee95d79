"""SuperWeight networks: several nets whose layers share templates (Teterwak et al. 2024).

A run has stages. Search with hard sharing, compare the layers' gradients, form clusters and start
anew; train with tied coefficients, compare the gradients of their uses, untie what conflicts, and
train to the end. Nothing but the grouping moves from the search to the training.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.methods.superweights import _clusters, _similarity, _ties
from tuneparts.methods.superweights._allocation import SharingPlan, least_weights, make_plan
from tuneparts.methods.superweights._bank import SuperweightMembers, TemplateBank
from tuneparts.methods.superweights._similarity import GradientSums, Labels, Similarity
from tuneparts.methods.superweights._ties import Ties
from tuneparts.methods.superweights.config import SuperWeights, _SharingStage
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step
from tuneparts.training.members import NetMembersLearner

_log = logging.getLogger(__name__)

_TAU_STEP = 0.05
"""By how much tau is lowered until clusters fit the budget."""
_DRAWS = 50
"""Random clusters that are tried at one tau before it is lowered."""


class SuperweightsLearner(NetMembersLearner, parts=("_sums",), values=("_found",)):
    """Trains members that share templates through all stages.

    For each member, `shared` names the layers that share; it is all but the last one if None.
    """

    config: SuperWeights
    model: SuperweightMembers

    def __init__(
        self, config: SuperWeights, context: Context, shared: Sequence[Sequence[str]] | None = None
    ) -> None:
        super().__init__(config, context)
        self.timetable = config.timetable
        task, allocation = context.task, config.allocation
        with seeding.isolated(context.seed, "init", "shapes"):
            nets = [net.build(task.in_shape, task.num_outputs) for net in config.members]
        names = [None] * len(nets) if shared is None else shared
        found = [_clusters.layers_of(net, m, names[m]) for m, net in enumerate(nets)]
        self._layers = list(chain.from_iterable(found))
        self.budget = allocation.budget or int(
            allocation.relative * _clusters.largest_member(self._layers)
        )
        self._bins = _clusters.depth_bins(self._layers, config.sharing.num_bins)
        if allocation.when_short == "merge":
            self._bins = _clusters.merge_to_fit(self._layers, self._bins, self._least, self.budget)
        is_released = config.sharing.scope == "released"
        self._grouping = _similarity.relabelled if is_released else _similarity.group
        self._found: dict[str, float] = {}
        self._sums = GradientSums(context.device)
        plan = self._plan(self._bins)
        is_search = self.stage is _SharingStage.SEARCH
        self._install(plan, _ties.shared(plan) if is_search else self._first_ties(plan, {}))

    @property
    def stage(self) -> _SharingStage:
        return self.timetable.at(self.steps)

    @property
    def progress(self) -> float:
        return self.timetable.progress(self.steps)

    def step(self) -> Step:
        stage, times = self.stage, self.timetable
        if stage not in {_SharingStage.COMPARE_LAYERS, _SharingStage.COMPARE_USES}:
            return super().step()
        loss, gradients = self.model.layer_gradients(
            *self.next_batch(), loss=self.training_loss, norms=self.config.stages.norms
        )
        self._sums.add(gradients, half=self.steps % 2)
        if stage is _SharingStage.COMPARE_LAYERS and self.steps + 1 == times.compare_layers:
            self._form_clusters()
        if stage is _SharingStage.COMPARE_USES and self.steps + 1 == times.compare_uses:
            self._untie()
        return Step(cost=1, losses={"train/loss": loss})

    def evaluate(self) -> dict[str, float]:
        plan = self.model.bank.plan
        counts = [num for cluster in plan.clusters for num in cluster.templates]
        metrics = super().evaluate() | {
            "size/templates": float(plan.num_weights),
            "superweights/bins": float(len(set(self._bins))),
            "superweights/clusters": float(len(plan.clusters)),
            "superweights/trained": float(self.timetable.trained),
            "superweights/vectors": float(self.model.bank.num_vectors),
            "superweights/templates": sum(counts) / len(counts),
            **self._found,
        }
        if self.finished:
            numbers: dict[int, count[int]] = defaultdict(count)  # of the layers of each member
            for layer, label in zip(plan.layers, plan.labels, strict=True):
                name = f"{layer.member}_{next(numbers[layer.member])}"
                metrics[f"superweights/cluster.{name}"] = float(label)
        return metrics

    def _least(self, labels: Labels) -> int:
        return least_weights(self._layers, labels, self.config.allocation.chain)

    def _plan(self, labels: Labels) -> SharingPlan:
        allocation = self.config.allocation
        sizes = {"budget": self.budget, "max_templates": allocation.max_templates}
        return make_plan(self._layers, labels, **sizes, chain=allocation.chain)

    def _leaders(self, similarities: Mapping[int, Similarity]) -> dict[int, int]:
        finders = {"reference": _clusters.reference_leaders, "released": _clusters.released_leaders}
        find = finders.get(self.config.sharing.scope)
        return {} if find is None else find(self._layers, self._bins, similarities)

    def _first_ties(self, plan: SharingPlan, similarities: Mapping[int, Similarity]) -> Ties:
        sharing = self.config.sharing
        if sharing.coefficients != "mapped":
            return _ties.private(plan) if sharing.coefficients == "private" else _ties.shared(plan)
        if not similarities:
            return _ties.mapped(plan, _ties.partners_by_place(plan))
        if sharing.scope == "released":
            return _ties.mapped(plan, self._leaders(similarities))
        return _ties.mapped(plan, _ties.partners_by_similarity(plan, self._bins, similarities))

    def _install(self, plan: SharingPlan, tied: Ties, *, stream: str = "start") -> None:
        """Make new members and a new optimiser; search and training draw from different streams."""
        nets, flops = self.initial_nets(self.config.members, stream)
        bank = TemplateBank(
            plan,
            tied,
            initialisation=self.config.allocation.initialisation,
            generator=seeding.torch_generator(self.context.seed, "init", stream, "templates"),
        )
        self.model = SuperweightMembers(nets, bank, flops).to(self.context.device)
        self._make_optimiser()

    def _make_optimiser(self) -> None:
        # Templates are decayed once, however many layers use them, and coefficients not at all.
        bank = self.model.bank
        self.optimiser = self.new_optimiser(nn.ModuleList([self.model.nets, bank.templates_KD]))
        self.optimiser.add_param_group(
            {"params": list(bank.coefficients_RK), "lr_factor": 1.0, "weight_decay": 0.0}
        )

    def _form_clusters(self) -> None:
        total, halves = self._sums.take()
        similarities = _similarity.layer_similarities(total, self._bins)
        labels, tau = self._fitting_clusters(similarities)
        asked = self.config.sharing.tau
        if tau < asked:
            message = "tau is %.2f instead of %.2f: more clusters than that do not fit %d weights"
            _log.warning(message, tau, asked, self.budget)
        by_half = [_similarity.layer_similarities(half, self._bins) for half in halves]
        self._found = {"superweights/tau_asked": asked, "superweights/tau": tau}
        self._found |= _similarity.metrics(similarities, by_half)
        plan = self._plan(labels)
        self._install(plan, self._first_ties(plan, similarities), stream="anew")

    def _fitting_clusters(self, similarities: Mapping[int, Similarity]) -> tuple[Labels, float]:
        """Find clusters at the largest threshold, from tau downwards, that the budget allows."""
        generator = seeding.numpy_generator(self.context.seed, "clusters")
        leaders = self._leaders(similarities)
        tau = self.config.sharing.tau
        while tau > -1 - _TAU_STEP:
            labels = _similarity.split(
                self._bins, similarities, tau, following=leaders, grouping=self._grouping
            )
            drawn = [labels]
            if self.config.sharing.clusters == "random" and self._least(labels) <= self.budget:
                # Other layers of the same numbers need other weights: the first draw that fits.
                drawn = [_clusters.shuffled(labels, self._bins, generator) for _ in range(_DRAWS)]
            for candidate in drawn:
                if self._least(candidate) <= self.budget:
                    return candidate, tau
            tau -= _TAU_STEP
        return self._bins, tau

    def _untie(self) -> None:
        total, _ = self._sums.take()
        bank, beta = self.model.bank, self.config.sharing.beta
        assert beta is not None  # there is no such stage without it
        cosines = [_similarity.row_cosines(rows) for rows in bank.coefficient_gradients(total)]
        new_ties, origins = _ties.split(bank.ties, cosines, beta, self._grouping)
        old, old_rows = self.optimiser, list(bank.coefficients_RK)
        indices = bank.retie(new_ties, origins)
        self._make_optimiser()
        moved = dict(zip(bank.coefficients_RK, zip(old_rows, indices, strict=True), strict=True))
        for group in self.optimiser.param_groups:
            for parameter in group["params"]:
                source, index_R = moved.get(parameter, (parameter, None))
                if source in old.state:
                    self.optimiser.state[parameter] = _rows(old.state[source], source, index_R)

    def state_dict(self) -> dict[str, Any]:
        bank = self.model.bank
        return super().state_dict() | {
            "stage": str(self.stage),
            "labels": list(bank.plan.labels),
            "ties": [list(rows) for rows in bank.ties],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._install(
            self._plan([int(label) for label in state["labels"]]),
            [[int(row) for row in rows] for rows in state["ties"]],
        )
        super().restore(state)


def _rows(state: Mapping[str, Any], source: Tensor, index_R: Tensor | None) -> dict[str, Any]:
    """Copy the optimiser state of a parameter, row by row from where its new rows come from."""
    return {
        name: value[index_R].clone()
        if index_R is not None and isinstance(value, Tensor) and value.shape == source.shape
        else value
        for name, value in state.items()
    }
