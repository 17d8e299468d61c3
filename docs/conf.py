"""The documentation site: `sphinx-build -W docs build/docs`. Nothing in it is fetched from elsewhere."""

import re
from importlib.metadata import version as installed

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

project, author = "agnosticfair", "the agnosticfair authors"
version = release = installed("agnosticfair")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["figures"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "agnosticfair"
html_show_sphinx = html_copy_source = html_show_copyright = False
html_math_renderer = "mathml"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # in the signature only, as written
add_module_names = False


def mathml(inline):
    """A visitor that writes a formula as MathML, which browsers show without scripts."""

    def visit(translator, node):
        display = "inline" if inline else "block"
        translator.body.append(convert(node.astext(), display=display))
        raise SkipNode

    return visit


def plain(app, what, name, obj, options, lines):
    """Docstrings are plain text with ``code``: what reStructuredText would take as marks is escaped."""
    inside = False
    for k, line in enumerate(lines):
        inside = line.lstrip().startswith(">>>") or (inside and bool(line.strip()))
        if not inside:
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [re.sub(r"([\\*|`])|_(?=\W|$)", r"\\\g<0>", part) for part in parts[::2]]
            lines[k] = "".join(parts)


def setup(app):
    app.add_html_math_renderer("mathml", (mathml(True), None), (mathml(False), None))
    app.connect("autodoc-process-docstring", plain)
