"""Bad input, case by case: one line that names the file, the column and the row, exit code 2, nothing written.

Each case is a name, what to make of a good workspace, the command, and what its line must say.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers.bad_input import COLUMNS, cut, everything_in, fit, good, good_table, model, nothing, pack, text
from helpers.command_line import assert_one_line, mixfed

CASES = {
    # Files.
    "no such file": (nothing, fit("none.csv"), r"none.csv: no such file"),
    "no such parquet file": (nothing, pack("none.parquet"), r"none.parquet: no such file"),
    "empty file": (text("t.csv", ""), fit("t.csv"), r"t.csv: the file is empty"),
    "blank lines only": (text("t.csv", "\n\n\n"), fit("t.csv"), r"t.csv: cannot be read \(no lines\)"),
    "header only": (text("t.csv", "store,price,sales\n"), fit("t.csv"), r"t.csv: no rows: .* names of columns and"),
    "header only, no columns asked": (text("t.csv", "store,sales\n"), "fit t.csv --out out", r"t.csv: no rows"),
    "unknown kind of file": (text("t.json", "{}"), fit("t.json"), r"t.json: unknown kind of file; use one of .parquet"),
    "spreadsheet": (text("t.xlsx", b"PK\3\4"), fit("t.xlsx"), r"t.xlsx: a spreadsheet: save it as CSV"),
    "spreadsheet called csv": (text("t.csv", b"PK\3\4\0\0"), fit("t.csv"), r"t.csv: .* not text but a spreadsheet or"),
    "parquet called csv": (
        lambda work: shutil.copy(work / "good.parquet", work / "t.csv"),
        fit("t.csv"),
        r"t.csv: this is not text but a parquet file: let its name end in .parquet",
    ),
    "bytes called csv": (text("t.csv", b"a,b\n\0\1\2\0"), pack("t.csv"), r"t.csv: this is not text"),
    "folder": (nothing, fit("empty"), r"empty: this folder has no packed table in it: make one with mixfed pack"),
    "folder to pack": (nothing, pack("empty"), r"empty: this is a folder, not a file"),
    "folder to predict": (nothing, "predict result empty --out p.parquet", r"empty: this is a folder, not a file"),
    "garbage called parquet": (
        text("t.parquet", b"garbage" * 50),
        fit("t.parquet"),
        r"t.parquet: cannot be read \(not a parquet file, or the end of it is missing: copy it again",
    ),
    "cut parquet": (cut("t.parquet", "good.parquet"), fit("t.parquet"), r"t.parquet: .*the end of it is missing"),
    "cut gzip": (cut("t.csv.gz", "good.csv.gz"), fit("t.csv.gz"), r"t.csv.gz: .*the end of the file is missing: copy"),
    "cut gzip to pack": (cut("t.csv.gz", "good.csv.gz"), pack("t.csv.gz"), r"the end of the file is missing: copy or"),
    "not gzip": (lambda work: shutil.copy(work / "good.csv", work / "t.csv.gz"), fit("t.csv.gz"), r"not compressed"),
    # Columns.
    "one column": (
        text("t.csv", "store:price:sales\n1:2:3\n"),
        fit("t.csv"),
        r"no column 'store'; .*the only column is 'store:price:sales': are the columns parted by something else than",
    ),
    "one column, none asked": (
        text("t.csv", "store price sales\n1 2 3\n"),
        "fit t.csv --out out",
        r"t.csv: the only column is 'store price sales': are the columns parted by something else than commas",
    ),
    "misspelt target": (
        nothing,
        "fit good.csv --client store --target sale --out out",
        r"good.csv: no column 'sale'; did you mean 'sales'\? the columns are store, price, size, sales",
    ),
    "misspelt client": (
        nothing,
        "pack good.parquet --client Stores --target sales --out out",
        r"good.parquet: no column 'Stores'; did you mean 'store'\?",
    ),
    "misspelt feature": (nothing, fit("good.csv", "--features prize --out out"), r"'prize'; did you mean 'price'\?"),
    "no names": (nothing, fit("good.csv", "--features , --out out"), r"',': give names, with commas between them"),
    "same name twice": (text("t.csv", "store,x,x,sales\n1,2,3,4\n"), fit("t.csv"), r"t.csv: column 'x' occurs twice"),
    "client is target": (nothing, "fit good.csv --client store --target store --out out", r"both the client and"),
    "no feature left": (
        text("t.csv", "store,town,sales\n1,Ghent,3\n1,Bruges,4\n"),
        fit("t.csv"),
        r"t.csv: no numeric column is left to be a feature",
    ),
    "words as a feature": (
        good("t.csv", town=["Ghent", "Bruges"] * 60),
        fit("t.csv", "--features price,town --out out"),
        r"t.csv: column 'town' holds words \('Ghent' in row 1 \(index 0\)\), not numbers: leave it out, or make col",
    ),
    "words as the target": (
        good("t.parquet", sales=["low", "high"] * 60),
        fit("t.parquet"),
        r"t.parquet: column 'sales' holds words \('low' in row 1 \(index 0\)\), not numbers: choose another target",
    ),
    "dates as the target": (good("t.csv", sales="2024-05-01"), fit("t.csv"), r"'sales' holds dates, which cannot be"),
    # Values.
    "word in a column of numbers": (
        good("t.csv", price=(17, "oops")),
        fit("t.csv"),
        r"t.csv: column 'price' has 'oops' in row 18 \(index 17\), which is not a number: mend it, or leave the column",
    ),
    "word in the target": (
        good("t.csv", sales=(99, "n.a.")),
        pack("t.csv"),
        r"'sales' has 'n.a.' in row 100 \(.*: mend it or drop the row\n",
    ),
    "thousands": (
        text("t.csv", "store;price;sales\n1;1,234;3\n1;5,678;4\n"),
        fit("t.csv", "--features price --out out"),
        r"t.csv: column 'price' has '1,234' in row 1 \(index 0\), .*: write numbers like 1234.5",
    ),
    "missing value": (
        good("t.csv", price=(16, np.nan)),
        fit("t.csv"),
        r"t.csv: column 'price' has a missing value in row 17 \(index 16\): fill it in or drop the row, or leave the c",
    ),
    "missing values": (
        good("t.parquet", price=([16, 20, 99], np.nan)),
        fit("t.parquet"),
        r"has a missing value in row 17 \(index 16\) and 2 more of the 120 rows: fill them in or drop the rows, or lea",
    ),
    "missing target": (good("t.csv", sales=(3, np.nan)), pack("t.csv"), r"'sales' has a missing .* or drop the row\n"),
    "missing client": (good("t.csv", store=(3, np.nan)), fit("t.csv"), r"column 'store': no client id in row 4 \(inde"),
    "all missing, asked for": (
        good("t.csv", price=np.nan),
        fit("t.csv", "--features price,size --out out"),
        r"t.csv: column 'price' is empty: leave it out of the features",
    ),
    "all missing target": (good("t.parquet", sales=np.nan), fit("t.parquet"), r"'sales' is empty: choose another tar"),
    "infinite value": (
        good("t.parquet", size=(5, np.inf)),
        fit("t.parquet"),
        r"t.parquet: column 'size' has an infinite value in row 6 \(index 5\): fill it in or drop the row",
    ),
    "row with too many fields": (
        text("t.csv", "store,price,sales\n1,2,3\n1,2,3,4\n"),
        fit("t.csv"),
        r"t.csv: row 2 \(index 1\) has 4 fields, the header has 3 \('1,2,3,4'\): look for a separator too many",
    ),
    "row with too few fields": (text("t.csv", "store,price,sales\n1,2,3\n1,2\n"), pack("t.csv"), r"row 2 .* 2 fields"),
    # Outputs.
    "output below a file": (nothing, fit("good.csv", "--out file/out"), r"--out file/out: Not a directory: .*file is"),
    "output is a file": (nothing, fit("good.csv", "--out file"), r"--out file: File exists, and it is not a folder"),
    "output in /proc": (nothing, fit("good.csv", "--out /proc/out"), r"/proc/out: No such file or directory"),
    "output is the packed table": (
        nothing,
        "fit packed --out packed",
        r"--out packed: this is the folder that is read",
    ),
    "no folder for predictions": (
        nothing,
        "predict result good.csv --out none/p.parquet",
        r"--out none/p.parquet: there is no folder none: make it, or choose another",
    ),
    "predictions over the table": (
        nothing,
        "predict result good.parquet --out good.parquet",
        r"--out good.parquet: this file is to be read: choose another name",
    ),
    "predictions over the clients": (
        nothing,
        "predict result good.parquet --out result/clients.parquet",
        r"this file is to be read",
    ),
    "kinds over the table": (nothing, "assign result good.parquet --out good.parquet", r"this file is to be read"),
    "predictions in csv": (
        nothing,
        "predict result good.csv --out p.txt",
        r"--out p.txt: .* must end in .parquet or .csv",
    ),
    "predictions in a folder": (
        lambda work: (work / "d.parquet").mkdir(),
        "predict result good.csv --out d.parquet",
        r"--out d.parquet: this is a folder: give the name of a file",
    ),
    "packed over something else": (nothing, f"pack good.csv {COLUMNS} --out result", r"result: .* something else here"),
    "packed over the table": (nothing, f"pack good.csv {COLUMNS} --out good.csv", r"good.csv: .* something else here"),
    "no folder for a card": (
        nothing,
        fit("good.csv", "--clusters 1 --out out --card none/card.md"),
        r"--card none/card.md: there is no folder none: make it, or choose another",
    ),
    "no folder for a report": (
        nothing,
        "report result --out none/r.html",
        r"--out none/r.html: there is no folder none",
    ),
    "coefficients over the table": (
        nothing,
        fit("good.csv", "--clusters 1 --out out --coef good.csv"),
        r"--coef good.csv: this file is to be read: choose another name",
    ),
    "federation below a file": (
        nothing,
        f"federate local good.csv {COLUMNS} --out file/out",
        r"Not a directory: .*file",
    ),
    # Models.
    "no model": (
        nothing,
        "predict empty good.csv --out p.parquet",
        r"empty/model.json: no model here .*: give the fol",
    ),
    "newer model": (
        model(format="mixfed/3"),
        "predict result good.csv --out p.parquet",
        r"result/model.json: the format is 'mixfed/3', this version of mixfed reads 'mixfed/2' and 'mixfed/1': upd",
    ),
    "damaged model": (
        cut("result/model.json", "result/model.json"),
        "theory result",
        r"result/model.json: not a model file of mixfed, or damaged: fit again",
    ),
    "model without its parts": (
        model(coef=[[1.0]]),
        "theory result",
        r"the model file is damaged \(coef is not .*: fit",
    ),
    "table without a feature": (
        lambda work: good_table().drop(columns="size").to_csv(work / "t.csv", index=False),
        "predict result t.csv --out p.parquet",
        r"t.csv: no column 'size'; the columns are store, price, sales",
    ),
    "clients of another model": (
        lambda work: shutil.copy(work / "good.parquet", work / "result" / "clients.parquet"),
        "predict result good.csv --out p.parquet",
        r"result/clients.parquet: it has no column 'client', so it does not belong to the model beside it",
    ),
    # Settings.
    "no kinds": (nothing, fit("good.csv", "--clusters 0 --out out"), r"--clusters 0: give auto or a whole number, 1"),
    "more kinds than clients": (
        nothing,
        fit("good.csv", "--clusters 31 --out out"),
        r"31, but the table has no more than 30 clients: ask for",
    ),
    "bad TOML": (text("c.toml", "[auto"), fit("good.csv", "--config c.toml --out out"), r"c.toml: not valid TOML"),
    "no TOML": (nothing, fit("good.csv", "--config none.toml --out out"), r"none.toml: no such file or directory"),
    "unknown key": (
        text("c.toml", "[auto]\nmembershp = 'soft'\n"),
        fit("good.csv", "--config c.toml --out out"),
        r"c.toml: \[auto\] unknown key 'membershp'; did you mean 'membership'\?",
    ),
    # Usage.
    "unknown loss": (
        nothing,
        fit("good.csv", "--loss cubic --out out"),
        r"'--loss'.*: 'cubic' is not .*; see .*fit --help",
    ),
    "unknown recipe": (
        nothing,
        fit("good.csv", "--recipe x --out out"),
        r"invalid value for '--recipe': 'x' is not one",
    ),
    "unknown option": (
        nothing,
        fit("good.csv", "--cluster 2 --out o"),
        r"no such option.*--cluster.* did you mean .*--cl",
    ),
    "no output": (nothing, "assign result good.csv", r"missing option '--out'; see .*assign --help"),
    "no data": (nothing, "fit", r"missing argument 'DATA'; see .*fit --help"),
    "unknown command": (nothing, "fti good.csv", r"no such command 'fti'; did you mean 'fit'\? see .* --help"),
    "unknown subcommand": (
        nothing,
        "federate lcoal",
        r"no such command 'lcoal'; did you mean 'local'\? see .*federate",
    ),
    "too many arguments": (nothing, "demo now", r"got unexpected extra argument \(now\); see .*demo --help"),
    "seed in words": (nothing, fit("good.csv", "--seed one --out out"), r"invalid value for '--seed': 'one' is not a"),
    "no engine option": (nothing, "federate local good.csv --sites x", r"invalid value for '--sites': 'x' is not a"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_line_exit_2_and_nothing_written(work, case):
    make, command, message = CASES[case]
    make(work)
    before = everything_in(work)
    result = mixfed(*command.split())
    assert_one_line(result, message)
    assert everything_in(work) == before


def test_folders_made_for_results_that_there_are_none_of_are_removed(work):
    assert_one_line(mixfed(*fit("good.csv", "--clusters 31 --out new/er/est").split()), "ask for fewer kinds")
    assert not (work / "new").exists()
    assert_one_line(mixfed(*fit("good.csv", "--clusters 31 --out empty").split()), "ask for fewer kinds")
    assert (work / "empty").exists()  # it was there before


def test_one_client_is_fitted_and_doubted(work):
    good_table().assign(store="A").to_csv(work / "t.csv", index=False)
    result = mixfed("fit", "t.csv", *COLUMNS.split(), "--out", "out")
    assert result.exit_code == 0, result.output
    assert "column 'store' has one value only" in " ".join(result.stdout.split())
    model = json.loads((work / "out" / "model.json").read_text())
    assert model["n_clusters"] == 1
    assert any("all rows belong to one client" in warning for warning in model["warnings"])
