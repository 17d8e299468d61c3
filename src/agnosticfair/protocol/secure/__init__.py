"""Secure sums: every site's reply masked modulo 2^64, so that only the total can be read, to the same bits."""
