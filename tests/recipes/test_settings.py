"""Settings from TOML: every key is checked, every error names it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from mixfed import MixedRegressor
from mixfed.core.errors import SettingsError
from mixfed.exchange.local_update import FedAvg, FedProx
from mixfed.recipes.settings import AutoSettings, PaperSettings, read_config


def test_a_config_with_every_key_is_read(tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(
        "[paper]\nn_anchors = 3\nn_recruits = 20\npairs = 4\nrounds = 5\nbasis_rounds = 6\npower_rounds = 7\n"
        "tolerance = 0.2\nseparation = 1\ncov_low = 0.5\ncov_high = 2.0\nupdate = 'fedprox'\nstep = 0.1\n"
        "local_steps = 2\nrefine_rounds = 9\nmembership = 'soft'\nstart = [0, 1.5]\n"
    )
    settings = read_config(path, "paper")
    assert dataclasses.asdict(settings) == {
        "n_anchors": 3,
        "n_recruits": 20,
        "pairs": 4,
        "rounds": 5,
        "basis_rounds": 6,
        "power_rounds": 7,
        "tolerance": 0.2,
        "separation": 1,
        "cov_low": 0.5,
        "cov_high": 2.0,
        "update": "fedprox",
        "step": 0.1,
        "local_steps": 2,
        "refine_rounds": 9,
        "membership": "soft",
        "start": (0.0, 1.5),
    }
    assert settings.local_update == FedProx(0.1)
    assert not settings.hard


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[paper]\nseparation = 1\nn_anchor = 3", "unknown key 'n_anchor'; did you mean 'n_anchors'"),
        ("[papers]\nseparation = 1", "'papers'; did you mean 'paper'"),
        ("[paper]\npairs = 3", "separation is missing"),
        ("[paper]\nseparation = 1\npairs = 2.5", "pairs = 2.5 must be a whole number"),
        ("[paper]\nseparation = 'far'", "separation = 'far' must be a number"),
        ("[paper]\nseparation = -1", "separation = -1 must be a number above 0"),
        ("[paper]\nseparation = 1\nbasis_rounds = 5", "basis_rounds = 5 must be an even number"),
        ("[paper]\nseparation = 1\nupdate = 'sgd'", "update = 'sgd' must be 'fedavg' or 'fedprox'"),
        ("[paper]\nseparation = 1\ncov_low = 3.0\ncov_high = 2.0", "cov_low = 3 is above cov_high = 2"),
        ("[paper]\nseparation = 1\nstart = 'zero'", "start = 'zero' must be a list of numbers"),
        ("[paper", "not valid TOML"),
    ],
)
def test_bad_configs_are_refused_by_name(tmp_path, text, message):
    path = tmp_path / "paper.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=rf"paper.toml: .*{message}"):
        read_config(path, "paper")


def test_a_missing_config_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="no such file"):
        read_config(tmp_path / "none.toml", "paper")


def test_defaults_that_depend_on_the_data_are_filled_in():
    settings = PaperSettings(separation=1).completed(3, 1000, 10)
    assert settings.basis_rounds == 28  # 3 ln(10 000) = 27.6, rounded up to an even number
    assert settings.power_rounds == 19
    assert settings.local_update == FedAvg(0.03, 5)
    assert PaperSettings(separation=1, basis_rounds=4).completed(3, 1000, 10).basis_rounds == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[auto]\nnoise = 'loud'", "noise = 'loud' must be 'own' or 'shared'"),
        ("[auto]\nmax_clusters = 0", "max_clusters = 0 must be a whole number, 1 or more"),
        ("[auto]\nupdate = 'fedavg'", "needs a step"),
        ("[auto]\nstart = [[1, 'a']]", "must be a list of numbers, or one such list for each kind"),
        ("[auto]\nclusters = 3", "unknown key 'clusters'; did you mean 'max_clusters'"),
    ],
)
def test_bad_auto_tables_are_refused_by_name(tmp_path, text, message):
    path = tmp_path / "auto.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=rf"auto.toml: \[auto\] .*{message}"):
        read_config(path, "auto")


def test_the_auto_table_may_be_empty(tmp_path):
    path = tmp_path / "auto.toml"
    path.write_text("")
    assert read_config(path, "auto") == AutoSettings()


def test_settings_from_python_are_plain_or_refused():
    made = AutoSettings(max_clusters=np.int64(4), step=np.float32(0.5), start=np.zeros((2, 3)))
    assert json.dumps(dataclasses.asdict(made))
    assert made == AutoSettings(max_clusters=4, step=0.5, start=((0.0,) * 3,) * 2)
    assert PaperSettings(separation=1, start=np.ones(2)).start == (1.0, 1.0)
    for wrong in ({"max_clusters": 3.5}, {"max_clusters": "4"}, {"max_clusters": True}, {"step": "1"}, {"start": 1.0}):
        with pytest.raises(SettingsError, match=r"must be a (whole number|number|list of numbers)"):
            AutoSettings(**wrong)
    with pytest.raises(SettingsError, match="separation = '1' must be a number"):
        PaperSettings(separation="1")


def test_settings_that_do_not_go_together():
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=True, membership="hard")
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=True, update="fedprox")
    with pytest.raises(SettingsError, match="personal"):
        AutoSettings(personal=1)
    with pytest.raises(SettingsError, match="recipe='auto'"):
        MixedRegressor(2, recipe="paper", personal=True).fit(np.eye(4), np.arange(4.0), groups=[0, 0, 1, 1])
