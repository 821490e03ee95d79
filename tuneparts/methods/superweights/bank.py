"""Templates, coefficients, and the weights of all layers composed from them.

A SuperWeight is a sum of templates, w = sum_k alpha_k T_k, with free coefficients alpha; a layer's
weight is assembled from the SuperWeights of its slots (Teterwak et al. 2024). All uses of a slot
are composed by one matrix product, and all layers of one shape are assembled at once.

Legend: K templates, D size of a slot, R coefficient vectors, U uses, O outputs, I inputs, A area.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuneparts.methods.superweights import ties as tying
from tuneparts.methods.superweights.allocation import (
    LayerCluster,
    SharingPlan,
    assemble,
    disassemble,
)
from tuneparts.methods.superweights.clusters import Layer
from tuneparts.methods.superweights.config import Initialisation
from tuneparts.methods.superweights.ties import Ties


class WeightBank(nn.Module, ABC):
    """Parameters from which the weights of many layers are composed."""

    layers: Sequence[Layer]
    """The layers that it has weights for."""

    @abstractmethod
    def compose(self) -> list[Tensor]:
        """Compute the weight of every layer, in order and shape."""


class TemplateBank(WeightBank):
    """The parameters that members share: templates, and the coefficients that combine them.

    Args:
        plan: the allocation.
        ties: which uses share coefficients.
        initialisation: how templates and coefficients start.
        generator: source of the initial values, on the CPU.

    Example:
        >>> import torch
        >>> from tuneparts.methods.superweights import ties
        >>> from tuneparts.methods.superweights.allocation import make_plan
        >>> from tuneparts.methods.superweights.clusters import Layer
        >>> layers = [Layer(member, "fc", "linear", 4, 3, ()) for member in (0, 1)]
        >>> plan = make_plan(layers, [0, 0], budget=24)
        >>> source = torch.Generator().manual_seed(0)
        >>> bank = TemplateBank(plan, ties.private(plan), initialisation="fan_in", generator=source)
        >>> [weight.shape for weight in bank.compose()]
        [torch.Size([4, 3]), torch.Size([4, 3])]
    """

    def __init__(
        self,
        plan: SharingPlan,
        ties: Ties,
        *,
        initialisation: Initialisation,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.layers = plan.layers
        templates, coefficients = [], []
        for (c, j), rows in zip(plan.slots, ties, strict=True):
            cluster = plan.clusters[c]
            stds_U = _initial_stds([plan.layers[p] for p in cluster.users(j)], initialisation)
            scale = _template_std(stds_U, initialisation)
            shape = (cluster.templates[j], cluster.chain.sizes[j])
            templates.append(torch.randn(shape, generator=generator) * scale)
            alpha_UK = _orthogonal(plan, cluster, j, generator)
            if initialisation != "released":
                alpha_UK *= (stds_U / scale / alpha_UK.norm(dim=1))[:, None]
            coefficients.append(alpha_UK[_leading_users(rows, stds_U.tolist())])
        self.templates_KD = nn.ParameterList(templates)
        self.coefficients_RK = nn.ParameterList(coefficients)
        self._tie(ties)

    def compose(self) -> list[Tensor]:
        weights: list[Tensor] = [torch.empty(0)] * len(self.plan.layers)
        start = 0
        for cluster in self.plan.clusters:
            stop = start + len(cluster.templates)
            self._compose_cluster(cluster, range(start, stop), weights)
            start = stop
        return weights

    def _compose_cluster(self, cluster: LayerCluster, slots: range, weights: list[Tensor]) -> None:
        runs = _runs_of_equal_shape(self.plan, cluster)
        # For each slot, one piece (U, D) per run of equal shapes that uses it; the users of a
        # slot are the last layers of the cluster, so its runs are the last ones.
        pieces: list[list[Tensor]] = [[] for _ in runs]
        for j, slot in enumerate(slots):
            used = [i for i, run in enumerate(runs) if cluster.last_slots[run[0]] >= j]
            parts_UD = torch.split(self._superweights(slot), [len(runs[i]) for i in used])
            for i, part_UD in zip(used, parts_UD, strict=True):
                pieces[i].append(part_UD)
        for run, parts in zip(runs, pieces, strict=True):
            layer = self.plan.layers[cluster.layers[run[0]]]
            weight_UOIA = assemble(cluster.chain, parts, (layer.num_out, layer.num_in))
            for k, weight in zip(run, weight_UOIA.unbind(), strict=True):
                weights[cluster.layers[k]] = weight.reshape(layer.shape)

    def _superweights(self, slot: int) -> Tensor:
        """Compute SuperWeights (U, D) of all users of a slot; tied users have the very same row."""
        superweights_RD: Tensor = self.coefficients_RK[slot] @ self.templates_KD[slot]
        num_users = len(self.ties[slot])
        if len(superweights_RD) == num_users:  # rows are numbered in order: nobody is tied
            return superweights_RD
        if len(superweights_RD) == 1:
            return superweights_RD.expand(num_users, -1)
        return superweights_RD[self.get_buffer(_rows_name(slot))]

    def _tie(self, ties: Ties) -> None:
        """Keep the rows of each slot beside the coefficients, on their device."""
        self.ties = ties
        for slot, rows in enumerate(ties):
            index_U = torch.tensor(rows, device=self.coefficients_RK[slot].device)
            self.register_buffer(_rows_name(slot), index_U, persistent=False)

    @torch.no_grad()
    def coefficient_gradients(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Compute the gradient that each use alone sends to its coefficients: (U, K) for each slot.

        Args:
            gradients: gradients of the composed weights, one for each layer of the plan.
        """
        found = []
        start = 0
        for cluster in self.plan.clusters:
            num_slots = len(cluster.templates)
            rows: list[list[Tensor]] = [[] for _ in range(num_slots)]
            for position in cluster.layers:
                layer = self.plan.layers[position]
                gradient = gradients[position].reshape(1, layer.num_out, layer.num_in, layer.area)
                for j, part_1D in enumerate(disassemble(cluster.chain, gradient)):
                    rows[j].append(part_1D @ self.templates_KD[start + j].T)
            found += [torch.cat(row) for row in rows]
            start += num_slots
        return found

    @torch.no_grad()
    def retie(self, ties: Ties, origins: Sequence[Sequence[int]]) -> list[Tensor]:
        """Replace the ties; a new row starts as a copy of the old one that it comes from.

        Returns:
            The origins as indices, for moving optimiser state along.
        """
        indices = []
        for slot, origin in enumerate(origins):
            old_RK = self.coefficients_RK[slot]
            index_R = torch.tensor(origin, device=old_RK.device)
            indices.append(index_R)
            self.coefficients_RK[slot] = nn.Parameter(old_RK[index_R].clone())
        self._tie(ties)
        return indices

    @property
    def num_vectors(self) -> int:
        """Number of coefficient vectors of all slots."""
        return tying.count(self.ties)


