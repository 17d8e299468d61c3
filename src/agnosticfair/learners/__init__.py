"""Estimates of P(Y, S | x): heads, learners, and what they predict; pure functions on arrays."""
