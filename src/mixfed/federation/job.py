"""What a federation is to fit, and how long it waits for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.errors import SettingsError
from ..families.registry import family_named
from ..recipes.settings import AutoSettings, PaperSettings, auto_settings, paper_settings

_TYPES: dict[str, tuple[type, ...]] = {
    "n_clusters": (int, type(None)),
    "settings": (dict,),
    "intercept": (bool,),
    **dict.fromkeys(("recipe", "loss"), (str,)),
    **dict.fromkeys(("seed", "tries"), (int,)),
    **dict.fromkeys(("timeout", "min_share", "patience"), (int, float)),
}


@dataclass(frozen=True)
class Job:
    """What to fit, and how long to wait for whom."""

    n_clusters: int | None = None
    """Number of kinds; None finds it."""
    recipe: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)
    """What the table ``[auto]`` or ``[paper]`` of a configuration would hold."""
    loss: str = "squared"
    intercept: bool = True
    seed: int = 0
    timeout: float = 30.0
    """Seconds that a site has for an answer; then it is asked again."""
    tries: int = 8
    """Times that a site is asked before it is lost."""
    min_share: float = 0.5
    """Share of the sites that must take part."""
    patience: float = 60.0
    """Seconds that a run which goes on waits for a member that is missing."""

    def __post_init__(self) -> None:
        for name, kinds in _TYPES.items():
            if type(getattr(self, name)) not in kinds:
                raise SettingsError(f"{name} = {getattr(self, name)!r} is a {type(getattr(self, name)).__name__}")
        self.recipe_settings()
        if self.loss != "auto":
            family_named(self.loss)
        if self.recipe == "paper" and self.n_clusters is None:
            raise SettingsError("the paper's recipe does not find the number of kinds: give n_clusters")
        for name, least in (("timeout", 0.0), ("tries", 1), ("patience", 0.0), ("min_share", 0.0)):
            if not getattr(self, name) >= least:
                raise SettingsError(f"{name} = {getattr(self, name)} must be {least:g} or more")
        if not -(2**63) <= self.seed < 2**63:
            raise SettingsError(f"seed = {self.seed} has more than the 64 bits that travel")
        if self.min_share > 1.0:
            raise SettingsError(f"min_share = {self.min_share:g} must be 1 or less")

    def recipe_settings(self) -> AutoSettings | PaperSettings:
        """Give the settings of the recipe."""
        if self.recipe not in ("auto", "paper"):
            raise SettingsError(f"unknown recipe '{self.recipe}'; choose auto or paper")
        return paper_settings(self.settings) if self.recipe == "paper" else auto_settings(self.settings)

    @property
    def roster(self) -> bool:
        """Whether clients are to be asked by their places."""
        return self.recipe == "paper" or self.settings.get("anchors") != "summed"
