"""The sums of a round by PyTorch, on a GPU or any other device it knows (extra ``torch``).

The rows lie on the device between rounds, in float32 and sorted by cell. ``add_up`` calls the same
``float32.chunk_sums`` as the CPU does, for many chunks at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agnosticfair.client.sums.float32 import CHUNK, Request32, Rows32, chunk_sums, moved
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.sums import OF_FAIR, OF_LOSS

MAX_CHUNK = 1 << 18
"""Rows whose kernels exist at a time; halved where the device has no room for them."""

MIN_CHUNK = CHUNK


def device_of(name: str) -> torch.device:
    """The device of that name, if it is there.

    >>> device_of("cpu")
    device(type='cpu')
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        why = "it has no room left" if is_full(error) else str(error).strip().splitlines()[0]
        raise SettingsError(
            f"device {name!r} is not to be had ({why}): name another, such as 'cpu'"
        ) from None
    return device


def load(batches: Sequence[Callable[[], Rows32]], name: str) -> Rows32:
    """All rows on the device of that name, sorted by cell.  batches: functions that read some of them."""
    device = device_of(name)
    sizes = np.array([np.diff(rows().starts) for rows in batches])
    starts = np.concatenate([[0], np.cumsum(sizes.sum(axis=0))])
    first = batches[0]()
    n, width, weighed = int(starts[-1]), first.Z.shape[1], first.weights is not None
    size = f"{n} rows of {width} numbers, {n * width * 4 / 2**30:.1f} GiB"
    with room_for(size, "name device 'cpu', which reads them from disk"):
        Z = torch.empty((n, width), device=device)
        y = torch.empty(n, device=device)
        weights = torch.empty(n, device=device) if weighed else None
        places = starts[:-1] + np.cumsum(sizes, axis=0) - sizes
        for batch, place in zip(batches, places, strict=True):
            rows = batch()
            for j, at in enumerate(place):
                rows_here = slice(rows.starts[j], rows.starts[j + 1])
                into = slice(at, at + rows_here.stop - rows_here.start)
                Z[into] = torch.from_numpy(np.ascontiguousarray(rows.Z[rows_here])).to(device)
                y[into] = torch.from_numpy(rows.y[rows_here]).to(device)
                if weights is not None:
                    weights[into] = torch.from_numpy(rows.weights[rows_here]).to(device)
    return Rows32(Z, y, starts, weights)


@torch.inference_mode()
def add_up(rows: Rows32, q: Request32) -> tuple[np.ndarray, ...]:
    """``float32.add_up`` on the rows' device."""
    size = MAX_CHUNK
    while True:
        try:
            request = moved(q, lambda v: torch.from_numpy(v).to(rows.Z.device))
            return plain(rows, request, size)
        except RuntimeError as error:
            if not is_full(error):
                raise
            size //= 2
            if size < MIN_CHUNK:
                raise SettingsError(
                    f"{rows.Z.device} has no room for the kernels of {MIN_CHUNK} rows: end other programs "
                    "on it, take fewer kernels, or name device 'cpu'"
                ) from None
            torch.cuda.empty_cache()


def is_full(error: BaseException) -> bool:
    """Whether a device has no room left, of which its libraries speak in their own words.

    >>> is_full(RuntimeError("CUDA error: out of memory")), is_full(RuntimeError("no kernel image"))
    (True, False)
    """
    words = ("out of memory", "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


@contextmanager
def room_for(what: str, remedy: str) -> Iterator[None]:
    """Where the device has no room, a sentence; a device's first use may find none for its own library, too."""
    try:
        yield
    except RuntimeError as error:
        if not is_full(error):
            raise
        raise SettingsError(f"the device has no room for {what}: {remedy}") from None


def plain(
    rows: Rows32, q: Request32, chunk_size: int = MAX_CHUNK, work: Callable[..., Any] = chunk_sums
) -> tuple[np.ndarray, ...]:
    """``chunk_sums`` over all rows, ``chunk_size`` at a time as a stack of CHUNK each, added up in float64."""
    D, G = len(q.w), len(rows.starts) - 1
    new = {"dtype": torch.float64, "device": rows.Z.device}
    M, M_L = q.W.shape[1], len(q.alpha)
    D_L, D_F = D + len(OF_LOSS) - 1, D + len(OF_FAIR) - 1
    of_L, of_F = torch.zeros((D_L, M_L), **new), torch.zeros((G, D_F, M), **new)
    plain_L, plain_F = torch.zeros(D_L, **new), torch.zeros((G, D_F), **new)
    H, correct = torch.zeros((D, D), **new), torch.zeros((), **new)
    for j in range(G):
        first, last = int(rows.starts[j]), int(rows.starts[j + 1])
        while first < last:
            size = min(chunk_size, last - first)
            size = size // CHUNK * CHUNK or size
            stack = (-1, min(CHUNK, size))

            def piece(v: Any, first: int = first, size: int = size, stack: Any = stack) -> Any:
                return None if v is None else v[first : first + size].reshape(*stack, *v.shape[1:])

            sums_here = work(torch, q, j, piece(rows.Z), piece(rows.y), piece(rows.weights))
            for total, some in zip(
                (of_L, of_F[j], plain_L, plain_F[j], H, correct), sums_here, strict=True
            ):
                total += some.sum(0, dtype=torch.float64)
            first += size
    return tuple(v.cpu().numpy() for v in (of_L, of_F, plain_L, plain_F, H, correct))
