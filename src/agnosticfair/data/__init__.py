"""Data: rows as arrays, their encoding, the bundled and external data sets, splits."""
