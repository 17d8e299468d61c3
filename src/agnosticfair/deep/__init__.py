"""Networks of PyTorch's: what they are made of, and the steps in which a client trains them."""
