"""A site's file and its secret."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from mixfed import SettingsError
from mixfed.federation import InProcess, Job, conduct, open_site
from mixfed.federation.site_file import _secret


def test_a_secret_is_whole_or_it_is_refused(tmp_path):
    path = tmp_path / "secret"
    made = _secret(path)
    assert len(made) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert _secret(path) == made
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
    for damaged in ("", "zz", made.hex()[:-2]):
        path.write_text(damaged)
        with pytest.raises(SettingsError, match="secret: the secret is damaged: delete it"):
            _secret(path)


def test_a_site_file(small, tmp_path):
    columns = small.columns()
    pq.write_table(__import__("pyarrow").table(columns), tmp_path / "rows.parquet")
    path = tmp_path / "mixfed.toml"
    path.write_text('data = "rows.parquet"\nclient = "client"\ntarget = "y"\nout = "own"\n')
    site = open_site(path)
    assert (site.min_clients, site.anchors, site.columns) == (10, "single", ("client", "y"))
    assert len(site.secret) == 32
    assert open_site(path).secret == site.secret
    assert (tmp_path / "own" / "secret").stat().st_mode & 0o077 == 0
    conduct(InProcess({"a": site}), Job(3), tmp_path / "server")
    log = [json.loads(line) for line in (tmp_path / "own" / "questions.jsonl").read_text().splitlines()]
    assert {"Enrol", "Census", "Project", "MixtureSums", "Conclude"} <= {line["question"] for line in log}
    assert (tmp_path / "own" / "clients.parquet").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('dta = "rows.parquet"', "unknown key 'dta'; did you mean 'data'?"),
        ('client = "c"', "data is missing"),
        ('data = "rows.parquet"\nmin_clients = "ten"', "min_clients = 'ten' must be a whole number"),
        ('data = "rows.parquet"\nmin_clients = 0', "must be 1 or more"),
        ('data = "rows.parquet"\nanchors = "none"', "must be 'single' or 'summed'"),
        ("data = ", "not valid TOML"),
    ],
)
def test_a_site_file_with_a_mistake(tmp_path, text, complaint):
    path = tmp_path / "mixfed.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"mixfed\.toml: ") as error:
        open_site(path)
    assert complaint in str(error.value)
    with pytest.raises(SettingsError, match="no such file"):
        open_site(tmp_path / "none.toml")
