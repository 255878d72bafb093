"""The demo's browsers: one for real, step by step, and all others at once."""

from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.browser.upload import Uploader
from maskedlark.cli.people import People
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.privacy.policy import Policy
from maskedlark.privacy.settings import Budget
from maskedlark.simulate import Population, processes
from maskedlark.simulate.stage import DAY_S, Stage

SHOP = "shop.example"
MODEL = "ConversionModel11005"


def report(scene: Stage, crowd: People) -> int:
    """Everybody's reports, over HTTP to the ad server. Returns how many it took."""
    buyer = crowd.first_buyer()
    sent = _one_browser(scene, crowd, buyer)
    others = crowd.without(buyer)
    seen = SystemClock().now() - 8 * DAY_S - 3600
    with processes(2) as pool:
        population = Population(scene.document, scene.recipients(), seen, scene.rng, pool, progress=True)
        sent += scene.upload(population.measure([others.campaign], [others.bought, others.euros]))
        return sent + scene.upload(population.train(MODEL, others.features, [others.bought]))


def _one_browser(scene: Stage, crowd: People, person: int) -> int:
    """A real browser: sees an ad, buys, is closed and opened again, waits, and reports."""
    clock = FixedClock(SystemClock().now() - 9 * DAY_S)
    policy = Policy(
        trusted_helpers=tuple(helper.identity for helper in scene.document.helpers),
        most=Budget(epsilon=10, delta=1e-5),
        most_coalition=Budget(epsilon=100, delta=1e-5),
    )
    path = scene.folder / "browser.sqlite"
    store = Store(path)
    browser = Browser(store, scene.parameters, policy, clock, scene.rng)
    keys, features = {"campaign": crowd.campaign[person]}, {MODEL: crowd.features[person].tobytes()}
    browser.register_source(scene.origin, Kind.CLICK, SHOP, keys, features)
    clock.seconds += 3600
    browser.register_trigger(scene.origin, SHOP, {"bought": 1, "euros": int(crowd.euros[person])})
    store.close()
    clock.seconds = SystemClock().now()
    store = Store(path)
    Browser(store, scene.parameters, policy, clock, scene.rng).report_due()
    outbox = Outbox(store, scene.origin)
    sent = Uploader(scene.adserver.address, scene.http, SystemClock(), scene.rng, outbox).send_due()
    store.close()
    return sent.acknowledged
