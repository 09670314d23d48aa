"""After a fit: draws of its posterior, the certificate, the correction, and how many points are needed."""

from .correction import correct
from .diagnosis import diagnose
from .sampling import sample
from .size_choice import choose_size

__all__ = ["choose_size", "correct", "diagnose", "sample"]
