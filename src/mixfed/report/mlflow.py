"""Runs kept by MLflow, where it is installed."""

import importlib.util
from pathlib import Path
from typing import Any

from ..core.errors import SettingsError
from ..model.fit import Fit
from ..model.traits import typical_error
from .folder import FILES


def require_mlflow() -> None:
    """Complain before the work is done, not after it."""
    if importlib.util.find_spec("mlflow") is None:
        raise SettingsError("--mlflow needs MLflow: install mixfed[mlflow]")


def log_run(folder: Path, found: Fit, about: dict[str, Any]) -> None:
    """Log a fit and its files to MLflow, where MLFLOW_TRACKING_URI says."""
    model = found.model
    metrics = {
        "n_clusters": model.n_clusters,
        **({} if (error := typical_error(model)) is None else {"typical_error": error}),
        "exchanges": found.traffic.exchanges,
        "seconds": sum(found.seconds.values()),
        **({"log_likelihood": model.details["likelihood"]} if "likelihood" in model.details else {}),
        **{f"share_{j}": float(share) for j, share in enumerate(model.weights)},
        **{f"noise_{j}": float(noise) for j, noise in enumerate(() if model.noise is None else model.noise)},
    }
    try:
        import mlflow

        with mlflow.start_run(run_name=f"mixfed {about.get('data', folder.name)}"):
            mlflow.set_tag("mixfed.command", about.get("command", ""))
            mlflow.log_params(_params(found, about))
            mlflow.log_metrics(metrics)
            for name in FILES:
                mlflow.log_artifact(str(folder / name))
    except Exception as error:  # of MLflow, its store or its server, none of which we know
        reason = " ".join(str(error).split())
        raise SettingsError(f"the results are in {folder}, but MLflow did not take the run: {reason}") from error


def _params(found: Fit, about: dict[str, Any]) -> dict[str, Any]:
    model = found.model
    settings = {name: value for name, value in model.details.get("settings", {}).items() if value is not None}
    given = {"data": about.get("data"), "recipe": model.recipe, "loss": model.loss, "seed": model.seed}
    columns = {"client": model.client_column, "target": model.target_column, "features": ",".join(model.features)[:500]}
    return given | columns | {f"settings.{name}": value for name, value in settings.items()}
