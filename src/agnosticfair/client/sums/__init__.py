"""A round's sums in float64, in float32, on a device of PyTorch's and in one Triton kernel."""
