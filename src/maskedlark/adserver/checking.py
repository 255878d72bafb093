"""Has every helper check a dataset's chunks by the numbers of all others. Run on the ad server's machine.

Helpers do not connect to each other: their signed check messages, stored when chunks were sent, are relayed
here. Each helper decides for itself which reports are valid. The same is computed here, so that a helper that
finds otherwise is noticed before anything is frozen.
"""

import itertools
from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.errors import DatasetChanged, HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper, at_once, few_at_once
from maskedlark.adserver.sending import IN_FLIGHT, Sending, check_state
from maskedlark.release import check_messages
from maskedlark.web.errors import AlreadyFrozen
from maskedlark.wire.checks import encode_relay
from maskedlark.wire.datasets import CheckAnswer, pack


def check(sending: Sending) -> None:
    """Relay the check messages of a dataset that was sent everywhere. After a crash, only what is missing."""
    if sending.document.checked:
        missing = sending.datasets.unchecked(sending.dataset.name)
        done = itertools.count(1)

        def checked(number: int) -> None:
            _check(sending, number)
            sending.stage("chunks checked", next(done), len(missing))

        few_at_once([partial(checked, number) for number in missing], IN_FLIGHT)


def _check(sending: Sending, number: int) -> None:
    stored = sending.datasets.checks(sending.dataset.name, number)
    messages = {name: each.message for name, each in stored.items() if each.message is not None}
    if messages.keys() != {helper.name for helper in sending.helpers}:
        raise DatasetChanged(f"{sending.dataset.name} was frozen or aborted by another client: look again")
    verdict = _verdict(sending, messages, stored[sending.helpers[0].name].accepted)
    waiting = [helper for helper in sending.helpers if not stored[helper.name].is_checked]
    at_once([partial(_relay, sending, number, helper, messages, verdict) for helper in waiting])


def _relay(
    sending: Sending,
    number: int,
    helper: RemoteHelper,
    messages: Mapping[str, bytes],
    verdict: CheckAnswer,
) -> None:
    name = sending.dataset.name
    others = [messages[each.name] for each in sending.helpers if each.place != helper.place]
    try:
        answer = helper.check(name, number, encode_relay(others), sending.dataset.attempt)
    except AlreadyFrozen:
        # Another client has had it checked and frozen. What was frozen is compared by its digest.
        check_state(helper, sending.dataset, state := helper.state(name))
        if state.state != "frozen":
            raise HelpersDiffer(f"{helper.name} says that {name} is frozen, and that it is open") from None
        answer = verdict
    if answer != verdict:
        raise HelpersDiffer(
            f"{helper.name} finds other reports of chunk {number} of {name} valid than all messages say"
        )
    sending.datasets.check(name, number, helper.name, answer)


def _verdict(sending: Sending, messages: Mapping[str, bytes], accepted: NDArray[np.bool_]) -> CheckAnswer:
    """What every helper has to answer. `accepted`: by the first one."""
    signed = [(messages[helper.name], sending.document, helper.place) for helper in sending.helpers]
    first, *others = [check_messages.verify(*message) for message in signed]
    verdict, valid = check_messages.verdict(first, others), np.zeros(len(accepted), np.bool_)
    valid[accepted] = verdict.valid
    return CheckAnswer(valid=pack(valid), invalid=int(verdict.invalid.sum()))
