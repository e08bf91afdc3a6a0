"""``python -m mixfed`` is the command ``mixfed``."""

from .cli import main

main()
