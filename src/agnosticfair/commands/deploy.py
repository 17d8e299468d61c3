"""``agnosticfair deploy`` and ``site``: real sites, from a folder that a person can read."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.rows import with_subgroup_set
from agnosticfair.errors import SettingsError, plain
from agnosticfair.settings import DEFAULT, from_config, to_config

EPILOG = (
    "Example: agnosticfair deploy init bank --sites north=north.csv,south=south.csv "
    "--target income --sensitive-features sex"
)
ROUND = (
    "sums",
    "subgroup_sums",
    "trials",
    "average",
    "train",
    "private_gradients",
)
"""The steps of which every round has one."""
NO_BINS = (
    "without a schema sites under masks answer for no bins of few rows, so the learner is 'linear': give --schema for "
    "additive models and trees."
)
NOTES = {
    "shows_rows": "the kernels' centres are rows of the sites, without label and group, seen by all (shows-rows)",
    "shares_site_totals": "totals have a block for each site, which shows its own sums (shares-site-totals)",
    "shares_cluster_means": "means of the rows nearest to a centre are seen by all (shares-cluster-means)",
}
"""What sites consent to for a method, in words."""
ALARM = 3
"""The exit code of 'deploy status' where something wants attention."""

deploy = typer.Typer(
    help="Train over real sites: each has its own file, and only messages travel.",
    no_args_is_help=True,
)


@deploy.command(epilog=EPILOG)
@options.with_settings()
def init(
    folder: Annotated[Path, Argument(help="A new folder.")],
    sites: Annotated[str, Option(help="NAME=FILE of each site, with commas between.")],
    target: options.Target,
    sensitive_features: options.SensitiveFeatures,
    numeric: options.Numeric = None,
    categorical: options.Categorical = None,
    drop: options.Drop = None,
    positive: Annotated[str, Option(help="The label that counts as 1.")] = "",
    method: options.MethodName = DEFAULT,
    settings: options.Settings = options.NONE,
    limit: options.Limit = None,
    confidence: options.LimitConfidence = 0.95,
    precision: options.LimitPrecision = 0.1,
    seed: options.Seed = 0,
    on_failure: Annotated[str, Option(help="wait, stop or drop.")] = "wait",
    deadline: Annotated[float, Option(help="Seconds a site has for an answer.")] = 120.0,
    min_sites: Annotated[
        int | None, Option(help="Sites a model needs: all, or with drop over half.")
    ] = None,
    min_rows: Annotated[int, Option(help="Rows per group, or a site does not answer.")] = 10,
    secure: Annotated[
        bool,
        Option(
            "--secure/--plain", help="Mask every site's sums: the coordinator sees totals only."
        ),
    ] = True,
    schema: options.SchemaFile = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = 1e-5,
    site_rows: options.SiteRows = 0,
    relays: Annotated[
        str, Option(help="RELAY=HOST:PORT of each relay; its sites are named NAME@RELAY.")
    ] = "",
    host: Annotated[str, Option(help="The coordinator's address.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Its port for sites, open while a run goes on.")] = 8000,
) -> None:
    """Write a folder with TLS certificates for a test, a key pair and a file per site, and start scripts."""
    from agnosticfair.auditing.limit import check_certified_limit, within
    from agnosticfair.data.files import Roles
    from agnosticfair.data.schema import load_schema
    from agnosticfair.deploy.folder import Federation, write_folder
    from agnosticfair.methods import method as build_method
    from agnosticfair.privacy.fit import Budget, private_method
    from agnosticfair.protocol.faults import policy
    from agnosticfair.server.plan import consents

    chosen = build_method(method, **settings)
    if limit is not None:
        check_certified_limit(
            limit, confidence, precision, epsilon=epsilon, drop=on_failure == "drop"
        )
        chosen = build_method(within(build_method(method), settings.get("tau")), **settings)
    if "network" in settings:
        from agnosticfair.networks import factory

        factory(settings["network"])  # refused now, as are the next, rather than at the first run
    policy(on_failure)
    kinds = {"numeric": numeric, "categorical": categorical, "drop": drop}
    columns: dict[str, Any] = {k: tuple(v or ()) for k, v in kinds.items()}
    roles = with_subgroup_set(Roles(target, tuple(sensitive_features), **columns), chosen)
    if chosen.rule is not None and secure and schema is None and "learner" not in settings:
        settings = {**settings, "learner": "linear"}
        print(f"Note: {NO_BINS}")
    run = {"method": chosen.name, "seed": seed, "positive": positive, "deadline": deadline}
    run |= {"on-failure": on_failure, **to_config(settings)}
    if min_sites is not None:
        run["min-sites"] = min_sites
    if limit is not None:
        run |= {"limit": limit, "confidence": confidence, "precision": precision}
    for need in sorted(consents(chosen) if epsilon is None else ()):
        print(f"Note: {NOTES[need]}; the sites' files consent, and their people may take it back.")
    if epsilon is not None:
        private_method(chosen)
        Budget(epsilon, delta, max_rows=site_rows)
        run |= {"epsilon": epsilon, "delta": delta, "site-rows": site_rows}
    agreed = "" if schema is None else json.dumps(load_schema(schema).to_json(), indent=1) + "\n"
    places = {key: _place(key, place) for key, place in _named(relays, "--relays").items()}
    sites_of = (_sites(sites), roles, run, host, port, min_rows, secure, agreed, places)
    write_folder(folder, Federation(*sites_of))
    print(f"Written: {folder}. Start the sites, each in a terminal of its own:")
    for file in sorted(folder.rglob("sites/*.toml")):
        print(f"  agnosticfair deploy {'relay' if file.stem in places else 'site'} {file}")
    print(f"then train:\n  agnosticfair deploy run {folder}")


Folder = Annotated[Path, Argument(help="A folder written by 'deploy init'.")]


@deploy.command(epilog="Example: agnosticfair deploy run bank")
def run(
    folder: Folder,
    timeout: Annotated[
        float, Option(help="Most seconds for the run; then it is stopped.")
    ] = 3600.0,
    as_json: options.Json = False,
) -> None:
    """Open the door to the sites, train, and leave model, history and certificate.

    Ctrl-C or 'deploy stop' ends it; the next run goes on from its checkpoint, state/checkpoint
    (with --limit or --epsilon it begins anew; so does any run once that folder is removed).
    """
    from agnosticfair.commands.output import progress, round_words
    from agnosticfair.deploy.folder import read_config
    from agnosticfair.deploy.runner import Notify, run_federation
    from agnosticfair.methods import method as build_method

    config = read_config(folder)
    chosen = build_method(str(config["method"]), **from_config(config))
    max_rounds = (
        chosen.max_rounds if chosen.rule is None else 0
    )  # learners have rounds of their own
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with progress(max_rounds, "rounds", at_most=True) as advance:

        def on_round(seen: dict[str, Any]) -> None:
            advance(round_words(seen["round"]))

        try:
            out = run_federation(folder, Notify(on_round, _trouble), timeout)
        except KeyboardInterrupt:
            at = str(config["checkpoint"])
            on = f"goes on from its checkpoint ({at})" if any(Path(at).glob("*")) else "begins anew"
            print(f"The run is stopped; the next one {on}.")
            raise typer.Exit(130) from None
    results = {**json.loads((out / "history.json").read_text()), "folder": str(out)}
    if as_json:
        return print(json.dumps(results, indent=1))
    return _show(results)


def _trouble(sentence: str) -> None:
    print("Note:", plain(sentence), file=sys.stderr, flush=True)


@deploy.command(epilog="Example: agnosticfair deploy site north.toml")
def site(
    file: Annotated[Path, Argument(help="The site's file, as 'deploy init' wrote it.")],
) -> None:
    """Run a site: it answers the coordinator's requests, and opens no port."""
    from agnosticfair.deploy.node import serve_site

    serve_site(file)


