"""Networks with one logit, by name: their weights as one vector, in and out.

The vector begins with what the inputs are centred and scaled by, (d,) each, which is agreed on once
and never trained; then come the module's parameters in their own order. A site builds networks from
its own table of names only: no code, and no name of code, comes over the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod

import numpy as np

from agnosticfair.errors import ModelError, SettingsError

try:
    import torch
except ImportError as error:  # pragma: no cover
    raise SettingsError(
        "networks need PyTorch, which is not installed: pip install 'agnosticfair[torch]'"
    ) from error

Factory = Callable[..., torch.nn.Module]
CHUNK = 1 << 16
"""Rows that a network sees at a time where nothing is learned from them."""


def mlp(d: int, hidden: Sequence[int]) -> torch.nn.Module:
    """Layers of these widths with SiLU between them, one logit at the end."""
    layers: list[torch.nn.Module] = []
    for width in hidden:
        layers += [torch.nn.Linear(d, width), torch.nn.SiLU()]
        d = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(d, 1))


FACTORIES: dict[str, Factory] = {"mlp": mlp, "linear": lambda d, hidden: torch.nn.Linear(d, 1)}


_REGISTERED: dict[str, Callable] = {}
"""Users' functions by the names that they were registered under."""


def register(name: str, factory: Callable[[int], torch.nn.Module]) -> str:
    """Know a user's own network, ``factory(d)`` with one logit a row, under this name.

    It must be known by the same name in every process that takes part.

    >>> register("thin", lambda d: torch.nn.Sequential(torch.nn.Linear(d, 2), torch.nn.Linear(2, 1)))
    'thin'
    """
    if name in ("mlp", "linear"):
        raise SettingsError(f"network {name!r} is known already: take another name")
    _REGISTERED[name], FACTORIES[name] = factory, lambda d, hidden: factory(d)
    _module.cache_clear()
    return name


def known_as(factory: Callable[[int], torch.nn.Module]) -> str:
    """The name of a user's own function in this process: its qualified one, with a number where that is
    another function's, as with two lambdas. So a network that was fitted keeps its meaning."""
    if isinstance(factory, torch.nn.Module):
        raise SettingsError(
            f"model is a {type(factory).__name__} that is made already: give a function from the number of "
            "features to a new one"
        )
    of = getattr(factory, "func", factory)  # of functools.partial
    base = f"{of.__module__}.{getattr(of, '__qualname__', type(of).__qualname__)}"
    for number in count(1):
        name = base if number == 1 else f"{base} {number}"
        if _REGISTERED.get(name) is factory:
            break
        if name not in _REGISTERED:
            register(name, factory)
            break
    return name


def device(name: str) -> torch.device:
    if name not in ("cpu", "cuda"):
        raise SettingsError(f"unknown device {name!r}: take 'cpu' or 'cuda'")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("there is no CUDA device here: take device 'cpu'")
    return torch.device(name)


def factory(name: str) -> Factory:
    """What makes the network of that name, if it is known here."""
    if name not in FACTORIES:
        known = ", ".join(FACTORIES)
        raise SettingsError(
            f"no network {name!r} here; there are: {known}. Make your own known by "
            "agnosticfair.networks.register, in every process that takes part"
        )
    return FACTORIES[name]


def build(name: str, hidden: Sequence[int], d: int, seed: int = 0) -> torch.nn.Module:
    """A new network for d features whose weights are drawn with this seed."""
    make = factory(name)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        try:
            module = make(d, hidden).eval()
            shape = tuple(module(torch.zeros(3, d)).shape)  # lazy layers are drawn here
        except Exception as error:  # of another's code
            raise ModelError(
                f"network {name!r} fails for {d} features ({error}): it must be a torch.nn.Module that "
                "makes one logit, float32, of every row, (n, d)"
            ) from error
    for what, p in module.named_parameters():
        if p.dtype != torch.float32:
            raise ModelError(f"weights {what!r} of the network are {p.dtype}: make them float32")
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError("the network has no weights to train: let some of them require gradients")
    buffers = [what for what, _ in module.named_buffers()]
    if buffers:
        raise ModelError(
            f"the network has buffers ({buffers[0]!r}), which clients cannot average: take LayerNorm "
            "instead of BatchNorm"
        )
    if shape not in ((3,), (3, 1)):
        outputs = prod(shape[1:])
        raise ModelError(
            f"the network has {outputs} outputs a row, shape {shape} for 3 rows; it needs one logit: end it in "
            "a Linear layer of one output"
        )
    return module


def initial(name: str, hidden: Sequence[int], d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (P,) before the first round; and which of them a ridge pulls: matrices, unless frozen.

    >>> initial("linear", (), 2, 0)[1].astype(int)
    array([0, 0, 0, 0, 1, 1, 0])
    """
    layers = list(build(name, hidden, d, seed).parameters())
    w = [p.detach().numpy().astype(np.float64).ravel() for p in layers]
    pulled = [np.full(p.numel(), p.ndim > 1 and p.requires_grad) for p in layers]
    unit = (np.zeros(d), np.ones(d))  # what inputs are centred and scaled by
    return np.concatenate([*unit, *w]), np.concatenate([np.zeros(2 * d, bool), *pulled])


@dataclass(frozen=True)
class Flat:
    """A network whose parameters are views of ``values``, (P,), and their gradients of ``gradients``."""

    module: torch.nn.Module
    values: torch.Tensor
    gradients: torch.Tensor
    d: int

    def load(self, w: np.ndarray) -> Flat:
        if w.shape != tuple(self.values.shape):
            raise ModelError(
                f"{len(w)} weights came for a network of {len(self.values)}: it has another shape here"
            )
        self.values.copy_(torch.from_numpy(w))
        return self

    def inputs(self, X: np.ndarray) -> torch.Tensor:
        """Rows (n, d), centred and scaled, where the network is; in float64 until they are centred."""
        centre, scale = self.values[: 2 * self.d].double().cpu().view(2, self.d)
        z = (torch.as_tensor(X, dtype=torch.float64) - centre) / scale
        return z.to(self.values.device, torch.float32)

    def logits(self, z: torch.Tensor) -> torch.Tensor:
        """(n,) signed distances of inputs (n, d)."""
        return self.module(z).reshape(len(z))


@lru_cache(maxsize=4)
def _module(name: str, hidden: tuple[int, ...], d: int, where: str) -> Flat:
    module = build(name, hidden, d).to(device(where))
    size = 2 * d + sum(p.numel() for p in module.parameters())
    values, gradients = (torch.zeros(size, device=device(where)) for _ in range(2))
    first = 2 * d
    for p in module.parameters():
        place = slice(first, first := first + p.numel())
        p.data, p.grad = values[place].view(p.shape), gradients[place].view(p.shape)
    return Flat(module, values, gradients, d)


def flat(name: str, hidden: Sequence[int], d: int, w: np.ndarray, where: str = "cpu") -> Flat:
    """The network of that name with weights w; one per settings and process, made once."""
    return _module(name, tuple(hidden), d, where).load(w)


def decide(name: str, hidden: Sequence[int], w: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Signed distances (n,) of rows X (n, d), on the CPU."""
    net = flat(name, hidden, X.shape[1], w)
    net.module.eval()
    with torch.no_grad():
        outputs = [
            net.logits(net.inputs(X[first : first + CHUNK])) for first in range(0, len(X), CHUNK)
        ]
    return torch.cat(outputs).double().numpy() if outputs else np.zeros(0)
