"""A round's sums in float64, in float32 and on a device of PyTorch's."""