def _rows_name(slot: int) -> str:
    return f"rows_{slot}"


def _runs_of_equal_shape(plan: SharingPlan, cluster: LayerCluster) -> list[list[int]]:
    """List places in the cluster, in stretches of layers with one shape."""
    runs: list[list[int]] = []
    for k, position in enumerate(cluster.layers):
        if runs and plan.layers[cluster.layers[runs[-1][0]]].shape == plan.layers[position].shape:
            runs[-1].append(k)
        else:
            runs.append([k])
    return runs


def _initial_stds(users: Sequence[Layer], initialisation: Initialisation) -> Tensor:
    """Standard deviation with which each user's weight should start (U,)."""
    stds = [(2 / layer.fan_in) ** 0.5 for layer in users]
    if initialisation == "own":
        known = zip(stds, users, strict=True)
        stds = [he if layer.std is None else layer.std for he, layer in known]
    return torch.tensor(stds)


def _template_std(stds_U: Tensor, initialisation: Initialisation) -> float:
    """Standard deviation with which the templates of a slot start."""
    match initialisation:
        case "released":
            return float((2 / 9) ** 0.5)
        case "fan_in":
            return float(stds_U.min())
        case "own":
            # Some nets start layers at zero: these then have zero coefficients, not zero templates.
            return float(stds_U.max()) or 1.0


def _leading_users(rows: list[int], stds: list[float]) -> list[int]:
    """Choose the user that decides how each row starts: the one that starts smallest.

    With the coefficients of another one, the smallest that is tied to it would start too large.
    """
    users = range(len(rows))
    return [
        min((u for u in users if rows[u] == row), key=lambda u: stds[u])
        for row in range(max(rows) + 1)
    ]


def _orthogonal(
    plan: SharingPlan, cluster: LayerCluster, slot: int, generator: torch.Generator
) -> Tensor:
    """Draw coefficients (U, K) of all users, orthogonal within each member."""
    users = cluster.users(slot)
    alpha_UK = torch.empty(len(users), cluster.templates[slot])
    members = [plan.layers[p].member for p in users]
    for member in sorted(set(members)):
        own = [u for u, other in enumerate(members) if other == member]
        block = torch.empty(len(own), cluster.templates[slot])
        nn.init.orthogonal_(block, generator=generator)
        alpha_UK[own] = block
    return alpha_UK
