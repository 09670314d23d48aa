"""The problems and methods of an experiment, as its TOML file describes them."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import coresetvi as cvi
from coresetvi import constructions
from coresetvi.constructions.base import Construction
from coresetvi.errors import InputError

from .toml_objects import build


@dataclasses.dataclass(frozen=True)
class PaperProblem:
    """Data and a model for them; `transfer` is one of flat rows, to be trained on the same coresets."""

    id: str
    dataset: dict[str, Any]
    model: dict[str, Any]
    transfer: dict[str, Any] | None = None
    position: int | float | None = None
    budget: float = 0.0
    optional: bool = False
    paper: dict[str, Any] = dataclasses.field(default_factory=dict)

    def load(self) -> tuple[cvi.Dataset, cvi.Dataset]:
        """The rows to fit and the rows to score on."""
        return cvi.datasets.load(**self.dataset)


@dataclasses.dataclass(frozen=True)
class PaperMethod:
    """One line of a table: how a coreset is made, and with how many points."""

    id: str
    name: str
    construction: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    ours: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: tuple[int, ...] | None = None
    driver: str = "fit"
    stages: tuple[int, ...] = ()
    retrain: bool = True
    transfer: tuple[int, ...] = ()
    automatic: bool = False
    fresh_steps: int | None = None
    budget: float | None = None
    num_steps: int | None = None
    paper: str | None = None

    @property
    def maker(self) -> Callable[..., Construction]:
        """What builds its construction."""
        if self.construction not in constructions.__all__ or self.construction == Construction.__name__:
            known = ", ".join(name for name in constructions.__all__ if name != Construction.__name__)
            raise InputError(
                f"method {self.id!r} has the unknown construction {self.construction!r}; choose from {known}"
            )
        return getattr(constructions, self.construction)

    @property
    def sized(self) -> bool:
        """Whether it is told a number of points, or takes all rows."""
        return "size" in inspect.signature(self.maker).parameters

    def build(self, size: int | None, more: dict[str, Any] | None = None) -> Construction:
        """Its construction with that many points, and with `more` options that its own do not speak of."""
        options = build((more or {}) | self.options, f"method {self.id!r}")
        try:
            return self.maker(**({"size": size} if self.sized else {}), **options)
        except (TypeError, InputError) as error:
            raise InputError(f"method {self.id!r} cannot be built: {error}") from error
