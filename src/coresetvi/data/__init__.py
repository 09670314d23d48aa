"""Weighted rows: data sets and coresets, and the ways in and out of them."""

from .dataset import Coreset, Dataset, concatenate

__all__ = ["Coreset", "Dataset", "concatenate"]
