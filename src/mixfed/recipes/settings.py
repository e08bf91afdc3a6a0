"""Settings of the recipes: frozen, checked once, with every default in this place."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..core.arrays import Floats
from ..core.errors import SettingsError
from ..core.names import INTERCEPT
from ..exchange.local_update import FedAvg, FedProx, Update
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named

UpdateName = Literal["fedavg", "fedprox"]
MembershipName = Literal["hard", "soft"]
AutoUpdateName = Literal["exact", "fedavg", "fedprox"]
NoiseName = Literal["own", "shared"]
AnchorsName = Literal["single", "summed"]
DeviationsName = Literal["auto", "full", "diagonal"]


@dataclass(frozen=True)
class PaperSettings:
    """The constants that the paper's two phases take; ``docs/notation.md`` gives its symbol for each.

    Only ``separation`` has no default: nothing but knowledge of the data gives it.
    """

    separation: float
    """Least distance between two true models (Delta)."""
    n_anchors: int = 24
    """Anchors to draw (n_H); about ln(N) over the smallest share of a kind."""
    n_recruits: int = 2000
    """Clients with two or more rows that each round of Phase 1 asks (m); a client serves once."""
    pairs: int = 50
    """Pairs of rows an anchor uses a round (l); an anchor needs 2 * pairs * rounds rows."""
    rounds: int = 10
    """Rounds of Phase 1 (T)."""
    basis_rounds: int | None = None
    """Half-steps of the federated orthogonal iteration (T_1), even; default: k ln(N d), rounded up."""
    power_rounds: int | None = None
    """Steps of the anchors' power iteration (T_2); default: 2 ln(N d), rounded up."""
    tolerance: float = 0.1
    """An anchor stops once its residual is below tolerance * separation (epsilon)."""
    cov_low: float = 1.0
    """Least eigenvalue of the features' second moment (alpha)."""
    cov_high: float = 1.0
    """Largest eigenvalue of the features' second moment (beta)."""
    update: UpdateName = "fedavg"
    """Local update of Phase 2."""
    step: float = 0.03
    """Step of the local update (eta)."""
    local_steps: int = 5
    """Local gradient steps a round (s); FedAvg only."""
    refine_rounds: int = 300
    """Rounds of Phase 2 (T'); it ends earlier when the models stop moving."""
    membership: MembershipName = "hard"
    """Hard labels, as in the paper's analysis, or posterior weights."""
    start: tuple[float, ...] | None = None
    """First model of every anchor (theta_0), one number per feature, then the intercept; default 0."""

    def __post_init__(self) -> None:
        _settle(self, "a list of numbers, one per feature", 1)
        for name in ("separation", "tolerance", "cov_low", "cov_high", "step"):
            _require(self, name, lambda value: math.isfinite(value) and value > 0, "a number above 0")
        for name in ("n_anchors", "n_recruits", "pairs", "rounds", "local_steps"):
            _require(self, name, lambda value: value >= 1, "a whole number, 1 or more")
        _require(self, "refine_rounds", lambda value: value >= 0, "a whole number, 0 or more")
        _require(
            self,
            "basis_rounds",
            lambda value: value is None or (value >= 2 and value % 2 == 0),
            "an even number, 2 or more (half-steps come in pairs)",
        )
        _require(self, "power_rounds", lambda value: value is None or value >= 1, "a whole number, 1 or more")
        _require(self, "update", lambda value: value in get_args(UpdateName), "'fedavg' or 'fedprox'")
        _require(self, "membership", lambda value: value in get_args(MembershipName), "'hard' or 'soft'")
        if self.cov_low > self.cov_high:
            raise SettingsError(f"cov_low = {self.cov_low:g} is above cov_high = {self.cov_high:g}: swap the two")

    @property
    def hard(self) -> bool:
        """Whether Phase 2 uses hard labels."""
        return self.membership == "hard"

    @property
    def local_update(self) -> Update:
        """The local update of Phase 2."""
        return FedProx(self.step) if self.update == "fedprox" else FedAvg(self.step, self.local_steps)

    def completed(self, n_clusters: int, n_rows: int, dim: int) -> PaperSettings:
        """Fill in the defaults that depend on the data."""
        scale = math.log(max(n_rows * dim, 2))
        return dataclasses.replace(
            self,
            basis_rounds=self.basis_rounds or 2 * math.ceil(n_clusters * scale / 2),
            power_rounds=self.power_rounds or math.ceil(2 * scale),
        )


