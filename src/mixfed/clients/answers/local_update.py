"""Phase 2 of the paper: memberships, then local steps of each client's own copies of the models, summed."""

from types import ModuleType

from ...core.arrays import Array, Floats, Ints
from ...exchange.local_update import FedProx, LocalUpdate, ModelSum, Update
from ...kernels.plain import FEDAVG, FEDPROX
from ..blocks import summed
from ..memberships import mixture_arguments
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all


@answer_all.register
def _local_update(query: LocalUpdate, clients: ClientData, kernels: ModuleType) -> ModelSum:
    update = update_arguments(query.update)

    def one(block: Clients) -> ModelSum:
        rows, models = _packed(block), mixture_arguments(query.mixture, block.phi.dtype)
        return model_sum(block, kernels.local_updates(*rows, *models, query.hard, query.loss.code, *update))

    return summed(one, clients)


def model_sum(block: Clients, sums: tuple[Floats, Floats, Floats, Floats, float]) -> ModelSum:
    """Name what the kernel gives."""
    shift, mass, count, loss, likelihood = sums
    return ModelSum(shift, block.n_rows, mass, count, loss, likelihood)


def _packed(clients: Clients) -> tuple[Array, Floats, Ints]:
    return clients.design, clients.y, clients.offsets


def update_arguments(update: Update | None) -> tuple[int, float, int]:
    """Give the kernels' code, step and number of local steps of an update; without one nothing moves."""
    if update is None:
        return FEDAVG, 0.0, 0
    kind = FEDPROX if isinstance(update, FedProx) else FEDAVG
    return kind, float(update.step), update.local_steps
