"""A GPU with a few MiB left: every fit on it says so in one sentence, and the command line ends with 2.

    python benchmarks/full_gpu.py [--left 3]

Fills the device's memory with plain allocations in this process, then fits in it (whose library has its room already)
and by the command line in another (whose library has none). Also that sums over subgroups have the CPU's bits. Needs
a GPU that nobody else uses, and PyTorch.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from agnosticfair.data.table import Column, Table
from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import fit, in_process
from agnosticfair.mathematics.basis import subgroups
from agnosticfair.methods import Method, Network, method

MIB = 1 << 20
READINGS = {
    "additive": {"learner": "additive"},
    "linear": {"learner": "linear", "tau": 0.02},
    "three values": {"learner": "linear", "basis": subgroups(depth=3)},
}


def rows(n: int) -> Table:
    """Made-up rows with two columns of words and two of numbers."""
    rng = np.random.default_rng(0)
    a, b, s = rng.integers(0, 3, n), rng.integers(0, 4, n), rng.integers(0, 2, n)
    x, z = rng.normal(size=n), rng.normal(size=n) + 0.5 * s
    y = rng.random(n) < 1 / (1 + np.exp(-(x + 0.5 * z + 0.4 * (a == 1) - 0.3 * b * s)))
    words = {k: Column(v, tuple("pqrs"[: v.max() + 1])) for k, v in {"a": a, "b": b}.items()}
    target, group = Column(y.astype(int), ("no", "yes")), Column(s, ("f", "m"))
    return Table({"x": x, "z": z}, words, target, {"sex": group})


def same_bits(clients: dict[str, Table]) -> bool:
    """Whether sums over subgroups, and so models, are the same on the GPU."""
    good = True
    for name, own in READINGS.items():
        chosen_method = method("rule", **own)
        here, there = (
            fit(in_process(clients, device=where), chosen_method, positive="yes")
            for where in (None, "cuda")
        )
        same = here.model.digest == there.model.digest and here.history == there.history
        print(f"{name}: {there.rounds} rounds, {'the same bits' if same else 'OTHER BITS'}")
        good &= same
    return good


def filled(left: float) -> list[torch.Tensor]:
    """Tensors that leave so many MiB of the device, or fewer."""
    held, size = [], torch.cuda.mem_get_info()[0]
    while size >= MIB and torch.cuda.mem_get_info()[0] > left * MIB:
        try:
            room = torch.cuda.mem_get_info()[0] - int(left * MIB)
            held.append(torch.empty(min(size, room), dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def refused(name: str, clients: dict[str, Table], method: Method, device: str | None) -> bool:
    try:
        fitted = fit(in_process(clients, device=device), method, positive="yes")
    except AgnosticFairError as error:
        print(f"{name}: {error}")
        return "\n" not in str(error)
    print(f"{name}: FITTED, {fitted.outcome}")  # in what PyTorch held back, which is no fault
    return True


def command_line(table: Table) -> bool:
    """Whether the command says it in one line and ends with 2, for linear models and networks."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        path, columns = Path(folder, "rows.csv"), [*table.numeric, *table.categorical, "sex", "y"]
        words = (*table.categorical.values(), *table.sensitive_features.values(), table.target)
        values = [*table.numeric.values(), *(c.values() for c in words if c is not None)]
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*values, strict=True))]
        path.write_text("\n".join(lines) + "\n")
        request = f"fit {path} --target y --sensitive-features sex --device cuda".split()
        for more in (
            "",
            "--network mlp",
            "--method agnosticfair",
            "--method fedavg --network mlp",
        ):
            out = Path(folder, "model.safetensors")
            command = [
                sys.executable,
                "-m",
                "agnosticfair",
                *request,
                *more.split(),
                "--out",
                str(out),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            said = [line for line in done.stderr.splitlines() if line.startswith("error:")]
            fine = done.returncode == 2 and len(said) == 1 and "no room" in said[0]
            print(
                f"command line {more or 'as it is'}: {done.returncode}, {said or done.stderr[-600:]}"
            )
            good &= fine and not out.exists()
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--left", type=float, default=3.0, help="MiB")
    request = parser.parse_args()
    table = rows(4000)
    clients = {f"c{k}": table.take(np.arange(len(table)) % 2 == k) for k in range(2)}
    good = same_bits(clients)
    torch.cuda.empty_cache()
    held, large = filled(request.left), rows(400_000)
    print(f"{torch.cuda.mem_get_info()[0] / MIB:.1f} MiB left, {len(held)} tensors hold the rest")
    crowd, net = {"one": large}, Network(device="cuda", batch=None)
    good &= refused("linear, subgroups", crowd, method("rule"), "cuda")
    good &= refused("linear, kernels", crowd, method("agnosticfair"), "cuda")
    good &= refused("network, kernels", crowd, method("agnosticfair", network=net), None)
    good &= refused("network, averaging", crowd, method("fedavg", network=net), None)
    good &= command_line(table)
    print("OK" if good else "FAILED")
    sys.exit(not good)


if __name__ == "__main__":
    main()