@dataclass(frozen=True)
class AutoSettings:
    """What can be chosen in the tuning-free recipe; nothing has to be."""

    family: str = GAUSSIAN.name
    """What the target is: see `families`."""
    ridge: float | None = None
    """Penalty ridge / 2 |theta - pooled|^2 on each kind's model, in standard units: by default 1 for families whose
    models may run off, 0 for others."""
    noise: NoiseName = "own"
    """Each kind has its own noise, or all share one."""
    membership: MembershipName = "soft"
    """Posterior weights, or hard labels (which bias the models when clients have few rows)."""
    update: AutoUpdateName = "exact"
    """Exact models from summed normal equations, or local updates by FedAvg or FedProx."""
    step: float | None = None
    """Step of a local update, in standard units; FedAvg needs one, FedProx takes 1 by default."""
    local_steps: int = 5
    """Local gradient steps a round; FedAvg only."""
    refine_rounds: int = 500
    """Rounds of local updates, at most."""
    max_clusters: int = 12
    """The largest number of kinds tried when it is to be found."""
    anchors: AnchorsName = "single"
    """Anchors reply one by one, once; or all they are asked is summed, which takes more exchanges."""
    start: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None
    """A model, or a model for each kind, to try besides our own; it can only raise the likelihood."""
    personal: bool = False
    """Within a kind every client has a deviation of its own, which its rows tell as far as they can."""
    deviations: DeviationsName = "auto"
    """Their covariance: full, or diagonal in centred columns, or which of the two BIC prefers."""

    def __post_init__(self) -> None:
        _settle(self, "a list of numbers, or one such list for each kind", 2)
        family = family_named(self.family)
        object.__setattr__(self, "family", family.name)
        _require(
            self, "ridge", lambda value: value is None or (math.isfinite(value) and value >= 0), "a number, 0 or more"
        )
        if self.ridge and family.quadratic:
            raise SettingsError(f"ridge = {self.ridge:g} goes with another family than {family.name}")
        if self.update != "exact" and family.rescales and not family.quadratic:
            raise SettingsError(f"the family {family.name} goes with update = 'exact'")
        if self.personal and not family.quadratic:
            raise SettingsError(f"personal models are for the family gaussian: take kinds alone for {family.name}")
        _require(self, "noise", lambda value: value in get_args(NoiseName), "'own' or 'shared'")
        _require(self, "membership", lambda value: value in get_args(MembershipName), "'hard' or 'soft'")
        _require(self, "update", lambda value: value in get_args(AutoUpdateName), "'exact', 'fedavg' or 'fedprox'")
        _require(self, "anchors", lambda value: value in get_args(AnchorsName), "'single' or 'summed'")
        _require(self, "step", lambda value: value is None or (math.isfinite(value) and value > 0), "a number above 0")
        _require(self, "personal", lambda value: type(value) is bool, "true or false")
        for name in ("local_steps", "refine_rounds", "max_clusters"):
            _require(self, name, lambda value: value >= 1, "a whole number, 1 or more")
        _require(self, "deviations", lambda value: value in get_args(DeviationsName), "'auto', 'full' or 'diagonal'")
        if self.personal and (self.membership == "hard" or self.update != "exact"):
            raise SettingsError("personal models go with membership = 'soft' and update = 'exact'")
        if self.membership == "hard" and self.update != "exact":
            raise SettingsError("membership = 'hard' goes with update = 'exact'; the paper's recipe has the others")
        if self.update == "fedavg" and self.step is None:
            raise SettingsError("update = 'fedavg' needs a step: give one, or use 'exact' or 'fedprox'")

    @property
    def hard(self) -> bool:
        """Whether labels are hard."""
        return self.membership == "hard"

    @property
    def shared_noise(self) -> bool:
        """Whether all kinds have the same noise."""
        return self.noise == "shared"

    @property
    def local_update(self) -> Update | None:
        """The local update; None if models are exact."""
        if self.update == "exact":
            return None
        if self.update == "fedprox":
            return FedProx(self.step or 1.0)
        assert self.step is not None
        return FedAvg(self.step, self.local_steps)


