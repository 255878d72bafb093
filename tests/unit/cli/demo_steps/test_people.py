import numpy as np

from maskedlark.cli.demo_steps.people import RARE, encoder, people


def test_the_same_seed_makes_the_same_people_and_another_makes_others():
    one, again, other = people(2000), people(2000), people(2000, b"other people")
    assert np.array_equal(one.bought, again.bought)
    assert np.array_equal(one.known["age"], again.known["age"])
    assert not np.array_equal(one.known["age"], other.known["age"])
    assert (one.campaign == "summer").sum() == RARE


def test_only_who_bought_spent_and_a_row_can_be_left_out():
    crowd = people(2000)
    assert np.array_equal(crowd.bought == 1, crowd.euros > 0)
    buyer = crowd.first_buyer()
    assert crowd.bought[buyer] == 1
    others = crowd.without(buyer)
    assert others.bought.sum() == crowd.bought.sum() - 1
    assert others.euros.sum() == crowd.euros.sum() - crowd.euros[buyer]
    assert {len(column) for column in (others.campaign, *others.known.values())} == {1999}


def test_features_are_what_was_known_and_say_nothing_of_what_was_done():
    crowd = people(2000)
    fitted = encoder(crowd)
    assert {name.split(" ")[0] for name in fitted.names} == set(crowd.known)
    assert fitted.encode(crowd.known).shape == (2000, len(fitted))
