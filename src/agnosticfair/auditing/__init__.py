"""Audits of any model: certificates over a set of reweightings."""
