"""Weighted rows: data sets and coresets, rows that are not in memory, and the ways in and out of them."""

from .dataset import Coreset, Dataset, concatenate
from .rows import Rows
from .scan import scan
from .sharded import shard

__all__ = ["Coreset", "Dataset", "Rows", "concatenate", "scan", "shard"]
