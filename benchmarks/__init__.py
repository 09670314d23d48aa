"""Measurements behind every figure in the docs. Run with `make bench`; never part of the tests."""
