"""Kits: what `mixfed federate` makes and refuses before anything is started."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from mixfed.cli import app
from mixfed.core.errors import SettingsError

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: install mixfed[flare]")

from mixfed.federation.flare.jobs import ANSWERER, EXECUTOR
from mixfed.federation.flare.kits import Role, open_kit, open_kits, provision, settle
from mixfed.federation.flare.processes import start
from mixfed.federation.site_file import read_site_file

pytestmark = pytest.mark.flare


def mixfed(*arguments):
    return CliRunner().invoke(app, ["federate", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("federation") / "kits"
    provision(made, ["north", "south"], "fit.example.org", 8123)
    return made


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--sites", "a,a"], "site 'a' is named twice"),
        (["--sites", "a,A"], "is named twice"),
        (["--sites", "a,../b"], "site '../b': a name has 1 to 63 letters"),
        (["--sites", "a,,b"], "site '': a name has"),
        (["--sites", "server"], "site 'server': this name is taken"),
        (["--sites", "a", "--server", "no host"], "server 'no host': give a host name or an IPv4 address"),
        (["--sites", "a", "--port", 70000], "port 70000: give one from 1 to 65535"),
        (["--sites", "a", "--days", 400], "days 400: certificates last from 1 to 360 days"),
    ],
)
def test_what_cannot_be_a_federation_is_refused_in_one_line(tmp_path, options, complaint):
    done = mixfed("init", tmp_path / "new", *options)
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_in_use_is_left_alone(folder):
    done = mixfed("init", folder, "--sites", "a")
    assert done.exit_code == 2
    assert "there is something already" in done.stderr


def test_every_party_has_its_kit(folder):
    kits = {kit.path.name: kit for kit in open_kits(folder)}
    assert {name: kit.role for name, kit in kits.items()} == {
        "admin": Role.ADMIN, "north": Role.SITE, "server": Role.SERVER, "south": Role.SITE,
    }  # fmt: skip
    assert {kit.address for kit in kits.values()} == {"fit.example.org:8123"}
    assert kits["north"].name == "north"
    assert kits["admin"].sites() == ("north", "south")
    assert all("fit.example.org" in (kit.path / "README.md").read_text() for kit in kits.values())
    assert all(key.stat().st_mode & 0o077 == 0 for key in folder.glob("*/startup/*.key"))


def test_the_authority_keeps_no_key_of_a_party(folder):
    kept = json.loads((folder / "authority" / "cert.json").read_text())
    assert sorted(kept) == ["root_cert", "root_pri_key"]
    assert (folder / "authority").stat().st_mode & 0o077 == 0


def test_a_sites_settings_are_ready_to_be_filled_in(folder, tmp_path):
    about = read_site_file(open_kit(folder / "north").settings)
    assert (about.min_clients, about.anchors, about.pseudonyms) == (10, "single", True)
    done = mixfed("up", folder / "north")
    assert done.exit_code == 2
    assert "table.parquet: no such file" in done.stderr


def test_a_site_lets_others_submit_jobs_of_ours_and_nothing_else(folder):
    local = folder / "north" / "local"
    rights = json.loads((local / "authorization.json").read_text())["permissions"]
    assert list(rights) == ["lead"]
    assert [right for right, who in rights["lead"].items() if who != "none"] == ["submit_job"]
    resources = json.loads((local / "resources.json").read_text())
    assert resources["class_allow_list"] == [EXECUTOR, ANSWERER]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert json.loads((folder / "north" / "startup" / "fed_client.json").read_text())["require_signed_jobs"] is True


def test_a_kit_can_be_moved(folder, tmp_path):
    shutil.copytree(folder / "server", tmp_path / "moved")
    settle(open_kit(tmp_path / "moved"))
    text = (tmp_path / "moved" / "local" / "resources.json").read_text()
    assert str(tmp_path / "moved") in text
    assert str(folder) not in text
    assert "/tmp/nvflare" not in text


def test_a_path_that_the_engine_would_take_apart_is_refused(folder, tmp_path):
    shutil.copytree(folder / "server", tmp_path / "with space")
    with pytest.raises(SettingsError, match="without spaces"):
        start(open_kit(tmp_path / "with space"))


@pytest.mark.parametrize(
    "command", [["up", "admin"], ["submit", "north", "--out", "x"], ["status", "server"], ["down", ""]]
)
def test_the_wrong_kit_is_refused_in_one_line(folder, command, tmp_path):
    place = folder / command[1] if command[1] else tmp_path
    done = mixfed(command[0], place, *command[2:])
    assert done.exit_code == 2
    assert "this is the kit of" in done.stderr or "this is not a kit" in done.stderr
    assert done.stderr.count("\n") == 1