def read_config(path: Path, name: Literal["paper", "auto"]) -> Any:
    """Read the table ``[paper]`` or ``[auto]`` of a TOML file, as `PaperSettings` or `AutoSettings`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name}: not valid TOML ({error})") from error
    check_keys(content, ["paper", "auto"], f"{path.name}: unknown table or key")
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path.name}: [{name}] must be a table")
    try:
        return paper_settings(table) if name == "paper" else auto_settings(table)
    except SettingsError as error:
        raise SettingsError(f"{path.name}: [{name}] {error}") from error


def paper_settings(table: dict[str, Any]) -> PaperSettings:
    """Make settings of the paper's recipe from a plain table; unknown keys and wrong types are errors."""
    check_keys(table, [item.name for item in dataclasses.fields(PaperSettings)], "unknown key")
    if "separation" not in table:
        raise SettingsError("separation is missing: give the least distance between two true models")
    return PaperSettings(**table)


def auto_settings(table: dict[str, Any]) -> AutoSettings:
    """Make settings of the tuning-free recipe from a plain table; unknown keys and wrong types are errors."""
    check_keys(table, [item.name for item in dataclasses.fields(AutoSettings)], "unknown key")
    return AutoSettings(**table)


def check_keys(table: dict[str, Any], known: list[str], complaint: str) -> None:
    """Refuse a key that is not known, and guess which was meant."""
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            raise SettingsError(f"{complaint} '{key}'; {hint}")


def _settle(settings: PaperSettings | AutoSettings, start: str, depth: int) -> None:
    """Make plain numbers of NumPy's and the like, which can be written down, and refuse what is none.

    ``start`` says what the setting of that name must be, numbers in lists to a ``depth``.
    """
    for item in dataclasses.fields(settings):
        name, value, wanted = item.name, getattr(settings, item.name), str(item.type)
        if value is None and wanted.endswith("None"):
            continue
        if name == "start":
            _require(settings, name, lambda value: isinstance(value, Iterable) and _numbers(value, depth), start)
            object.__setattr__(settings, name, _plain(value))
        elif wanted.startswith("int"):
            _require(settings, name, lambda value: _is_number(value, Integral), "a whole number")
            object.__setattr__(settings, name, int(value))
        elif wanted.startswith("float"):
            _require(settings, name, lambda value: _is_number(value, Real), "a number")
            object.__setattr__(settings, name, value if isinstance(value, int) else float(value))


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _numbers(values: Any, depth: int) -> bool:
    """Say whether values are finite numbers, in lists of lists to a depth."""
    if _is_number(values, Real):
        return math.isfinite(values)
    return depth > 0 and isinstance(values, Iterable) and all(_numbers(value, depth - 1) for value in values)


def _plain(values: Any) -> Any:
    return tuple(map(_plain, values)) if isinstance(values, Iterable) else float(values)


def _require(settings: PaperSettings | AutoSettings, name: str, holds: Any, wanted: str) -> None:
    value = getattr(settings, name)
    if not holds(value):
        raise SettingsError(f"{name} = {value!r} must be {wanted}")


def given_start(start: Any, features: tuple[str, ...]) -> Floats | None:
    """Give the caller's start (D,) or (k, D), if there is one; models of the features alone get the intercept 0."""
    if start is None:
        return None
    try:
        found = np.array(start, dtype=np.float64)
    except ValueError:
        raise SettingsError("start must hold as many numbers for each model") from None
    own = features[-1] == INTERCEPT
    if own and found.shape[-1] == len(features) - 1:
        found = np.concatenate([found, np.zeros((*found.shape[:-1], 1))], axis=-1)
    if found.ndim > 2 or found.shape[-1] != len(features) or not np.isfinite(found).all():
        counts = f"{len(features) - 1} or {len(features)}" if own else str(len(features))
        raise SettingsError(f"start must hold {counts} finite numbers for each model, one per feature")
    return found
