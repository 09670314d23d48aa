"""What calls `fit` more than once: pruning, retraining, continual learning, comparisons; and merging."""

from .continual_learning import continual
from .merging import merge
from .pruning import prune
from .retraining import retrain

__all__ = ["continual", "merge", "prune", "retrain"]
