"""Templates, coefficients, the weights of all layers composed from them, and nets under these.

A SuperWeight is a sum of templates, w = sum_k alpha_k T_k, with free coefficients alpha; a layer's
weight is assembled from the SuperWeights of its slots (Teterwak et al. 2024). All uses of a slot
are composed by one matrix product, and all layers of one shape are assembled at once.

Legend: K templates or classes, D size of a slot, R coefficient vectors, U uses, O outputs,
I inputs, A area, M members, B batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import torch
from torch import Tensor, nn

from tuneparts.methods.superweights._allocation import SharingPlan, assemble, disassemble
from tuneparts.methods.superweights._clusters import Layer
from tuneparts.methods.superweights._similarity import members_of
from tuneparts.methods.superweights._ties import Ties
from tuneparts.methods.superweights.config import Initialisation
from tuneparts.nets.surgery import give_up
from tuneparts.training.members import NetMembers


class WeightBank(nn.Module, ABC):
    """Parameters from which the weights of many layers are composed."""

    layers: Sequence[Layer]

    @abstractmethod
    def compose(self) -> list[Tensor]:
        """Compute the weight of every layer, in order and shape."""


class TemplateBank(WeightBank):
    """The parameters that members share: templates, and the coefficients that combine them."""

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
        for (cluster, j), rows in zip(plan.slots, ties, strict=True):
            users = [plan.layers[p] for p in cluster.users(j)]
            stds = [(2 / layer.fan_in) ** 0.5 for layer in users]
            if initialisation == "own":
                stds = [u.std if u.std is not None else h for u, h in zip(users, stds, strict=True)]
            stds_U = torch.tensor(stds)
            match initialisation:
                case "released":
                    scale = (2 / 9) ** 0.5
                case "fan_in":
                    scale = float(stds_U.min())
                case "own":
                    # Layers that start at zero have zero coefficients, not zero templates.
                    scale = float(stds_U.max()) or 1.0
            num, size = cluster.templates[j], cluster.chain.sizes[j]
            templates.append(torch.randn((num, size), generator=generator) * scale)
            alpha_UK = torch.empty(len(users), num)
            for own in members_of([layer.member for layer in users]).values():
                block = torch.empty(len(own), num)
                alpha_UK[own] = nn.init.orthogonal_(block, generator=generator)
            if initialisation != "released":
                alpha_UK *= (stds_U / scale / alpha_UK.norm(dim=1))[:, None]
            # Of tied users the one that starts smallest decides: with the coefficients of another
            # one it would start too large.
            first = [min(own, key=stds.__getitem__) for own in members_of(rows).values()]
            coefficients.append(alpha_UK[first])
        self.templates_KD = nn.ParameterList(templates)
        self.coefficients_RK = nn.ParameterList(coefficients)
        self._tie(ties)

    def compose(self) -> list[Tensor]:
        weights: list[Tensor] = [torch.empty(0)] * len(self.layers)
        slot = 0
        for cluster in self.plan.clusters:
            runs = [list(run) for _, run in groupby(cluster.layers, lambda p: self.layers[p].shape)]
            shapes = [self.layers[run[0]].pair for run in runs]
            # For each run of equal shapes, one piece (U, D) of every slot that it uses.
            pieces: list[list[Tensor]] = [[] for _ in runs]
            for j in range(len(cluster.templates)):
                used = [i for i, pair in enumerate(shapes) if cluster.chain.last_slot[pair] >= j]
                parts_UD = torch.split(self._superweights(slot), [len(runs[i]) for i in used])
                for i, part_UD in zip(used, parts_UD, strict=True):
                    pieces[i].append(part_UD)
                slot += 1
            for run, shape, parts in zip(runs, shapes, pieces, strict=True):
                weight_UOIA = assemble(cluster.chain, parts, shape)
                for position, weight in zip(run, weight_UOIA.unbind(), strict=True):
                    weights[position] = weight.reshape(self.layers[position].shape)
        return weights

    def _superweights(self, slot: int) -> Tensor:
        superweights_RD: Tensor = self.coefficients_RK[slot] @ self.templates_KD[slot]
        num_users = len(self.ties[slot])
        if len(superweights_RD) == num_users:  # rows are numbered in order: nobody is tied
            return superweights_RD
        if len(superweights_RD) == 1:
            return superweights_RD.expand(num_users, -1)
        return superweights_RD[self.get_buffer(f"rows_{slot}")]

    def _tie(self, ties: Ties) -> None:
        self.ties = ties
        for slot, rows in enumerate(ties):
            index_U = torch.tensor(rows, device=self.coefficients_RK[slot].device)
            self.register_buffer(f"rows_{slot}", index_U, persistent=False)

    @torch.no_grad()
    def coefficient_gradients(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of each use's coefficients, (U, K) for each slot, from those of weights."""
        found: list[Tensor] = []
        for cluster in self.plan.clusters:
            rows: list[list[Tensor]] = [[] for _ in cluster.templates]
            for position in cluster.layers:
                layer = self.layers[position]
                gradient_1OIA = gradients[position].reshape(1, *layer.pair, layer.area)
                for j, part_1D in enumerate(disassemble(cluster.chain, gradient_1OIA)):
                    rows[j].append(part_1D @ self.templates_KD[len(found) + j].T)
            found += [torch.cat(row) for row in rows]
        return found

    @torch.no_grad()
    def retie(self, ties: Ties, origins: Sequence[Sequence[int]]) -> list[Tensor]:
        """Replace the ties; new rows copy their origins, which are returned as indices."""
        indices = []
        for slot, origin in enumerate(origins):
            old_RK = self.coefficients_RK[slot]
            indices.append(torch.tensor(origin, device=old_RK.device))
            self.coefficients_RK[slot] = nn.Parameter(old_RK[indices[-1]].clone())
        self._tie(ties)
        return indices

    @property
    def num_vectors(self) -> int:
        return sum(len(alpha_RK) for alpha_RK in self.coefficients_RK)


