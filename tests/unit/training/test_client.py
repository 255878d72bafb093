"""What `help(client.training)` shows is what can be given."""

import inspect

from maskedlark import fitting
from maskedlark.training.begin import begin
from maskedlark.training.client import Client
from maskedlark.training.evaluating import evaluation_query


def options(function):
    """Names and defaults of what is given by name."""
    given = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in given if each.kind is each.KEYWORD_ONLY}


def test_training_and_evaluating_have_the_options_of_what_they_call():
    assert options(Client.training) == options(begin)
    assert options(Client.evaluate) == options(evaluation_query) == options(Client.evaluation)
    assert options(fitting.evaluate) == options(fitting.evaluation)
    assert options(fitting.evaluation).items() <= options(evaluation_query).items()
    queries = options(Client.query)
    assert queries.pop("reuse") is False
    assert queries == options(Client.explain) == options(Client.asked_before)


def test_every_option_has_a_type_and_a_word():
    for function in (Client.training, Client.evaluate, Client.query, fitting.evaluate):
        given = inspect.signature(function).parameters
        assert all(given[name].annotation is not inspect.Parameter.empty for name in options(function))
        words = inspect.getdoc(function) or ""
        assert [name for name in options(function) if f"`{name}" not in words] == []
