"""The documentation site: `sphinx-build -W docs build/docs`. Nothing in it is fetched from elsewhere."""

import re
from importlib.metadata import version as installed

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

project, author = "agnosticfair", "the agnosticfair authors"
version = release = installed("agnosticfair")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_google_docstring = False
napoleon_use_rtype = False
exclude_patterns = ["figures"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "agnosticfair"
html_show_sphinx = html_copy_source = html_show_copyright = False
html_math_renderer = "mathml"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # in the signature only, as written


def mathml(inline):
    """A visitor that writes a formula as MathML, which browsers show without scripts."""

    def visit(translator, node):
        display = "inline" if inline else "block"
        made = convert(node.astext(), display=display)
        # browsers know MathML Core, where alignment is a matter of style
        made = made.replace('columnalign="left"', 'style="text-align: left"')
        translator.body.append(made)
        raise SkipNode

    return visit


FIELD = r"[a-zA-Z]\w*(?:, [a-zA-Z]\w*)*:\s"


HEADS = re.compile(r"^\s*([-=]{3,}|[\w*, .]+( : .*)?)$")
"""Lines of numpydoc's sections that are names, not text: napoleon reads them."""


def escaped(text):
    """Text in which nothing but ``code`` and *stress* is a mark."""
    subgroups = re.split(r"(``.*?``|\*\w[\w ]*\*)", text, flags=re.DOTALL)
    subgroups[::2] = [
        re.sub(r"([\\*|`])|_(?=\W|$)", r"\\\g<0>", subgroup) for subgroup in subgroups[::2]
    ]
    return "".join(subgroups)


def plain(app, what, name, obj, options, lines):
    """Docstrings are plain text with ``code``: what reStructuredText would take as marks is escaped, and
    a paragraph that says 'one: this.  two: that.' becomes a list."""
    paragraphs = []
    for text in re.split(r"\n\s*\n", "\n".join(lines)):
        if re.search(r"(?m)^\s*-{4,}$", text):
            rows = text.split("\n")
            heads = [HEADS.match(row) and not row.startswith("     ") for row in rows]
            text = "\n".join(
                row if head else escaped(row) for row, head in zip(rows, heads, strict=True)
            )
        elif not text.lstrip().startswith(">>>"):
            text = escaped(text)
            fields = re.split(rf"(?<=\.)\s+(?={FIELD})", text)
            if len(fields) > 1:
                items = [" ".join(field.split()) for field in fields]
                text = "\n".join(
                    f"- {item}" if re.match(FIELD, item) else f"{item}\n" for item in items
                )
        paragraphs.append(text)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def setup(app):
    app.add_html_math_renderer("mathml", (mathml(True), None), (mathml(False), None))
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
