"""What a training costs: both figures, and noise that is no less than the ε allows."""

from experiments import costs


def test_a_poisson_session_keeps_to_the_ad_servers_figure_and_costs_a_coalition_more():
    found = costs.costs(6000, 600, 40, 8.0)
    assert 7.9 < found["adserver_epsilon"] <= 8.0
    assert found["coalition_epsilon"] > 2 * found["adserver_epsilon"]


def test_a_partition_costs_both_the_same_and_a_record_is_in_one_batch_an_epoch():
    charge = costs.session_charge(6000, 600, 40, 8.0, True)
    found = costs.costs(6000, 600, 40, 8.0, True)
    assert charge.batches == charge.steps == 4, "40 steps of 10 batches are 4 epochs"
    assert found["adserver_epsilon"] == found["coalition_epsilon"] <= 8.0


def test_a_job_needs_what_is_found_by_the_same_name():
    needs = costs.needs(6000, 600, 40, 8.0, True)
    assert needs.find(*needs.arguments) == costs.costs(6000, 600, 40, 8.0, True)
