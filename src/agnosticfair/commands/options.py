"""Options that several commands have, each said once; and names with commas between them, read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option
from typer.models import OptionInfo

from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.settings import SETTINGS, Reach, Setting

if TYPE_CHECKING:
    from agnosticfair.data.columns import Roles
    from agnosticfair.data.reading import Dialect
else:
    Roles = Dialect = Any  # what reads files is imported when a command runs

Columns = list[str] | None
Files = Annotated[list[Path], Argument(help="A CSV or Parquet file per client, or one for all.")]
ModelFile = Annotated[Path, Argument(help="A model written by 'fit'.")]
Target = Annotated[str, Option(help="Column with the label.")]
SensitiveFeatures = Annotated[
    list[str], Option(help="Column with the groups; may be repeated, each is protected.")
]
Client = Annotated[str | None, Option(help="Column that names the client, in one file for all.")]
Numeric = Annotated[Columns, Option(help="Take this column as numbers.")]
Categorical = Annotated[Columns, Option(help="Take this column as categories.")]
Drop = Annotated[Columns, Option(help="Leave this column out.")]
Positive = Annotated[
    str | None, Option(help="The label that counts as 1; by default by what two labels say.")
]
Separator = Annotated[
    str | None, Option(help="Between a CSV file's columns: ',', ';', '|' or tab; else found out.")
]
Encoding = Annotated[
    str | None, Option(help="Of a CSV file: utf-8, latin-1, utf-16; by default found out.")
]
Force = Annotated[bool, Option("--force", help="Write over a file that is not ours.")]
MethodName = Annotated[str, Option(help="See 'agnosticfair methods'.")]
_METRIC = Option(help=f"{', '.join(METRICS)}.")
Metric = Annotated[str | None, _METRIC]
MetricName = Annotated[str, _METRIC]
Intersections = Annotated[bool, Option("--intersections", help=SETTINGS["intersections"].words)]
Seed = Annotated[int, Option(help="Draws the kernels' centres and a network's weights.")]
Limit = Annotated[
    float | None,
    Option(help="Instead of tau: largest difference of decisions, certified for subgroups."),
]
LimitConfidence = Annotated[float, Option(help="Of the limit's certificate.")]
LimitPrecision = Annotated[
    float, Option(help="Subgroups known no better than +- this do not count for the limit.")
]
Settings = Mapping[str, Any]
NONE: Settings = MappingProxyType({})
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
Jobs = Annotated[int | None, Option(help="Processes; by default one per processor.")]
OutFolder = Annotated[Path, Option(help="Folder for the results.")]
SchemaFile = Annotated[Path | None, Option(help="What all agree on: see 'agnosticfair schema'.")]
Epsilon = Annotated[
    float | None, Option(help="Differential privacy of rows: 1 to 10. Needs a schema.")
]
Delta = Annotated[float, Option(help="Of differential privacy.")]
SiteRows = Annotated[
    int, Option(help="Hide whole sites, of at most so many rows each; 0 hides rows.")
]


Command = Callable[..., None]


def example(words: str) -> Callable[[Command], Command]:
    """Gives a command the example that its help ends with; the first word is its name."""

    def shown(command: Command) -> Command:
        vars(command)["example"] = words
        return command

    return shown


def with_settings(*, without: tuple[str, ...] = ()) -> Callable[[Command], Any]:
    """Gives a command an option for every setting, in the place of its parameter ``settings``, which gets those
    that were said."""
    settings = [s for s in SETTINGS.values() if s.option is not None and s.name not in without]

    def settings_of(values: Mapping[str, Any]) -> Settings:
        return {s.name: s.option(values[s.name]) for s in settings if values[s.name] is not None}  # type: ignore[misc]

    return _unfold("settings", [_option(s) for s in settings], settings_of)


def with_roles(command: Command) -> Any:
    """Gives a command the options that say what columns are, in the place of its parameter ``roles``."""

    def stated(
        target: Target,
        sensitive_features: SensitiveFeatures,
        client_column: Client = None,
        numeric: Numeric = None,
        categorical: Categorical = None,
        drop: Drop = None,
    ) -> Roles:
        from agnosticfair.data import columns

        kinds = (tuple(names or ()) for names in (numeric, categorical, drop))
        return columns.Roles(target, tuple(sensitive_features), client_column, *kinds)

    return _with("roles", stated, command)


def with_dialect(command: Command) -> Any:
    """Gives a command the options that say how a CSV file is written, in the place of its parameter ``dialect``."""

    def stated(separator: Separator = None, encoding: Encoding = None) -> Dialect:
        from agnosticfair.data import reading

        return reading.Dialect(separator, encoding)

    return _with("dialect", stated, command)


def _with(name: str, stated: Callable[..., Any], command: Command) -> Any:
    parameters = [*signature(stated, eval_str=True).parameters.values()]
    return _unfold(name, parameters, lambda values: stated(**values))(command)


def _unfold(
    name: str, inner: Iterable[Parameter], gathered: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Command], Any]:
    """Makes a command with its own parameters in the place of the one with this name, which gets them gathered."""

    def derived(command: Command) -> Any:
        @wraps(command)
        def run(*arguments: Any, **values: Any) -> None:
            inner_values = {one.name: values.pop(one.name, one.default) for one in inner}
            command(*arguments, **values, **{name: gathered(inner_values)})

        outer = signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for one in outer.parameters.values():
            parameters += inner if one.name == name else [one]
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
        run.__signature__ = outer.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return derived


def _option(setting: Setting) -> Parameter:
    """A setting as a parameter that typer makes an option of; 'not said' is None."""
    read = setting.option if isinstance(setting.option, type) else str
    words = f"{', '.join(METRICS)}." if setting.name == "metric" else setting.words
    no = f"/--no-{setting.key}" if read is bool else ""
    about = Option(f"--{setting.key}{no}", help=words)
    kind = Annotated[read | None, about]  # type: ignore[valid-type]
    return Parameter(setting.name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


PANELS = {
    "Data": "target sensitive_features client_column numeric categorical drop positive separator encoding "
    "test predictions model trust_code threshold columns mix keep schema "
    "certificate rows sample labels when again",
    "Sites": "state add",
    "Fairness": "taus limit",
    "Set": "depth mixtures confidence precision",
    "Training": "method seed strict checkpoint device secure "
    "epsilon delta ledgers site_rows folds jobs",
    "Output": "out explain as_json force run onnx key page prometheus alert",
}
"""The groups in which a command's help shows its options."""

REACHED = {
    Reach.FAIRNESS: "Fairness",
    Reach.SURROGATE: "Fairness",
    Reach.ADVERSARY: "Set",
    Reach.KERNELS: "Set",
    Reach.SUBGROUPS: "Set",
    Reach.RULE: "Rule",
    Reach.METHOD: "Training",
}
"""The groups of the settings."""


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with its options in the groups of ``PANELS``."""
    places = {name: panel for panel, names in PANELS.items() for name in names.split()}
    places |= {s.name: REACHED[s.reach] for s in SETTINGS.values()}
    hints = get_type_hints(command, include_extras=True)
    for name, hint in hints.items():
        for about in getattr(hint, "__metadata__", ()):
            if isinstance(about, OptionInfo):
                about.rich_help_panel = about.rich_help_panel or places.get(name)
    command.__annotations__ = hints
    return command