class BankMembers(NetMembers):
    """Members whose shared weights are the bank's; composing them is no operation of inference."""

    def __init__(self, nets: Sequence[nn.Module], bank: WeightBank, flops: Sequence[int]) -> None:
        super().__init__(nets, flops)
        for layer in bank.layers:
            give_up(nets[layer.member], [f"{layer.name}.weight"])
        self.bank = bank
        self._prepared: Sequence[Tensor] | None = None

    def lent(self) -> list[dict[str, Tensor]]:
        return self.by_member(self.bank.compose() if self._prepared is None else self._prepared)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with torch.no_grad():
            self._prepared = self.bank.compose()
        try:
            yield
        finally:
            self._prepared = None

    def by_member(self, weights: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        own: list[dict[str, Tensor]] = [{} for _ in self.nets]
        for layer, weight in zip(self.bank.layers, weights, strict=True):
            own[layer.member][f"{layer.name}.weight"] = weight
        return own


class SuperweightMembers(BankMembers):
    """Members that share templates, with the gradients by which sharing is decided."""

    bank: TemplateBank

    def layer_gradients(
        self, x: Tensor, y_B: Tensor, *, loss: Callable[[Tensor, Tensor], Tensor], norms: str
    ) -> tuple[Tensor, list[Tensor]]:
        """The mean loss over members, and the gradient of their sum by each layer's own weight.

        No parameter, `.grad` or running statistics change. Norms use their running statistics
        (`eval`) or the batch (`train`).
        """
        with torch.no_grad():
            weights = [w.detach().clone().requires_grad_() for w in self.bank.compose()]
        was_training, is_training = self.training, norms == "train"
        kept = [(buffer, buffer.clone()) for buffer in self.buffers()] if is_training else []
        self.train(is_training)
        try:
            logits_MBK = self.under(self.by_member(weights), x)
            losses = torch.stack([loss(logits_BK, y_B) for logits_BK in logits_MBK])
            # A layer may be skipped in a pass, as by stochastic depth, or in one of the modes.
            gradients = torch.autograd.grad(losses.sum(), weights, materialize_grads=True)
        finally:  # not before: the graph of a norm refers to its statistics
            self.train(was_training)
            for buffer, value in kept:
                buffer.copy_(value)
        return losses.sum().detach() / len(losses), list(gradients)
