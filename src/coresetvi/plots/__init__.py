"""Pictures of fits: matplotlib figures that nobody has to close and no window has to show.

Every function needs matplotlib, which `pip install "coresetvi[cli]"` brings; it is imported when first used.
"""

from .figures import save_figure
from .fit_overview import overview
from .fits import history_plot, weights_plot
from .image_grid import draw_images
from .maps import entropy_figure, entropy_map, predictive_entropy

__all__ = [
    "draw_images",
    "entropy_figure",
    "entropy_map",
    "history_plot",
    "overview",
    "predictive_entropy",
    "save_figure",
    "weights_plot",
]
