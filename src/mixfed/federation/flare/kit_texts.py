"""What is written for people into the kits."""

from __future__ import annotations

SITE_SETTINGS = """\
# The settings of site {name}. This file stays here: neither the server nor another site can read it.
# Paths are relative to this file.

# The table of this site: a .parquet, .csv or .csv.gz file, or a folder of `mixfed pack`.
data = "table.parquet"

# The column that says whose row it is, and the column to explain.
client = "client"
target = "y"

# The columns to explain it with; without this line, every other numeric column. All sites must have the same.
# features = ["a", "b"]

# The site gives no sum over fewer of its clients than these.
min_clients = 10

# Clients with many rows help to find the kinds, by a few numbers that are computed from their rows. "single": they are
# asked for these one by one, and any group of them can be asked for. "summed": clients are not listed, and questions
# are about all of them or a sample. If no site lets its clients answer, the run must have anchors = "summed", too.
anchors = "single"

# The server knows clients by pseudonyms that it cannot trace back to their ids.
pseudonyms = true

# The folder for what is for this site only: the kinds of its clients, and a line for every question it was asked.
out = "result"
"""

_CARE = """\
The certificate and the key in `startup/` are this party's identity. They last {days} days, until {until}; after that,
or if the key gets into other hands, the federation is set up anew. Keep the folder private. It can be moved, and
unpacked anywhere (under a path without spaces).
"""

SERVER_README = (
    """\
# The server of a mixfed federation

Expected under {host}, port {port}, by {count} sites and an administrator. It holds no rows; it sees sums over clients.

    pip install 'mixfed[flare]'
    mixfed federate up .        # starts the server in the background and returns once it listens
    mixfed federate down .      # stops it

{listening}
`console.log` is its log. `runs/` has a folder for each run with its journal, from which `mixfed federate resume` goes
on, and its model. `state/` is what the engine keeps of its jobs.

"""
    + _CARE
)

SITE_README = (
    """\
# Site {name} of a mixfed federation

Rows stay at this site: it answers the server's questions with sums over its clients.

    pip install 'mixfed[flare]'
    edit mixfed.toml            # say where the table is and what may leave the site
    mixfed federate up .        # checks the settings and the table, then starts the site in the background
    mixfed federate down .      # stops it

The site opens no port to the outside: it connects to {host}, port {port}, and must be able to reach it. It can be
started before the server. `console.log` is its log.

What can be done to this site from outside is in `local/`, and the site itself sees to it: it runs the two classes that
answer questions of mixfed, from the mixfed that is installed here; it takes no code; it takes jobs only if the
administrator has signed them; nobody can read its files or logs, stop it or start anything else.

"""
    + _CARE
)

ADMIN_README = (
    """\
# The administrator of a mixfed federation

    pip install 'mixfed[flare]'
    mixfed federate status .                    # which sites are there, and what has been run
    mixfed federate submit . --out result       # fit across all sites that are there, and fetch the model
    mixfed federate resume . --out result       # go on with a run that was cut off

Needs to reach the server at {host}, port {port}. `runs/` has what was asked for in each run.

"""
    + _CARE
)

LOOPBACK = "It listens on this machine only, for it was set up for localhost."
OPEN = "It listens on all interfaces of its machine: open port {port} for the sites and the administrator."
