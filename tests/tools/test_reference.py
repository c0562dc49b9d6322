"""The API reference: docstrings as pages."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

docstring_html = pytest.importorskip("hcq.tools.docstring_html", exc_type=ImportError)  # needs pygments
to_html = docstring_html.to_html


def test_a_paragraph_is_one_whatever_its_lines() -> None:
    assert (
        to_html("One line,\nand another.\n\nThe next.") == "<p>One line, and another.</p>\n<p>The next.</p>"
    )


def test_fields_are_pairs_and_their_meaning_goes_on_in_indented_lines() -> None:
    text = "dst, src  mapped here,\n          anywhere\nRaises    UsageError"
    assert to_html(text) == (
        "<dl><dt><code>dst, src</code></dt><dd>mapped here, anywhere</dd><dt>Raises</dt><dd>UsageError</dd></dl>"
    )


def test_what_html_would_take_for_its_own_is_escaped_everywhere() -> None:
    text = "a < b & `c < d`\n\na<b  less\n\n    x < y"
    assert to_html(text) == (
        "<p>a &lt; b &amp; <code>c &lt; d</code></p>\n"
        "<dl><dt><code>a&lt;b</code></dt><dd>less</dd></dl>\n"
        "<pre>    x &lt; y</pre>"
    )


def test_an_example_ends_at_an_empty_line() -> None:
    first, second = to_html(">>> 1 + 1\n2\n\nAfter.").split("</pre></div>")
    assert "pdoc-code" in first and "After" in second


def test_the_example_in_its_own_docstring_holds() -> None:
    text = inspect.getdoc(to_html) or ""
    test = doctest.DocTestParser().get_doctest(text, {"to_html": to_html}, "to_html", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_modules_of_the_reference_are_all_there() -> None:
    pytest.importorskip("pdoc")
    reference = pytest.importorskip("hcq.tools.reference")
    for places in reference.SECTIONS.values():
        for place in places:
            first, *inside = reference.modules(place)
            assert first == place.removesuffix(".*") and bool(inside) == (first != place)


def test_pages_of_the_documentation_link_to_each_other_in_the_site(tmp_path: Path) -> None:
    pytest.importorskip("markdown2")
    from hcq.tools import site_pages

    (tmp_path / "docs" / "rules").mkdir(parents=True)
    (tmp_path / "docs" / "trace.md").write_text(
        "# Traces\n\n[rules](rules/README.md#a), [here](#b), [code](../hcq/x.py), [web](https://a.b/c.md)\n\n## Show\n"
    )
    (tmp_path / "docs" / "rules" / "README.md").write_text("# Rules\n\n[traces](../trace.md)\n")
    for name in site_pages.BESIDE:
        (tmp_path / name).write_text(f"# {name}\n")
    found = {page.file: page for page in site_pages.pages(tmp_path)}
    assert {*found} == {
        "docs/trace.html", "docs/rules/index.html", "docs/contributing.html", "docs/changelog.html"
    }  # fmt: skip
    text = found["docs/trace.html"].text
    assert '<a href="../docs/rules/index.html#a">rules</a>' in text
    assert '<a href="#b">here</a>, code, <a href="https://a.b/c.md">web</a>' in text
    assert '<a href="../../docs/trace.html">traces</a>' in found["docs/rules/index.html"].text
    assert found["docs/trace.html"].headings == [("traces", "Traces"), ("show", "Show")]


def test_what_templates_leave_blank_goes_and_drawings_stay() -> None:
    reference = pytest.importorskip("hcq.tools.reference")
    assert (
        reference.packed("<p>\n    a\n\n</p>\n<pre>  x\n  y</pre>\n\n")
        == "<p>\na\n</p>\n<pre>  x\n  y</pre>\n"
    )
