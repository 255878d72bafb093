import pytest

from maskedlark.errors import NotDeclared
from maskedlark.features import Boolean, Hashed, OneHot, Scaled
from maskedlark.features.kind_text import typed_kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("number", Scaled()),
        ("number:18..90", Scaled(18, 90)),
        ("number:-1.5..2", Scaled(-1.5, 2)),
        ("yes/no", Boolean()),
        ("categories", OneHot()),
        ("categories:50", OneHot(50)),
        ("hashed:64", Hashed(64)),
    ],
)
def test_a_kind_is_read_as_it_is_typed(text, kind):
    assert typed_kind(text) == kind


@pytest.mark.parametrize("text", ["", "onehot", "hashed", "hashed:many", "number:18", "yes/no:2"])
def test_what_is_no_kind_says_which_there_are(text):
    with pytest.raises(NotDeclared, match=r"no kind of column: there are number, number:LOW\.\.HIGH"):
        typed_kind(text)


@pytest.mark.parametrize("text", ["hashed:0", "categories:99999", "number:9..3"])
def test_a_kind_out_of_range_is_refused_as_in_python(text):
    with pytest.raises(NotDeclared):
        typed_kind(text)
