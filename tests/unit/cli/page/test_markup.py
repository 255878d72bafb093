from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from maskedlark.cli.page.markup import Markup, element, joined

TEXT = st.text("ab<>&\"'/;=ε… ")


@given(text=TEXT, value=TEXT)
def test_text_and_attributes_stay_in_their_place(text, value):
    found = ElementTree.fromstring(element("p", text, element("b", text), title=value))
    assert (found.tag, found.attrib, found.text or "") == ("p", {"title": value}, text)
    assert [(each.tag, each.text or "") for each in found] == [("b", text)]


def test_what_is_no_markup_is_escaped_however_it_looks():
    assert element("td", '<script>alert("x")</script>') == (
        "<td>&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;</td>"
    )
    assert joined(["a < b ", Markup("<br>"), "& c"]) == "a &lt; b <br>&amp; c"
    assert element("a", title='" onclick="x') == '<a title="&quot; onclick=&quot;x"></a>'


def test_names_that_python_keeps_for_itself():
    assert element("p", class_="key", aria_hidden="true", id=None) == '<p class="key" aria-hidden="true"></p>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("line", x1=0.123456789) == '<line x1="0.12346"></line>'
