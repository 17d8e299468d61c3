"""Differential privacy: how much a row can change a total, noise that hides it, and what was spent of a budget."""
