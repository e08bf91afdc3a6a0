"""The example that each command's help gives, and how a person would run it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

from mixfed.cli import app


def leaves(command, name=()):
    if hasattr(command, "commands"):
        for part, inner in command.commands.items():
            yield from leaves(inner, (*name, part))
    else:
        yield name, command


COMMANDS = dict(leaves(app))


def example(command):
    """Give the example in a command's help, as a person would copy it."""
    found = re.findall(r"Example: `([^`]+)`", command.help or "")
    assert len(found) == 1, f"one example for each command: {command.name}"
    return shlex.split(found[0])


def run(arguments, folder):
    """Run a command as a shell would, in a folder."""
    assert arguments[0] == "mixfed"
    command = [sys.executable, "-m", "mixfed", *arguments[1:]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