@deploy.command(epilog="Example: agnosticfair deploy relay bank/sites/west.toml")
def relay(
    file: Annotated[Path, Argument(help="The relay's file, as 'deploy init --relays' wrote it.")],
) -> None:
    """Run a relay: to the coordinator one site, whose answer is the sum over the relay's own sites."""
    from agnosticfair.deploy.relay import serve_relay

    serve_relay(file)


@deploy.command(epilog="Example: agnosticfair deploy stop bank")
def stop(folder: Folder) -> None:
    """Stop the run that goes on; the next one goes on from state/checkpoint, if it has left one."""
    from agnosticfair.deploy.folder import read_settings
    from agnosticfair.deploy.runner import stop as end

    stopped = end(read_settings(folder).folder)
    print("The run is told to stop." if stopped else "There is no run to stop.")


@deploy.command(epilog="Example: agnosticfair deploy check bank")
def check(
    folder: Folder,
    timeout: Annotated[float, Option(help="Most seconds to wait for the sites.")] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Ask every site who it is and what columns and groups it has: keys, versions, schema, least rows."""
    from agnosticfair.commands.output import cell, grid, show
    from agnosticfair.deploy.runner import Notify, run_federation

    out = run_federation(folder, Notify(on_trouble=_trouble), timeout, check=True)
    sites = json.loads((out / "check.json").read_text())["sites"]
    if as_json:
        return print(json.dumps(sites, indent=1))
    header = ("site", "rows", "agnosticfair", "app", "python")
    lines = [
        (
            key,
            "masked" if about["rows"] is None else cell(about["rows"]),
            *(dict(about.get("versions") or {}).get(k, "?") for k in header[2:]),
        )
        for key, about in sites.items()
    ]
    show(grid("The sites", header, lines))
    return print("All sites are connected, and their files fit together.")


@deploy.command(epilog="Example: agnosticfair deploy upgrade bank")
def upgrade(
    place: Annotated[Path, Argument(help="A folder of 'deploy init', or the one file of a site.")],
) -> None:
    """Write the files of sites anew for the installed version, and print the app's hash.

    What a site's people decided stays. 'deploy check' shows every site's version and hash.
    """
    from agnosticfair.deploy import admin
    from agnosticfair.deploy.site import versions

    for path, lost in admin.upgrade(place).items():
        unknown = f" without what this version does not know: {', '.join(lost)}" if lost else ""
        print(f"Written anew: {path}{unknown}")
    print("This is agnosticfair {agnosticfair}, its app's hash {app}.".format(**versions()))


@deploy.command(epilog="Example: agnosticfair deploy status bank")
def status(folder: Folder, as_json: options.Json = False) -> None:
    """Show in a few lines what goes on, and what wants attention.

    Exit code 3 where something does.
    """
    from agnosticfair.deploy.admin import status as look

    report = look(folder)
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        _show_status(report)
    raise typer.Exit(ALARM if report["alarms"] else 0)


def _show_status(report: Mapping[str, Any]) -> None:
    print("ATTENTION" if report["alarms"] else "OK")
    for alarm in report["alarms"]:
        print(f"  {plain(alarm)}")
    sites = report["sites"]
    connected = sum(why == "connected" for why in sites.values())
    if report["running"]:
        age = time.time() - (report["began"] or time.time())
        print(
            f"Run {report['run']}: round {(report['round'] or {}).get('round', 0)}, {connected} of {len(sites)} sites "
            f"connected, {age:.0f} s so far."
        )
    elif report["run"]:
        print(
            f"No run goes on; run {report['run']} {'is done' if report['ended'] == 'well' else 'failed'}."
        )
    else:
        print("There was no run yet.")
    print(f"TLS certificate: good until {report['tls_ends'][:10]}.")


SiteName = Annotated[str, Argument(help="The site's name.")]


@deploy.command("add-site", epilog="Example: agnosticfair deploy add-site bank west=west.csv")
def add_site(
    folder: Folder, site: Annotated[str, Argument(help="NAME=FILE of the new site.")]
) -> None:
    """Let another site take part from the next run on."""
    from agnosticfair.deploy import admin

    ((key, file),) = _sites(site).items()
    admin.add_site(folder, key, file)
    print(
        f"Written: keys/{key} and the site's file: agnosticfair deploy site {folder}/sites/{key}.toml"
    )


@deploy.command("remove-site", epilog="Example: agnosticfair deploy remove-site bank west")
def remove_site(folder: Folder, site: SiteName) -> None:
    """Let a site take no part any more; its key is refused from now on."""
    from agnosticfair.deploy import admin

    admin.remove_site(folder, site)
    print(f"Site {site!r} is removed.")


@deploy.command("rotate-key", epilog="Example: agnosticfair deploy rotate-key bank north")
def rotate_key(
    folder: Folder,
    site: SiteName,
    public: Annotated[
        Path | None, Option(help="The site's new public key; else a new pair is made here.")
    ] = None,
) -> None:
    """Give a site another key; the old one is refused from now on."""
    from agnosticfair.deploy import admin

    admin.rotate_key(folder, site, public)
    print(f"Site {site!r} has a new key; start the site again.")


@deploy.command(epilog="Example: agnosticfair deploy renew bank")
def renew(folder: Folder) -> None:
    """Make a new TLS certificate of the server, by the authority in the folder."""
    from agnosticfair.deploy import admin

    end = admin.renew(folder)
    print(f"The new TLS certificate is good until {end:%Y-%m-%d}; the next run has it.")


def _show(results: dict[str, Any]) -> None:
    """The rounds and their bytes, what went wrong on the way, and where the results are."""
    from agnosticfair.commands.output import cell, grid, show

    rounds = [t for t in results["traffic"] if t["step"] in ROUND]
    lines = []
    for entry in results["history"]:
        bytes_of = [t for t in rounds if t["round"] == entry["round"]]
        size = max((t["sent"] + t["received"] for t in bytes_of), default=None)
        loss = entry.get("loss", entry.get("held_out"))  # a learner's is out of fold
        values = (entry["round"], loss, entry.get("worst"), entry.get("accuracy"), size)
        lines.append([cell(value) for value in values])
    header = ("round", "loss", "worst difference", "accuracy", "bytes per site")
    show(grid(f"Run {results['run']}", header, lines))
    for event in results["events"]:
        print("Note:", ", ".join(f"{key} {cell(value)}" for key, value in event.items()))
    print(
        f"\nIt ended as {results['outcome']!r} after {results['rounds']} rounds, {results['seconds']:.0f} s."
    )
    if results.get("certificate"):
        print(results["certificate"])
    print(f"Written: model.safetensors, history.json and certificate.json in {results['folder']}")


def _sites(text: str) -> dict[str, Path]:
    """Sites from NAME=FILE texts; the files may lie on the sites' own machines.

    >>> _sites("north=a.csv, south=b.csv")
    {'north': PosixPath('a.csv'), 'south': PosixPath('b.csv')}
    """
    return {key: Path(file) for key, file in _named(text, "--sites").items()}


def _named(text: str, option: str) -> dict[str, str]:
    """Values by name, as an option has them: NAME=VALUE with commas between."""
    values: dict[str, str] = {}
    for name in text.split(",") if text else ():
        key, sign, value = name.strip().partition("=")
        if not (key and sign and value) or key in values:
            raise SettingsError(f"{option} has {name.strip()!r}: write NAME=VALUE, each name once")
        values[key] = value
    return values


def _place(relay: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdigit()):
        raise SettingsError(f"relay {relay!r} is at {text!r}: write HOST:PORT")
    return host, int(port)


# --- for a site's own people ---

SITE_EPILOG = "Example: agnosticfair site policy bank/sites/north.toml"

site_app = typer.Typer(
    help="For a site's own people: what it answers, and how it is.", no_args_is_help=True
)


@site_app.command("status", epilog="Example: agnosticfair site status bank/sites/north.toml")
def site_status(
    file: Annotated[Path, Argument(help="The site's one file, as 'deploy init' wrote it.")],
) -> None:
    """Say whether the site's process is alive, and in which run; exit code 3 where it is not."""
    from agnosticfair.deploy.node import read_site
    from agnosticfair.deploy.node import status as look

    alive, words = look(read_site(file))
    print(words[0].upper() + words[1:] + ".")
    raise typer.Exit(0 if alive else ALARM)


@site_app.command(epilog=SITE_EPILOG)
def policy(
    file: Annotated[Path, Argument(help="The site's one file, as 'deploy init' wrote it.")],
) -> None:
    """Print in words what a site answers and what it refuses, for its people to sign off."""
    from agnosticfair.deploy.node import read_site
    from agnosticfair.deploy.site import policy_of, site_of
    from agnosticfair.site.policy import words

    site_policy = policy_of(site_of(read_site(file).config))
    answered, refused = words(site_policy)
    print(f"Site {site_policy.site!r} answers:")
    for sentence in answered:
        print(f"  - {sentence}")
    print("It refuses:")
    for sentence in refused:
        print(f"  - {sentence}")
