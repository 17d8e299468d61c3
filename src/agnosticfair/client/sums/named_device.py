"""A round's sums over named parts by PyTorch, on a GPU or any other device it knows (extra ``torch``).

The rows lie on the device between rounds, in float64. What is added up lies on a grid, so that sums are exact in
whatever order a device adds them: those of ``named``, to the last bit, where the device rounds exponentials alike.
Which parts a chunk of rows lies in is worked out anew: no matrix of all rows times parts is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from agnosticfair.client.client import Client
from agnosticfair.client.sums.float64 import KERNEL_BITS, MASS
from agnosticfair.client.sums.named import WEIGHT_BITS
from agnosticfair.client.sums.torch_device import device_of, room_for
from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import FEATURE_BITS, indicators
from agnosticfair.mathematics.sums import OF_FAIR, named, of_fair, of_loss, row_values
from agnosticfair.protocol.grid import base_bits, exponents
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PartSums, Task

CELLS = 1 << 26
"""Rows times parts that exist at a time."""


@dataclass(frozen=True)
class There:
    """A client's rows on its device, sorted by cell.  codes: (n, C + 1), the last axis is everybody's.  axes, values:
    (M + 1, 3) of every part and, last, of everybody."""

    X: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor | None
    codes: torch.Tensor
    axes: torch.Tensor
    values: torch.Tensor
    starts: tuple[int, ...]

    def chunks(self) -> Iterator[tuple[int, slice, torch.Tensor]]:
        """(cell, rows, which parts they lie in): the last (M + 1, rows), of 0 and 1."""
        most = max(1, CELLS // len(self.axes))
        for j, (a, b) in enumerate(pairwise(self.starts)):
            for first in range(a, b, most):
                rows = slice(first, min(first + most, b))
                inside = (self.codes[rows][:, self.axes] == self.values).all(dim=2)
                yield j, rows, inside.T.double()


def there(client: Client, task: Task) -> There:
    """The rows, moved to the client's device."""
    assert task.named is not None
    assert client.device is not None
    (axes, parts), rows = task.named.agreed, client.prepare(task)
    device = device_of(client.device)
    codes = np.zeros((len(rows.X), len(axes) + 1), np.int64)
    codes[:, :-1] = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    full = [(*part, *[(len(axes), 0)] * (3 - len(part))) for part in [*parts, ()]]
    which, value = np.array(full, np.int64).transpose(2, 0, 1)

    def moved(v: Any) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(v)).to(device)

    weights = None if rows.weights is None else moved(np.asarray(rows.weights, float))
    y = moved(np.asarray(rows.y, float))
    starts = tuple(int(v) for v in rows.starts)
    return There(moved(rows.X), y, weights, moved(codes), moved(which), moved(value), starts)


def on_grid(v: torch.Tensor, bits: Any) -> torch.Tensor:
    """``linear.on_grid``."""
    big = torch.as_tensor(np.ldexp(1.5, 52 - np.asarray(bits)), device=v.device)
    return (v + big) - big


def weighed(v: torch.Tensor, bits: Any, weights: torch.Tensor | None) -> torch.Tensor:
    """``features.weighed``, of rows along the first axis."""
    v = on_grid(v, bits)
    return v if weights is None else on_grid(v * weights.reshape(-1, *(1,) * (v.ndim - 1)), bits)


def part_values(client: Client, broadcast: Broadcast[PartSums]) -> Reply:
    """What ``named.part_values`` adds up."""
    rows = f"{len(client.rows)} rows and their parts"
    with room_for(rows, "end other programs on it, or leave out the device"):
        return _part_values(client, broadcast)


@torch.inference_mode()
def _part_values(client: Client, broadcast: Broadcast[PartSums]) -> Reply:
    task, asked, rows = broadcast.task, broadcast.asked, client.kept(broadcast.task, there)
    new: dict[str, Any] = {"dtype": torch.float64, "device": rows.X.device}
    C = on_grid(torch.as_tensor(asked.C, **new), WEIGHT_BITS)
    w, wanted = torch.as_tensor(asked.w, **new), [*np.asarray(asked.slopes, int).tolist(), -1]
    bits, powers = base_bits(task.n) - KERNEL_BITS, exponents(task.encoding)
    v = row_values((rows.X * w).sum(dim=1), rows.y, asked.surrogate, torch)
    (of_row, l_slope), (of_part, g_slope) = of_loss(v), of_fair(v)
    L, V = (weighed(torch.stack(f, dim=1), bits, rows.weights) for f in (of_row, of_part))

    def times(slope: torch.Tensor, bits: int) -> torch.Tensor:
        return weighed(rows.X * slope[:, None], bits - powers, rows.weights)

    values = torch.zeros((task.cells, C.shape[1], V.shape[1]), **new)
    J = torch.zeros((task.cells, len(wanted), len(w)), **new)
    c, of_slope = torch.empty_like(rows.y), times(g_slope, bits)
    for j, part, inside in rows.chunks():
        values[j] += inside @ V[part]
        J[j] += inside[wanted] @ of_slope[part]
        c[part] = C[j] @ inside
    H = rows.X.T @ times(v.curve + c * v.g_curve, bits + KERNEL_BITS - FEATURE_BITS)
    # of an indicator and a number, what was rounded is the latter
    starts = indicators(task.encoding)
    hot = torch.zeros(len(w), dtype=torch.bool, device=H.device)
    hot[starts[0] : starts[-1]] = True
    H = torch.where(~hot[:, None] & hot, H.T, H)
    plain = torch.cat([L.sum(dim=0), times(l_slope, bits).sum(dim=0)]).cpu().numpy()
    correct = float(v.right @ V[:, MASS])
    none = np.zeros((1, 1, V.shape[1] + len(w)))
    found = named(plain, plain[None], none, H.cpu().numpy(), correct)
    of_fairness = [*values.permute(2, 0, 1).cpu().numpy(), J.cpu().numpy()]
    return Reply(broadcast.round, found | dict(zip(OF_FAIR, of_fairness, strict=True)))
