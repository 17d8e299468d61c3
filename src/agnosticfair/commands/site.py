"""``agnosticfair site``: what a site's own people want to know of it, from its one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

EPILOG = "Example: agnosticfair site policy bank/sites/north.toml"

site = typer.Typer(help="For a site's own people: what it answers.", no_args_is_help=True)


@site.callback()
def _site() -> None:
    """For a site's own people."""


@site.command(epilog=EPILOG)
def policy(
    file: Annotated[Path, Argument(help="The site's one file, as 'deploy init' wrote it.")],
) -> None:
    """Print in words what a site answers and what it refuses, for its people to sign off."""
    from agnosticfair.flower.node import read_site
    from agnosticfair.flower.site import policy_of, site_of
    from agnosticfair.site.policy import words

    found = policy_of(site_of(read_site(file).config))
    answered, refused = words(found)
    print(f"Site {found.site!r} answers:")
    for sentence in answered:
        print(f"  - {sentence}")
    print("It refuses:")
    for sentence in refused:
        print(f"  - {sentence}")
