"""Text of HTML: without tags, scripts and styles, with entities decoded.

Texts that are HTML pages or fragments are recognised with ``html="auto"``: they begin with a tag of HTML, or have
line breaks as tags (``<br>``). Texts that only mention a tag are left as they are.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

AUTO, STRIP, AS_IS = "auto", "strip", "keep"
HTML_CHOICES = (AUTO, STRIP, AS_IS)
_HIDDEN = {"script", "style", "noscript", "template", "svg", "math", "object", "iframe"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "option", "p", "pre", "section",
    "table", "td", "th", "title", "tr", "ul",
}  # fmt: skip
_BEGINS = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?"
    r"<(?:!doctype\s+html|(?:html|head|body|meta|title|p|div|span|h[1-6]|ul|ol|li|table|br|a|b|i|em|strong|font|img|"
    r"article|section|blockquote|pre)(?=[\s/>]))",
    re.IGNORECASE | re.DOTALL,
)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_BLANK_LINES = re.compile(r"[ \t\xa0]*\n\s*")
_BLANKS = re.compile(r"[ \t\xa0]+")


def clean_html(text: str, how: str = AUTO) -> str:
    """Strip a text of HTML if it looks like HTML ("auto"), always ("strip") or never ("keep")."""
    if how == AS_IS or (how == AUTO and ("<" not in text or not looks_like_html(text))):
        return text
    return html_text(text)


def looks_like_html(text: str) -> bool:
    """Whether a text begins with a tag of HTML, or has line breaks as tags.

    >>> looks_like_html("<!DOCTYPE html><title>x</title>"), looks_like_html("a <script> b")
    (True, False)
    """
    return _BEGINS.match(text[:5000]) is not None or _BREAK.search(text) is not None


def html_text(source: str) -> str:
    """Return the text of HTML: one line for each block."""
    parser = _TextParser()
    try:
        parser.feed(source)
        parser.close()
        text = "".join(parser.parts)
    except (AssertionError, RecursionError, ValueError):  # markup that the parser does not know
        text = html.unescape(_TAG.sub(" ", source))
    return _BLANKS.sub(" ", _BLANK_LINES.sub("\n", text)).strip()


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)
